"""Scores answers: those of a session in the form that is stored, and trials outside sessions."""

import asyncio
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import structlog

from app import scorers
from app.adapters.transport import Transport
from app.errors import BusyError
from app.fair_semaphore import FairSemaphore
from app.items import Answer, ItemContent, Outcome, ScorerSpec, sha256_of
from app.records.figures import Marking
from app.records.sessions import Administration, Closing, SessionRecord
from app.scorers.base import Mark, NotScored, Scored
from app.scorers.calling import CallingScorer
from app.services.banks.loaded import BankItem
from app.services.endpoints.calls import Cached, RateLimited
from app.services.endpoints.scorer_calls import ScorerCalls
from app.services.endpoints.service import EndpointService
from app.services.endpoints.specs import described, scorer_endpoints
from app.services.waiting import OnWait
from app.storage.database import Database

logger = structlog.get_logger(__name__)

#: Pauses before scoring is tried again while the server has too much to score, seconds.
_BUSY_PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0)
#: Most characters of a stored text; useful answers are far shorter.
MAX_CHARS: Final = 256 * 1024
_END: Final = MAX_CHARS // 2
_CUT = re.compile(r"\n\[\.\.\. [0-9]+ characters left out; SHA-256 of the whole: [0-9a-f]{64}\]\n")


@dataclass(frozen=True, eq=False)
class AnswerScorer:
    """Scores the answers of one session, or one answer of a trial.

    Attributes:
        unparsed_is_wrong: Whether unparseable answers count as wrong: their outcome stays
            `unparsed`, and their score of 0 enters the likelihood.
    """

    calls: ScorerCalls
    unparsed_is_wrong: bool

    @classmethod
    def of(
        cls,
        session: SessionRecord,
        asked: Sequence[Administration] = (),
        *,
        endpoints: EndpointService,
        transport: Transport,
        keeping: Callable[[RateLimited], Cached] | None = None,
    ) -> "AnswerScorer":
        """The scorer of a session's answers."""
        calls = ScorerCalls(
            endpoints=endpoints,
            transport=transport,
            resolved=session.provenance.get("scorer_endpoints", {}),
            seed=session.seed,
            stored=[
                *(item.closing.marking for item in asked if item.closing),
                *(effort.get("marking") for effort in session.provenance.get("dropped", ())),
            ],
            keeping=keeping,
        )
        return cls(calls, session.provenance["asking"]["unparsed_policy"] == "wrong")

    @classmethod
    async def of_trial(
        cls,
        spec: ScorerSpec,
        database: Database,
        endpoints: EndpointService,
        transport: Transport,
        *,
        unparsed_is_wrong: bool = False,
    ) -> "AnswerScorer":
        """The scorer of one answer that belongs to no session.

        Raises:
            InvalidInputError: The endpoint that the scorer calls cannot serve.
        """
        async with database.reading() as uow:
            found = await scorer_endpoints(uow, [spec])
        calls = ScorerCalls(endpoints=endpoints, transport=transport, resolved=described(found))
        return cls(calls, unparsed_is_wrong)

    async def close(
        self,
        item: BankItem,
        answer: Answer,
        *,
        on_wait: OnWait | None = None,
        repeat: int = 0,
        patient: bool = True,
    ) -> Closing:
        """The closing for a received answer, scored or not; the examinee's usage is left out.

        `on_wait` is called for each wait for a scorer's endpoint. `repeat` is the number of this
        answer among those to the same item. A `patient` caller waits while the server is busy, and
        at last gets no score.

        Raises:
            BusyError: Too many answers are being scored, and `patient` is false.
            SecretsError: The key of a scorer's endpoint cannot be decrypted, and `on_wait` is
                None.
        """
        scorer_hash = sha256_of([item.scorer.name, dict(item.scorer.params)])
        marked = self._mark_patiently if patient else self._mark
        mark, marking = await marked(item, answer, scorer_hash, on_wait, repeat)
        closing = Closing(
            outcome=Outcome.SCORED.value,
            scorer_hash=scorer_hash,
            marking=_clean(marking),
            answer_text=cut(_clean(answer.text)),
            raw_text=cut(_clean(answer.raw)) if answer.raw != answer.text else None,
            reasoning=cut(_clean(answer.reasoning)),
            finish_reason=answer.finish.value,
        )
        if isinstance(mark, Scored):
            extracted = _clean(mark.extracted)
            return replace(closing, score=mark.score, extracted=extracted, extractor=mark.extractor)
        return replace(
            closing,
            outcome=mark.outcome.value,
            score=0.0 if mark.outcome is Outcome.UNPARSED and self.unparsed_is_wrong else None,
            reason=_clean(mark.reason),
            error_code=mark.code,
        )

    async def _mark_patiently(
        self, item: BankItem, answer: Answer, scorer_hash: str, on_wait: OnWait | None, repeat: int
    ) -> tuple[Mark, Marking | None]:
        pauses = iter(_BUSY_PAUSES_S)
        while True:
            try:
                return await self._mark(item, answer, scorer_hash, on_wait, repeat)
            except BusyError as error:
                if (pause_s := next(pauses, None)) is None:
                    reason = f"{error.detail} Rescore the session."
                    busy = NotScored(outcome=Outcome.ERROR, reason=reason, code="scorer_busy")
                    return busy, None
            logger.warning("marking_waits", retry_in_s=pause_s)
            await asyncio.sleep(pause_s)

    async def _mark(
        self, item: BankItem, answer: Answer, scorer_hash: str, on_wait: OnWait | None, repeat: int
    ) -> tuple[Mark, Marking | None]:
        """The score of an answer, with evidence and usage where its scorer called endpoints."""
        scorer = scorers.build(item.scorer)
        if not isinstance(scorer, CallingScorer):
            return await scorers.mark(scorer, item.content, answer), None
        tools = self.calls.for_answer(item.scorer.name, scorer_hash, scorer.budget, on_wait, repeat)
        mark = await scorers.mark(scorer, item.content, answer, tools)
        if not (tools.spent.calls or tools.saved.calls) and mark.evidence is None:
            return mark, None  # scored without a call
        marking = {
            "scorer": item.scorer.name,
            "version": scorer.version,
            "spec_hash": scorer_hash,
            **(mark.evidence or {}),
            "usage": tools.spent.figures(),
            **({"at_most": tools.at_most.figures()} if tools.at_most != tools.spent else {}),
            **({"cached": tools.saved.figures()} if tools.saved.calls else {}),
        }
        return mark, cast(Marking, marking)


