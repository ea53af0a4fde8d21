"""Manual sessions: the client asks for the next item and answers it (ask and tell)."""

import secrets
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cachetools import LRUCache

from app.adapters.transport import Transport
from app.errors import (
    AlreadyExistsError,
    InvalidInputError,
    InvalidStateError,
    LeaseLostError,
    SextantError,
    StaleStepError,
)
from app.items import Answer, ItemContent, Outcome
from app.records.sessions import Administration, Closing, SessionRecord
from app.services.banks.loaded import BankItem, LoadedVersion
from app.services.banks.spec import calls_out
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.marking.answer_scorer import AnswerScorer
from app.services.sessions.run import SessionRun, open_run
from app.storage.database import Database
from app.storage.unit_of_work import UnitOfWork

#: Runs kept between answers are on banks of so many items together, as the versions kept in memory
#: may have: each keeps its own version there. What is left of a run counts as so many items.
_KEPT_ITEMS = 1_000_000
_ITEMS_PER_RUN = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NextItem:
    """The item that a manual session waits for, and the session."""

    step: int
    step_token: str
    asked_at: datetime
    item: BankItem
    version: LoadedVersion
    record: SessionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class ManualAnswer:
    """What a client says about an item: its text, a score, or an outcome; exactly one of them."""

    step_token: str
    item_id: str | None = None
    response: str | None = None
    score: float | None = None
    outcome: Outcome | None = None


class ManualSessions:
    """Answering by hand.

    Runs are kept from answer to answer, each under the token of the step that it waits for. Tokens
    are drawn at random for each step, so a run whose token is stored is as stored, whoever else
    answers the session's steps; any other is opened from the stored answers.

    Args:
        database: Where sessions are stored.
        versions: What is asked.
        endpoints: Of scorers that call out.
        transport: The client that calls them.
    """

    def __init__(
        self,
        *,
        database: Database,
        versions: VersionService,
        endpoints: EndpointService,
        transport: Transport,
    ) -> None:
        self._database = database
        self._versions = versions
        self._endpoints = endpoints
        self._transport = transport
        self._runs: LRUCache[str, SessionRun] = LRUCache(_KEPT_ITEMS, getsizeof=_size)

    async def next_item(self, session_id: str) -> NextItem:
        """The item that a manual session waits for.

        Raises:
            InvalidStateError: It is not a manual session that waits for an answer.
        """
        async with self._database.reading() as uow:
            record, item = await uow.sessions.with_awaited(session_id)
        awaited = _awaited(record, item)
        version = await self._versions.load_as(record.bank_version_id, record.provenance["asking"])
        items = await self._versions.items_at(version, [awaited.position])
        return NextItem(
            step=awaited.step,
            step_token=awaited.step_token or "",
            asked_at=awaited.asked_at,
            item=items[awaited.position],
            version=version,
            record=record,
        )

    async def answer(self, session_id: str, answer: ManualAnswer) -> SessionRecord:
        """Take one answer of a manual session and choose the next item, or end it.

        Raises:
            InvalidInputError: Not exactly one of response, score and outcome; or another item.
            InvalidStateError: The session does not wait for an answer.
            StaleStepError: The step was answered before, or the token is not its own.
        """
        expected = await self._expected(session_id, answer)
        record, step = expected.record, expected.step
        closing = await self._closing(expected, answer)
        # Taken out: nobody else goes on with it, and nobody at all if the step is not stored.
        run = self._runs.pop(expected.step_token, None) or await self._opened(expected)
        if step not in run.pending:
            raise _stale((await self.next_item(session_id)).step)
        closed = {step: run.close(step, closing)}
        waited_s = max(0.0, (datetime.now(UTC) - expected.asked_at).total_seconds())
        try:
            async with self._database.unit_of_work() as uow:
                elapsed_s, epoch = record.active_s + waited_s, record.lease_epoch
                token = await ask_next(uow, session_id, epoch, run, closed, elapsed_s=elapsed_s)
                answered = await uow.sessions.get(session_id)
        except (AlreadyExistsError, LeaseLostError, StaleStepError):
            # Somebody was quicker: answered the same step, or ended the session.
            raise _stale((await self.next_item(session_id)).step) from None
        if token is not None and _size(run) <= _KEPT_ITEMS:
            run.forget_figures()
            self._runs[token] = run
        return answered

    async def _opened(self, expected: NextItem) -> SessionRun:
        asked = await self._asked(expected.record)
        return await open_run(self._versions, expected.record, asked, version=expected.version)

    async def _asked(self, record: SessionRecord) -> list[Administration]:
        async with self._database.reading() as uow:
            return await uow.sessions.administrations(record.id)

    async def _expected(self, session_id: str, answer: ManualAnswer) -> NextItem:
        """The awaited item, if the answer's token and key are those of it."""
        expected = await self.next_item(session_id)
        if expected.step_token != answer.step_token:
            raise _stale(expected.step)
        if answer.item_id is not None and answer.item_id != expected.item.key:
            raise InvalidInputError(
                f"Step {expected.step} asked item {expected.item.key!r}, the answer is for "
                f"{answer.item_id!r}."
            )
        return expected

    async def _closing(self, expected: NextItem, answer: ManualAnswer) -> Closing:
        given = [answer.response is not None, answer.score is not None, answer.outcome is not None]
        if sum(given) != 1:
            raise InvalidInputError(
                f"Give exactly one of response, score and outcome; got {sum(given)} of them."
            )
        if answer.score is not None:
            if not 0 <= answer.score <= 1:
                raise InvalidInputError(f"A score lies in [0, 1], got {answer.score!r}.")
            return Closing(outcome=Outcome.SCORED.value, score=answer.score)
        if answer.outcome is not None:
            if answer.outcome is Outcome.SCORED:
                raise InvalidInputError("outcome 'scored' needs a score: give the score instead.")
            wrong = answer.outcome is Outcome.UNPARSED and self._unparsed_is_wrong(expected)
            return Closing(
                outcome=answer.outcome.value,
                score=0.0 if wrong else None,
                reason="Reported by the client.",
            )
        if expected.item.content == ItemContent():
            raise InvalidInputError(
                f"Item {expected.item.key!r} has no content to score a response against: give a "
                "score."
            )
        # What earlier marks took matters to scorers that pay for their calls.
        pays = calls_out(expected.item.scorer)
        asked = await self._asked(expected.record) if pays else ()
        text = Answer(text=answer.response or "", raw=answer.response or "")
        marker = AnswerScorer.of(
            expected.record, asked, endpoints=self._endpoints, transport=self._transport
        )
        return await marker.close(
            expected.item,
            text,
            unparsed_is_wrong=self._unparsed_is_wrong(expected),
            patient=False,
        )

    @staticmethod
    def _unparsed_is_wrong(expected: NextItem) -> bool:
        return expected.version.unparsed_policy == "wrong"


