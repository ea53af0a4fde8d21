"""The items and answers of a session as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.api.schemas.common import Input, Int32, Name, Output, Text
from app.items import Outcome
from app.services.sessions.manual import ManualAnswer, NextItem
from app.services.sessions.rescoring import Change
from app.services.sessions.service import AskedAnswer
from app.services.visibility import Sight
from app.storage.repositories.session_values import Closing


class ManualResponse(Input):
    """An answer: exactly one of `response` (its text), `score` and `outcome`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"step_token": "pMn4...", "response": "B"}]}
    )

    step_token: Name = Field(description="From `next-item`: names the step that is answered.")
    item_id: Name | None = Field(default=None, description="Checked against the step, if given.")
    response: Annotated[Text, Field(max_length=1_000_000)] | None = None
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    outcome: Literal["unparsed", "refused", "error", "truncated"] | None = None

    def to_domain(self) -> ManualAnswer:
        """As the service takes it."""
        return ManualAnswer(
            step_token=self.step_token,
            item_id=self.item_id,
            response=self.response,
            score=self.score,
            outcome=None if self.outcome is None else Outcome(self.outcome),
        )


class ItemView(Output):
    """An item as the examinee is to see it; of a withheld bank, without `banks:write`, its key."""

    id: str
    prompt: str | None
    messages: list[dict[str, str]]
    choices: list[str]


class NextItemRead(Output):
    """The item that the session waits for."""

    step: int
    step_token: str
    item: ItemView

    @classmethod
    def of(cls, awaited: NextItem, sight: Sight) -> "NextItemRead":
        """From the service's value; the target stays here."""
        awaited = sight.next_item(awaited)
        content = awaited.item.content
        return cls(
            step=awaited.step,
            step_token=awaited.step_token,
            item=ItemView(
                id=awaited.item.key,
                prompt=content.prompt,
                messages=[{"role": m.role, "content": m.content} for m in content.messages],
                choices=list(content.choices),
            ),
        )


_OF_ADMINISTRATION = frozenset(
    {
        "step",
        "item_id",
        "pretest",
        "arrival",
        "information",
        "probability",
        "asked_at",
        "answered_at",
    }
)


class ResponseRead(Output):
    """One item of a session. `outcome` is null while the answer is awaited.

    Of a withheld bank, what came back and how it was marked is null for keys without `banks:write`.
    """

    step: int
    item_id: str
    pretest: bool = Field(description="An item without parameters, of which no estimate knows.")
    arrival: int | None = Field(description="Order in which answers came, from 1.")
    outcome: Literal["scored", "unparsed", "refused", "error", "truncated"] | None
    score: float | None
    extracted: str | None
    extractor: str | None
    reason: str | None
    error_code: str | None
    scorer_hash: str | None = Field(
        description=(
            "SHA-256 of name and parameters of the scorer that marked. Null: none did, or the "
            "answer is older than this field."
        )
    )
    marking: dict[str, Any] | None = Field(
        description="Of scorers that call out: judgements, the judge's version, what it cost."
    )
    answer: str | None
    raw: str | None = Field(description="The whole text where it differs from `answer`.")
    reasoning: str | None
    finish_reason: str | None
    theta: float | None
    se: float | None
    information: float | None
    probability: float | None = Field(
        description=(
            "With which its step drew it by lot, given all that was asked before; 1: the design "
            "chose it. Null: in pretest, or asked before this was noted."
        )
    )
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    latency_ms: float | None
    attempts: int | None
    asked_at: datetime
    answered_at: datetime | None

    @classmethod
    def of(cls, asked: AskedAnswer, sight: Sight) -> "ResponseRead":
        """From the service's value."""
        asked = sight.answer(asked)
        item, closing = asked.administration, asked.administration.closing

        def of_closing(name: str) -> Any:
            return None if closing is None else getattr(closing, name)

        taken = {
            name: of_closing({"answer": "answer_text", "raw": "raw_text"}.get(name, name))
            for name in cls.model_fields
            if name not in _OF_ADMINISTRATION
        }
        return cls(
            step=item.step,
            item_id=asked.item_key,
            pretest=asked.is_pretest,
            arrival=item.arrival,
            information=item.information,
            probability=item.probability,
            asked_at=item.asked_at,
            answered_at=item.answered_at,
            **taken,
        )


class ResponseList(Output):
    """Items of a session in order of asking. Go on with `?after=<last_step>`."""

    object: Literal["list"] = "list"
    data: list[ResponseRead]
    last_step: int
    has_more: bool


class StoredMark(Output):
    """One mark of an answer."""

    outcome: Literal["scored", "unparsed", "refused", "error", "truncated"]
    score: float | None
    reason: str | None
    error_code: str | None

    @classmethod
    def of(cls, closing: Closing) -> "StoredMark":
        """From the stored closing."""
        return cls.model_validate({name: getattr(closing, name) for name in cls.model_fields})


class ChangeRead(Output):
    """One answer before and after it was marked again; `after` is null while it is not."""

    step: int
    item_id: str
    changed: bool
    before: StoredMark
    after: StoredMark | None

    @classmethod
    def of(cls, change: Change, sight: Sight) -> "ChangeRead":
        """From the service's value."""
        change = sight.change(change)
        return cls(
            step=change.step,
            item_id=change.item_key,
            changed=change.is_changed,
            before=StoredMark.of(change.before),
            after=None if change.after is None else StoredMark.of(change.after),
        )


class ChangeList(Output):
    """Every answer of a session that marks those of another again."""

    object: Literal["list"] = "list"
    data: list[ChangeRead]


class TrajectoryPoint(Output):
    """Theta after one answer."""

    arrival: int
    step: int
    item_id: str
    outcome: str
    score: float | None
    theta: float | None
    se: float | None


class Trajectory(Output):
    """Theta and SE after each answer of the test, in order of arrival."""

    object: Literal["trajectory"] = "trajectory"
    data: list[TrajectoryPoint]

    @classmethod
    def of(cls, answers: list[AskedAnswer]) -> "Trajectory":
        """From all items of a session."""
        closed = [a for a in answers if a.administration.closing and not a.is_pretest]
        closed.sort(key=lambda answer: answer.administration.arrival or 0)
        return cls(
            data=[
                TrajectoryPoint(
                    arrival=answer.administration.arrival or 0,
                    step=answer.administration.step,
                    item_id=answer.item_key,
                    outcome=closing.outcome,
                    score=closing.score,
                    theta=closing.theta,
                    se=closing.se,
                )
                for answer in closed
                if (closing := answer.administration.closing) is not None
            ]
        )


AfterStep = Annotated[Int32, Field(ge=0)]
