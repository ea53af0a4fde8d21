"""Manual sessions: the client asks for the next item and answers it (ask and tell)."""

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, Literal, TypeVar
from weakref import WeakValueDictionary

from cachetools import LRUCache
from pydantic import Field
from typing_extensions import TypeAliasType

from app.adapters.transport import Transport
from app.errors import InvalidInputError, InvalidStateError, SextantError, StaleStepError
from app.items import Answer, ItemContent, Outcome
from app.records.sessions import Administration, Advance, Closing, SessionRecord
from app.services.banks.joins import JoinChecks
from app.services.banks.loaded import BankItem, LoadedVersion
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.scoring import AnswerScorer
from app.services.sessions.run import SessionRun, open_run
from app.shapes import Metadata, Name, Number, Text, Value, Whole, examples
from app.storage.database import Database
from app.validation import WEB_LINK

#: Most items in the banks of all runs that are kept between answers. The limit for versions in
#: memory is the same, as each run keeps its version there. A run counts as ITEMS_PER_RUN more.
KEPT_ITEMS = 1_000_000
ITEMS_PER_RUN = 4_000
#: Closing of an item that was not answered in time.
LATE = Closing(
    outcome=Outcome.ERROR.value, error_code="timeout", reason="No answer came within answer_within."
)

R = TypeVar("R")
Awaited = tuple[SessionRecord, Administration]
"""A session, and one of its items whose answer is pending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextItem:
    """An item whose answer is pending in a manual session, and the session."""

    step: int
    step_token: str
    item: BankItem
    version: LoadedVersion
    record: SessionRecord


NoScore = TypeAliasType("NoScore", Literal["unparsed", "refused", "error", "truncated"])
_Tokens = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
_Answer = Annotated[Text, Field(max_length=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAnswer(Value):
    """An answer: exactly one of `response` (its text), `score` and `outcome`.

    The other fields are stored and shown with the answer. Budgets count its tokens and dollars.
    """

    __pydantic_config__ = Value.__pydantic_config__ | examples(
        {"step_token": "pMn4...", "response": "B"},
        {"step_token": "pMn4...", "score": 1.0, "usd": 0.8, "seconds": 310.5},
    )

    step_token: Name
    """Token of the step that is answered, from `next-item` or `next-items`."""
    item_id: Name | None = None
    """If given, it must be the item of the step."""
    response: _Answer | None = None
    score: Annotated[Number, Field(ge=0, le=1)] | None = None
    outcome: NoScore | None = None
    text: _Answer | None = None
    """Text of the answer, in addition to a score or an outcome, so that `:rescore` can score it
    again."""
    tokens_in: _Tokens | None = None
    tokens_out: _Tokens | None = None
    usd: Annotated[Number, Field(ge=0, le=1e6)] | None = None
    seconds: Annotated[Number, Field(ge=0, le=1e7)] | None = None
    finish_reason: Annotated[Text, Field(max_length=100)] | None = None
    explanation: Annotated[Text, Field(max_length=10_000)] | None = None
    link: Annotated[str, Field(max_length=2048, pattern=WEB_LINK)] | None = None
    """URL with more about the answer, http or https."""
    metadata: Metadata = field(default_factory=dict)

    def item_among(
        self, awaited: list[Administration], record: SessionRecord, version: LoadedVersion
    ) -> Administration:
        """The pending item of a session that is answered.

        Raises:
            StaleStepError: The step was answered before, or the token is not that of the step.
            InvalidInputError: The answer names another item.
        """
        item = asked_with(self.step_token, record, awaited)
        key = version.key_at(item.position)
        if self.item_id is not None and self.item_id != key:
            raise InvalidInputError.of_field(
                "item_id", f"expected {key!r}, which step {item.step} asked, got {self.item_id!r}"
            )
        return item

    def closing(self, version: LoadedVersion, marked: Closing | None) -> Closing:
        """The closing of the answered item."""
        is_wrong = self.outcome == "unparsed" and version.unparsed_policy == "wrong"
        if marked is not None:
            closing = marked
        elif self.score is not None:
            closing = Closing(outcome=Outcome.SCORED.value, score=self.score)
        else:
            closing = Closing(
                outcome=self.outcome or Outcome.ERROR.value,
                score=0.0 if is_wrong else None,
                reason="Reported by the client.",
            )
        took = (self.tokens_in, self.tokens_out, self.usd)
        is_call = closing.outcome != Outcome.ERROR or any(each is not None for each in took)
        said = {name: told for name in ("link", "metadata") if (told := getattr(self, name))}
        method = closing.method
        if said:
            method = {**(method or {}), "reported": said}
        return replace(
            closing,
            answer_text=closing.answer_text if self.text is None else self.text,
            tokens_in=self.tokens_in,
            tokens_out=self.tokens_out,
            usd=self.usd,
            latency_ms=None if self.seconds is None else 1000 * self.seconds,
            attempts=1 if is_call else None,
            finish_reason=self.finish_reason or closing.finish_reason,
            reason=self.explanation or closing.reason,
            method=method,
        )


@dataclass(frozen=True, slots=True)
class Held(Generic[R]):
    """A run of a session or a ranking at a revision; `n_items` is its size in the cache."""

    revision: int
    run: R
    n_items: int


@dataclass(frozen=True, eq=False, kw_only=True)
class ManualSessions(ABC):
    """Use cases of manual sessions, which may have several items in flight.

    An answer locks the session's row, so that concurrent answers are taken in one after the other.
    Runs are kept in memory from the first item on, with the revision of their session. A kept run
    is valid only if this revision is the stored one, as another process may have taken an answer;
    otherwise the run is opened from the stored answers.

    Raises:
        InvalidStateError: The session is not a manual one that waits for an answer; true of all
            methods.
    """

    database: Database
    versions: VersionService
    joins: JoinChecks
    endpoints: EndpointService
    transport: Transport
    _runs: LRUCache[str, Held[Any]] = field(
        init=False, default_factory=lambda: LRUCache(KEPT_ITEMS, lambda held: held.n_items)
    )
    # With these locks, concurrent answers in this process wait here and not in a transaction.
    _turns: WeakValueDictionary[str, asyncio.Lock] = field(
        init=False, default_factory=WeakValueDictionary
    )

    def keep(self, record: SessionRecord, run: SessionRun) -> None:
        """Keep a run for the next answer of its session."""
        run.forget_figures()
        n_items = ITEMS_PER_RUN + run.version.bank.n_items
        if n_items <= KEPT_ITEMS:
            self._runs[record.id] = Held(record.revision, run, n_items)

    async def next_item(self, session_id: str) -> NextItem:
        """The item for which a manual session waits; of several, the one that was asked first."""
        async with self.database.reading() as uow:
            record, awaited = await uow.sessions.with_awaited(session_id)
        (item,) = await self._items([(record, _required(record, awaited)[0])])
        return item

    async def next_items(self, session_id: str, n: int) -> Sequence[NextItem]:
        """At most `n` items for which a manual session waits, in order of asking.

        Items that were not answered in time are closed first, and others take their place.
        """
        async with self.database.reading() as uow:
            record, awaited = await uow.sessions.with_awaited(session_id)
        if any(is_overdue(record, one) for one in _required(record, awaited)):
            record, awaited, _ = await self._advanced(session_id)
        return await self._items([(record, one) for one in awaited[:n]])

    async def answer(
        self, session_id: str, answer: ManualAnswer
    ) -> tuple[SessionRecord, Sequence[NextItem]]:
        """Take one answer of a manual session, then choose the next items or end the session.

        The result is the session after the answer, and the items that it asks next.

        Raises:
            InvalidInputError: Not exactly one of response, score and outcome; or another item.
            StaleStepError: The step was answered before, or the token is not that of the step.
        """
        given = [one for one in (answer.response, answer.score, answer.outcome) if one is not None]
        if len(given) != 1:
            raise InvalidInputError.at(
                "", f"Give exactly one of response, score and outcome; got {len(given)} of them."
            )
        if answer.response is not None and answer.text is not None:
            raise InvalidInputError.at(
                "/text", "A response is the answer's text: give no other text beside it."
            )
        marked = None if answer.response is None else await self._marked(session_id, answer)
        record, _, asked = await self._advanced(session_id, answer, marked)
        return record, await self._items(asked)

    async def release(self, session_id: str, step_token: str) -> NextItem:
        """Give an item back: it gets a new token, for the client that fetches it next.

        Raises:
            StaleStepError: The step was answered before, or the token is not that of the step.
        """
        async with self.database.unit_of_work() as uow:
            record, awaited, _ = await uow.sessions.locked_with_awaited(session_id)
            pending, token = asked_with(step_token, record, awaited), new_token()
            await uow.sessions.renew_token(session_id, pending.step, token)
        (item,) = await self._items([(record, replace(pending, step_token=token))])
        return item

    async def _advanced(
        self, session_id: str, answer: ManualAnswer | None = None, marked: Closing | None = None
    ) -> tuple[SessionRecord, list[Administration], list[Awaited]]:
        """Take in an answer, if there is one, and close the overdue items of a session.

        The result is the session, all its pending items, and those that were asked now.
        """
        if session_id not in self._runs:  # no runs are kept for members of rankings
            async with self.database.reading() as uow:
                ranking_id = (await uow.sessions.get(session_id)).ranking_id
            if ranking_id is not None:
                return await self._member_advanced(ranking_id, session_id, answer, marked)
        turn = self._turns.setdefault(session_id, asyncio.Lock())
        async with turn:
            while True:
                held = self._runs.get(session_id) or await self._opened(session_id)
                async with self.database.unit_of_work() as uow:
                    record, awaited, waited = await uow.sessions.locked_with_awaited(session_id)
                    given: dict[int, Closing] = {}
                    if answer is not None:
                        version = held.run.version
                        step = answer.item_among(awaited, record, version).step
                        given[step] = answer.closing(version, marked)
                    # Take the run out, so that it is not used again if the step is not stored.
                    self._runs.pop(session_id, None)
                    if held.revision != record.revision:  # another process took an answer before
                        continue
                    given |= {
                        one.step: LATE
                        for one in awaited
                        if one.step not in given and is_overdue(record, one)
                    }
                    taken = next_step(
                        held.run,
                        {nth: held.run.close(nth, closing) for nth, closing in given.items()},
                        elapsed_s=record.active_s + waited.total_seconds(),
                    )
                    await uow.sessions.advance({session_id: taken}, record.lease_epoch)
                    if taken.ending is None:
                        record, awaited = await uow.sessions.with_awaited(session_id)
                break
            if taken.ending is None:
                self.keep(record, held.run)
        if taken.ending is not None:
            await self.joins.renew(record.bank_version_id)
            async with self.database.reading() as uow:
                return await uow.sessions.get(session_id), [], []
        asked = {item.step for item in taken.asked}
        return record, awaited, [(record, item) for item in awaited if item.step in asked]

    @abstractmethod
    async def _member_advanced(
        self, ranking_id: str, session_id: str, answer: ManualAnswer | None, marked: Closing | None
    ) -> tuple[SessionRecord, list[Administration], list[Awaited]]:
        """Advance the ranking of which a session is a member, as `_advanced` does a session."""

    async def _opened(self, session_id: str) -> Held[SessionRun]:
        async with self.database.reading() as uow:
            record = await uow.sessions.get(session_id)
            asked = await uow.sessions.administrations(session_id)
        version = await self._version_of(record)
        run = await open_run(self.versions, record, asked, version=version)
        return Held(record.revision, run, ITEMS_PER_RUN + version.bank.n_items)

    async def _version_of(self, record: SessionRecord) -> LoadedVersion:
        """The bank version that a session asks, with prompts and scorers as at its start."""
        held: Held[SessionRun] | None = self._runs.get(record.id)
        if held is not None:
            return held.run.version
        return await self.versions.load_as(record.bank_version_id, record.provenance["asking"])

    async def _items(self, awaited: Sequence[Awaited]) -> list[NextItem]:
        """Pending items in the form for clients, of one session or one ranking's members."""
        if not awaited:
            return []
        version = await self._version_of(awaited[0][0])
        items = await self.versions.items_at(version, [one.position for _, one in awaited])
        return [
            NextItem(
                step=one.step,
                step_token=one.step_token or "",
                item=items[one.position],
                version=version,
                record=record,
            )
            for record, one in awaited
        ]

    async def _marked(self, session_id: str, answer: ManualAnswer) -> Closing:
        """The closing of an answer whose text the item's scorer scores."""
        async with self.database.reading() as uow:
            record, awaited = await uow.sessions.with_awaited(session_id)
        version = await self._version_of(record)
        at = answer.item_among(awaited, record, version).position
        item = (await self.versions.items_at(version, [at]))[at]
        if item.content == ItemContent():
            raise InvalidInputError.of_field(
                "response", f"item {item.key!r} has no content to score it against: give a score"
            )
        # Scorers that call out have a budget, so the cost of earlier scores matters to them.
        asked: Sequence[Administration] = ()
        if record.provenance.get("scorer_endpoints"):
            async with self.database.reading() as uow:
                asked = await uow.sessions.administrations(session_id)
        text = Answer(text=answer.response or "", raw=answer.response or "")
        marker = AnswerScorer.of(record, asked, endpoints=self.endpoints, transport=self.transport)
        return await marker.close(item, text, patient=False)


