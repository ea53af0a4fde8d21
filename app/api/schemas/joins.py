"""Whether parameters belong to their questions, as JSON."""

from typing import Literal, Self

from pydantic import Field

from app.api.schemas.common import Output
from app.engine.inference.join import Verdict
from app.records.fields import shallow
from app.reports.joins import join_sentence
from app.services.banks.joins import JoinLook


class JoinRead(Output):
    """What answers from outside the calibration say of a version's join."""

    object: Literal["join"] = "join"
    version_id: str
    response_set_id: str | None = Field(description="Null: answers of live sessions.")
    n_sessions: int
    verdict: Verdict
    explanation: str
    z: float | None = Field(
        description="How much likelier the answers are than with the parameters dealt anew among "
        "the items that each examinee answered, in standard deviations; 0 of a wrong join."
    )
    expected_z: float | None = Field(description="The same of a right join.")
    p_value: float | None = Field(description="Of such a z or a greater one if it were wrong.")
    power: float = Field(description="Share of wrong joins that so many answers would find.")
    rank_correlation: float | None = Field(
        description="Spearman's, of the items' shares of right answers with their difficulties: "
        "below 0 where the join is right. In adaptive tests, whose items are as hard as the "
        "examinee is able, it is near 0 either way."
    )
    n_examinees: int
    n_answers: int
    n_items: int

    @classmethod
    def of(cls, look: JoinLook) -> Self:
        """The outgoing shape."""
        return cls.read(
            {
                **shallow(look),
                **shallow(look.check),
                "version_id": look.version.id,
                "explanation": join_sentence(look.check),
            }
        )
