"""Whether a version of provisional parameters should be calibrated again, as JSON."""

from typing import Literal, Self

from pydantic import Field

from app.api.schemas.common import Output
from app.services.banks.recalibration_advice import Offer


class ProvisionalRead(Output):
    """How uncertain the items of a version are."""

    n_examinees: int = Field(description="Whose answers they rest on.")
    n_answers: int
    answers_per_item: float = Field(description="Median.")
    se_b: float | None = Field(description="Standard error of the median item's difficulty.")
    widening: float = Field(
        description="Share by which the items' uncertainty widens standard errors of theta."
    )


class RecalibrationRead(Output):
    """What live answers would tell of a version's items."""

    object: Literal["recalibration"] = "recalibration"
    version_id: str
    provisional: ProvisionalRead | None = Field(description="Null: its parameters are no guesses.")
    n_examinees: int = Field(
        description="Who has answered by now: one address, model, settings and prompt each."
    )
    wanted: int | None = Field(description="How many make a calibration worth while.")
    due: bool
    explanation: str

    @classmethod
    def of(cls, offer: Offer) -> Self:
        """The outgoing shape."""
        return cls.read(
            {
                "version_id": offer.version.id,
                "provisional": offer.known,
                "n_examinees": offer.n_examinees,
                "wanted": offer.known and offer.known.next_examinees,
                "due": offer.due,
                "explanation": offer.words,
            }
        )