def next_step(run: SessionRun, closed: dict[int, Closing], *, elapsed_s: float) -> Advance:
    """The step of a manual session that stores closings and the next items, or its end.

    The session ends when it has no more items to ask and no answer is pending.
    """
    chosen, stop = run.choose(elapsed_s=elapsed_s)
    return run.step_forward(
        closed=closed,
        asked=[replace(item, step_token=new_token()) for item in chosen],
        elapsed_s=elapsed_s,
        ending=None if stop is None or run.pending else run.ending(stop),
        status="awaiting_response",
    )


def new_token() -> str:
    """A token that names one asking of an item and cannot be guessed."""
    return secrets.token_urlsafe(16)


def _required(record: SessionRecord, awaited: list[Administration]) -> list[Administration]:
    if record.mode != "manual":
        raise InvalidStateError(
            f"Session {record.id} is live: the server asks the endpoint itself."
        )
    if record.status != "awaiting_response":
        raise InvalidStateError(f"Session {record.id} is {record.status} and waits for no answer.")
    if not awaited and record.ranking_id is not None:
        raise InvalidStateError(
            f"Session {record.id} waits for no answer now: its ranking {record.ranking_id} "
            "chooses who is asked. Fetch the ranking's next items."
        )
    if not awaited:
        raise SextantError(f"Session {record.id} waits for an answer to no item.")
    return awaited


def asked_with(token: str, record: SessionRecord, awaited: list[Administration]) -> Administration:
    """The pending item that has this token; raises `StaleStepError` if none has."""
    for item in _required(record, awaited):
        if item.step_token == token:
            return item
    steps = [str(item.step) for item in awaited]
    which = (
        f"that of step {steps[0]}, which is"
        if len(steps) == 1
        else (f"one of steps {', '.join(steps)}, which are")
    )
    raise StaleStepError(
        f"The step_token is not {which} pending: the step was answered or given back before, or "
        "never asked. Fetch the next item."
    )


def is_overdue(record: SessionRecord, item: Administration) -> bool:
    """Whether a pending item was not answered in time."""
    within = record.design.get("answer_within")
    return within is not None and (datetime.now(UTC) - item.asked_at).total_seconds() > within
