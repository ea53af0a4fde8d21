"""The items and answers of a session as JSON."""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from typing_extensions import TypeAliasType

from app.api.schemas.common import Input, Int32, Listed, Metadata, Name, Output, Text
from app.api.schemas.scorers import Obtained
from app.api.schemas.sessions.sessions import SessionRead
from app.items import Outcome
from app.records.fields import shallow
from app.records.sessions import Closing
from app.services.sessions.manual import Answered, NextItem
from app.services.sessions.plan import MAX_BY_HAND
from app.services.sessions.rescoring import Change
from app.services.sessions.service import AskedAnswer
from app.services.visibility import View
from app.validation import WEB_LINK

NoScore = TypeAliasType("NoScore", Literal["unparsed", "refused", "error", "truncated"])
Tokens = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ManualResponse(Input):
    """An answer: exactly one of `response` (its text), `score` and `outcome`.

    What else is said of it is kept and shown with it; budgets hold by its tokens and dollars.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"step_token": "pMn4...", "response": "B"},
                {"step_token": "pMn4...", "score": 1.0, "usd": 0.8, "seconds": 310.5},
            ]
        }
    )

    step_token: Name = Field(description="From `next-item`: names the step that is answered.")
    item_id: Name | None = Field(default=None, description="Checked against the step, if given.")
    response: Annotated[Text, Field(max_length=1_000_000)] | None = None
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    outcome: NoScore | None = None
    text: Annotated[Text, Field(max_length=1_000_000)] | None = Field(
        default=None,
        description="What was answered, beside a score or an outcome: `:rescore` scores it again.",
    )
    tokens_in: Tokens | None = None
    tokens_out: Tokens | None = None
    usd: Annotated[float, Field(ge=0, le=1e6)] | None = None
    seconds: Annotated[float, Field(ge=0, le=1e7)] | None = None
    finish_reason: Annotated[Text, Field(max_length=100)] | None = None
    explanation: Annotated[Text, Field(max_length=10_000)] | None = None
    link: Annotated[str, Field(max_length=2048, pattern=WEB_LINK)] | None = Field(
        default=None, description="Where there is more about it: http or https."
    )
    metadata: Metadata = Field(default_factory=dict)


class ItemView(Output):
    """An item as the examinee is to see it; of a withheld bank, without `banks:write`, its key."""

    id: str
    prompt: str | None
    messages: list[Annotated[dict[str, str], BeforeValidator(asdict)]]
    choices: list[str]


class NextItemRead(Output):
    """An item that a session waits for."""

    session_id: str = Field(description="Whose `responses` take the answer.")
    examinee: str | None = Field(description="Who answers, where somebody was named.")
    step: int
    step_token: str
    item: ItemView

    @classmethod
    def of(cls, awaited: NextItem, view: View) -> "NextItemRead":
        """From the service's value; the target stays here."""
        awaited = view.next_item(awaited)
        record, item = awaited.record, awaited.item
        whose = {"session_id": record.id, "examinee": record.examinee and record.examinee.name}
        content = {**shallow(item.content), "id": item.key}
        return cls.read({**shallow(awaited), **whose, "item": content})


class NextItemsInput(Input):
    """How many items a client takes at a time."""

    n: Annotated[int, Field(ge=1, le=MAX_BY_HAND)] = Field(
        default=MAX_BY_HAND, description="At most; `concurrency` is the limit, too."
    )


class ReleaseInput(Input):
    """An item that is given back."""

    step_token: Name = Field(description="Of the step; it gets another.")


class AnsweredRead(SessionRead):
    """A session after an answer, and what it asks next."""

    next_items: list[NextItemRead] = Field(
        description="Asked because of this answer; those asked before are still pending."
    )

    @classmethod
    def after(cls, answered: Answered, view: View) -> "AnsweredRead":
        """From the service's value."""
        session = SessionRead.of(answered.record, view)
        return cls(
            **dict(session),
            next_items=[NextItemRead.of(one, view) for one in answered.next_items],
        )


#: Of an item whose answer is awaited.
_NOT_CLOSED = dict.fromkeys(field.name for field in fields(Closing))


class ResponseRead(Obtained):
    """One item of a session. `outcome` is null while the answer is awaited.

    Of a withheld bank, what came back and how it was marked is null for keys without `banks:write`.
    """

    step: int
    item_id: str = Field(validation_alias="item_key")
    pretest: bool = Field(
        validation_alias="is_pretest",
        description="An item without parameters, of which no estimate knows.",
    )
    arrival: int | None = Field(description="Order in which answers came, from 1.")
    outcome: Outcome | None
    scorer_hash: str | None = Field(
        description=(
            "SHA-256 of name and parameters of the scorer. Null: none did, or the "
            "answer is older than this field."
        )
    )
    theta: float | None
    se: float | None
    information: float | None
    probability: float | None = Field(
        description=(
            "With which its step sampled it, given all that was asked before; 1: the design "
            "chose it. Null: in pretest, or asked before this was noted."
        )
    )
    asked_at: datetime
    answered_at: datetime | None

    @classmethod
    def of(cls, asked: AskedAnswer, view: View) -> "ResponseRead":
        """From the service's value."""
        asked = view.answer(asked)
        closing = _NOT_CLOSED if asked.closing is None else shallow(asked.closing)
        return cls.read(closing | shallow(asked))


class ResponseList(Listed[ResponseRead]):
    """Items of a session in order of asking. Go on with `?after=<last_step>`."""

    last_step: int
    has_more: bool


class StoredMark(Output):
    """One mark of an answer."""

    outcome: Outcome
    score: float | None
    reason: str | None
    error_code: str | None


class ChangeRead(Output):
    """One answer before and after it was marked again; `after` is null while it is not."""

    step: int
    item_id: str = Field(validation_alias="item_key")
    changed: bool = Field(validation_alias="is_changed")
    before: StoredMark
    after: StoredMark | None

    @classmethod
    def of(cls, change: Change, view: View) -> "ChangeRead":
        """From the service's value."""
        return cls.read(view.change(change))


class TrajectoryPoint(Output):
    """Theta after one answer."""

    arrival: int
    step: int
    item_id: str = Field(validation_alias="item_key")
    outcome: str
    score: float | None
    theta: float | None
    se: float | None
    answered_at: datetime


class Trajectory(Output):
    """Theta and SE after each answer of the test, in order of arrival."""

    object: Literal["trajectory"] = "trajectory"
    data: list[TrajectoryPoint]

    @classmethod
    def of(cls, answers: list[AskedAnswer]) -> "Trajectory":
        """From all items of a session."""
        points = [
            TrajectoryPoint.read(shallow(closing) | shallow(answer))
            for answer in answers
            if not answer.is_pretest and (closing := answer.closing)
        ]
        return cls(data=sorted(points, key=lambda point: point.arrival))


AfterStep = Annotated[Int32, Field(ge=0)]
