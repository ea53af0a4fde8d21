"""Whether stored marks are what provenance says, as JSON."""

from typing import Literal, Self

from pydantic import ConfigDict, Field

from app.api.schemas.common import Input, Output
from app.records.sessions import Closing
from app.services.sessions.mark_checks import Difference, MarkCheck
from app.services.visibility import Sight


class MarkCheckCreate(Input):
    """How stored answers are to be marked again."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"call": False}]})

    call: bool = Field(
        default=False, description="Ask judges and other scorers that call out again; it costs."
    )


class CheckedMark(Output):
    """A mark, and what made it."""

    outcome: str
    score: float | None
    scorer_hash: str | None

    @classmethod
    def of(cls, closing: Closing, scorer_hash: str | None) -> Self:
        """The outgoing shape."""
        return cls(outcome=closing.outcome, score=closing.score, scorer_hash=scorer_hash)


class MarkDifferenceRead(Output):
    """An answer whose stored mark is not what provenance says."""

    step: int
    item_id: str
    stored: CheckedMark
    by_provenance: CheckedMark | None = Field(
        description="Null where the scorer calls out and was not asked again: its hash tells."
    )
    scorer_hash: str | None = Field(
        description="Of the scorer that provenance names; null where it may not be told."
    )

    @classmethod
    def of(cls, difference: Difference, *, shown: bool) -> Self:
        """The outgoing shape; of what is withheld no hash tells the scorer."""
        again = difference.again
        expected = difference.expected_hash if shown else None
        by = difference.stored.scorer_hash if shown else None
        return cls(
            step=difference.step,
            item_id=difference.item_key,
            stored=CheckedMark.of(difference.stored, by),
            by_provenance=None if again is None else CheckedMark.of(again, expected),
            scorer_hash=expected,
        )


class MarkCheckRead(Output):
    """What marking the answers of a session again has found; nothing was changed."""

    object: Literal["mark_check"] = "mark_check"
    session_id: str
    bank: str
    bank_version: int
    answers: int = Field(description="Closed items.")
    checked: int
    not_checked: dict[str, int] = Field(
        description="Answers by reason: `no_answer` (no text is stored), `calls_out`, "
        "`no_content`, `not_marked`, `repeated`."
    )
    different: list[MarkDifferenceRead]

    @classmethod
    def of(cls, check: MarkCheck, sight: Sight) -> Self:
        """The outgoing shape, as this caller may see it."""
        shown = sight.shows(withheld=check.session.withheld)
        return cls(
            session_id=check.session.id,
            bank=check.session.bank_name,
            bank_version=check.session.bank_version,
            answers=check.answers,
            checked=check.checked,
            not_checked=dict(check.left_out),
            different=[MarkDifferenceRead.of(one, shown=shown) for one in check.differences],
        )
