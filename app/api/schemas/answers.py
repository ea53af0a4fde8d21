"""The items and answers of a session, and previews of items, as JSON."""

from dataclasses import asdict, fields
from datetime import datetime
from typing import Annotated, Literal

from pydantic import AliasPath, BeforeValidator, Field

from app.adapters.base import ExactRequest
from app.adapters.prompting import Mode
from app.api.schemas.endpoints import ChosenEndpoint
from app.api.schemas.scorers import Obtained
from app.api.schemas.sessions import PromptChange, SessionRead
from app.items import Outcome
from app.records.fields import shallow
from app.records.sessions import Closing
from app.services.sessions.manual import NextItem
from app.services.sessions.plan import MAX_BY_HAND
from app.services.sessions.rescoring import Change
from app.services.sessions.service import AskedAnswer
from app.services.visibility import View
from app.shapes import Input, Listed, Name, Output, examples


class ItemView(Output):
    """An item as the examinee should see it.

    Keys without `banks:write` see only the id of an item in a withheld bank.
    """

    id: str
    prompt: str | None
    messages: list[Annotated[dict[str, str], BeforeValidator(asdict)]]
    choices: list[str]


class NextItemRead(Output):
    """An item that a session waits for."""

    session_id: str
    """Session to which the answer is sent (`.../responses`)."""
    examinee: str | None
    """Name of the examinee, if one was given."""
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
    """Number of items that a client takes at a time."""

    n: Annotated[int, Field(ge=1, le=MAX_BY_HAND)] = MAX_BY_HAND
    """Maximum number of items; `concurrency` limits it, too."""


class ReleaseInput(Input):
    """An item to give back."""

    step_token: Name
    """Token of the step; the step then gets a new one."""


class AnsweredRead(SessionRead):
    """A session after an answer, and the items that it asks next."""

    next_items: list[NextItemRead]
    """Items asked because of this answer; earlier ones may still be pending."""


#: Of an item whose answer is awaited.
_NOT_CLOSED = dict.fromkeys(field.name for field in fields(Closing))


class ResponseRead(Obtained):
    """One item of a session. `outcome` is null while the answer is pending.

    If the bank is withheld, the answer and how it was scored are null for keys without
    `banks:write`.
    """

    step: int
    item_id: str = Field(validation_alias="item_key")
    pretest: bool = Field(validation_alias="is_pretest")
    """Whether it is a pretest item, without parameters; estimates do not use it."""
    arrival: int | None
    """Number of the answer in the order of arrival, from 1."""
    outcome: Outcome | None
    scorer_hash: str | None
    """SHA-256 of the scorer's name and parameters. Null if no scorer was used, or if the answer is
    older than this field."""
    theta: float | None
    se: float | None
    information: float | None
    probability: float | None
    """Probability with which the step sampled this item, given all earlier items; 1 if the design
    chose it. Null for pretest items, and for items older than this field."""
    asked_at: datetime
    answered_at: datetime | None

    @classmethod
    def of(cls, asked: AskedAnswer, view: View) -> "ResponseRead":
        """From the service's value."""
        asked = view.answer(asked)
        closing = _NOT_CLOSED if asked.closing is None else shallow(asked.closing)
        return cls.read(closing | shallow(asked))


class ResponseList(Listed[ResponseRead]):
    """Items of a session in order of asking. The next page is at `?after=<last_step>`."""

    last_step: int
    has_more: bool


class StoredMark(Output):
    """One scoring of an answer."""

    outcome: Outcome
    score: float | None
    reason: str | None
    error_code: str | None


class ChangeRead(Output):
    """One answer before and after rescoring; `after` is null until it is rescored."""

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


class PreviewCreate(ChosenEndpoint):
    """The endpoint to ask, and how."""

    model_config = examples(
        {
            "endpoint": {
                "kind": "openai_chat",
                "base_url": "http://127.0.0.1:8080/v1",
                "model": "my-model",
            },
            "prompt": {"shots": 0},
            "send": False,
        }
    )

    prompt: PromptChange = Field(default_factory=PromptChange)
    """Prompt settings that differ from the bank's."""
    send: bool = True
    """Call the endpoint, once or once per option, and score the answer."""


class PreviewAnswer(Obtained):
    """The answer and its score.

    Estimates use `scored` answers, and `unparsed` ones that count as wrong.
    """

    outcome: Outcome


class PreviewRead(Output):
    """The request that puts one item to an endpoint, the answer, and how it is scored."""

    object: Literal["preview"] = "preview"
    item_id: str = Field(validation_alias=AliasPath("item", "key"))
    mode: Mode = Field(validation_alias=AliasPath("style", "mode"))
    shots: int = Field(validation_alias=AliasPath("style", "shots"))
    scorer: str = Field(validation_alias=AliasPath("item", "scorer", "name"))
    """Name of the scorer."""
    target: list[str] = Field(validation_alias=AliasPath("item", "content", "target"))
    requests: list[ExactRequest]
    """One per option if likelihoods are compared; none for simulated examinees."""
    answer: PreviewAnswer | None = Field(validation_alias="closing")
    """Null if nothing was sent."""