async def ask_next(
    uow: UnitOfWork,
    session_id: str,
    epoch: int,
    run: SessionRun,
    closed: dict[int, Closing],
    *,
    elapsed_s: float,
) -> str | None:
    """Choose a manual session's next item and store it with what was closed, or end the session.

    Returns:
        The token of the step that it waits for; None where it has ended.
    """
    chosen, stop = run.choose(elapsed_s=elapsed_s)
    step = run.step_forward(
        closed=closed,
        asked=[replace(item, step_token=secrets.token_urlsafe(16)) for item in chosen],
        elapsed_s=elapsed_s,
        ending=None if stop is None else run.ending(stop),
        status="awaiting_response",
    )
    await uow.sessions.advance({session_id: step}, epoch)
    return step.asked[0].step_token if step.asked else None


def _size(run: SessionRun) -> int:
    return _ITEMS_PER_RUN + run.version.bank.n_items


def _awaited(record: SessionRecord, awaited: Administration | None) -> Administration:
    if record.mode != "manual":
        raise InvalidStateError(
            f"Session {record.id} is live: the server asks the endpoint itself."
        )
    if record.status != "awaiting_response":
        raise InvalidStateError(f"Session {record.id} is {record.status} and waits for no answer.")
    if awaited is None:
        raise SextantError(f"Session {record.id} waits for an answer to no item.")
    return awaited


def _stale(step: int) -> StaleStepError:
    return StaleStepError(
        f"The step_token is not that of step {step}, which is awaited: the step was "
        "answered before, or never asked. Fetch the next item."
    )