def cut(text: str | None) -> str | None:
    """The stored form of a text; of a long one, both ends and a SHA-256 of the whole."""
    if text is None or len(text) <= MAX_CHARS:
        return text
    digest = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    n_lost = len(text) - 2 * _END
    note = f"\n[... {n_lost} characters left out; SHA-256 of the whole: {digest}]\n"
    return text[:_END] + note + text[-_END:]


def is_cut(text: str | None) -> bool:
    """Whether a stored text was cut, so that the answer cannot be scored again."""
    return text is not None and len(text) > MAX_CHARS and _CUT.match(text, _END) is not None


def _clean(value: Any) -> Any:
    """JSON value without what Postgres cannot store: NUL, and halves of surrogate pairs."""
    match value:
        case str():
            return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")
        case list() | tuple():
            return [_clean(entry) for entry in value]
        case dict():
            return {_clean(key): _clean(entry) for key, entry in value.items()}
        case _:
            return value


#: Most trials that may wait.
_WAITING = 4


@dataclass(frozen=True, eq=False)
class ScorerTrials:
    """Runs trials of scorers."""

    database: Database
    endpoints: EndpointService
    transport: Transport
    # A person waits for each trial, so the line is short and later ones are refused at once.
    _turns: FairSemaphore = field(
        init=False, default_factory=lambda: FairSemaphore(2, _WAITING, spare=2)
    )

    async def mark(self, spec: ScorerSpec, content: ItemContent, answer: Answer) -> Closing:
        """Score one answer; a scorer that calls endpoints calls them.

        Raises:
            InvalidInputError: The scorer or its endpoint cannot be used.
            BusyError: Too many trials are in progress.
        """
        async with self._turns.turn():
            await scorers.check(spec)
            marker = await AnswerScorer.of_trial(
                spec, self.database, self.endpoints, self.transport
            )
            item = BankItem(position=0, id="", key="", content=content, scorer=spec)
            return await marker.close(item, answer, patient=False)
