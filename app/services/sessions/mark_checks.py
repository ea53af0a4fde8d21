"""Stored answers marked again as their session's provenance says: are the stored marks those?"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from app import scorers
from app.adapters.transport import Transport
from app.errors import SextantError
from app.items import Answer, FinishReason, ItemContent, Outcome, ScorerSpec
from app.records.sessions import Administration, Closing, SessionRecord
from app.scorers.calling import CallingScorer
from app.services.banks.loaded import BankItem
from app.services.banks.versions import VersionService
from app.services.endpoints.service import EndpointService
from app.services.marking.long_texts import is_cut
from app.services.marking.marker import AnswerMarker, hash_of
from app.services.sessions.repeats import is_repeated
from app.services.sessions.rescoring import RESCORE
from app.storage.database import Database

#: Marks are numbers of one computation, made twice.
_SAME = 1e-9

#: Why an answer was not marked again: no text is stored, its scorer calls out, nobody knows the
#: item's content, marking failed, then or now, or the mark is the mean of several answers'.
NO_ANSWER, CALLS_OUT, NO_CONTENT, NOT_MARKED = "no_answer", "calls_out", "no_content", "not_marked"
REPEATED = "repeated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """An answer whose stored mark is not what provenance says.

    Attributes:
        expected_hash: Of the scorer that provenance names.
        again: The mark by that scorer; None where it was not asked again, for it calls out, and
            the hash alone tells.
    """

    step: int
    item_key: str
    stored: Closing
    expected_hash: str
    again: Closing | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkCheck:
    """What came of one session.

    Attributes:
        answers: Closed items.
        checked: Those that were marked again, or whose stored hash tells already.
        left_out: Reason to number of the others.
    """

    session: SessionRecord
    answers: int
    checked: int
    left_out: Mapping[str, int]
    differences: Sequence[Difference]


@dataclass(frozen=True, slots=True)
class _Source:
    """Where an answer was marked: its item as that session was to mark it, and that session."""

    item: BankItem
    session: SessionRecord
    unparsed_is_wrong: bool


class MarkChecks:
    """Marks stored answers again and changes nothing.

    Args:
        database: Where sessions are.
        versions: What was asked.
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

    async def of(self, session_id: str, *, call: bool = False) -> MarkCheck:
        """Check one session, in any state.

        Args:
            session_id: Its id.
            call: Ask scorers that call out again, which costs and may tell another mark.

        Raises:
            NotFoundError: No such session.
        """
        async with self._database.reading() as uow:
            record = await uow.sessions.get(session_id)
        closed = [item for item in await self._stored(record) if item.closing is not None]
        sources = await self._sources(record, closed)
        left_out: Counter[str] = Counter()
        differences = []
        for item in closed:
            found = await self._check(item, sources[item.position], call=call)
            if isinstance(found, str):
                left_out[found] += 1
            elif found is not None:
                differences.append(found)
        return MarkCheck(
            session=record,
            answers=len(closed),
            checked=len(closed) - left_out.total(),
            left_out=left_out,
            differences=differences,
        )

    async def _check(
        self, item: Administration, source: _Source, *, call: bool
    ) -> Difference | str | None:
        """What is wrong with one answer's mark, why it cannot be told, or None: it is right."""
        stored = item.closing
        if stored is None or stored.answer_text is None:
            return NO_ANSWER
        if is_cut(stored.answer_text) or is_cut(stored.raw_text):
            return NO_ANSWER
        if is_repeated(stored):
            return REPEATED
        if source.item.content == ItemContent():
            return NO_CONTENT
        expected = hash_of(source.item.scorer)
        by_another = stored.scorer_hash is not None and stored.scorer_hash != expected
        difference = Difference(
            step=item.step,
            item_key=source.item.key,
            stored=stored,
            expected_hash=expected,
            again=None,
        )
        try:
            calls_out = isinstance(scorers.build(source.item.scorer), CallingScorer)
            again = None if calls_out and not call else await self._again(source, stored)
        except SextantError:  # a scorer that is not installed any more, an endpoint that is gone
            return difference if by_another else NOT_MARKED
        if again is None:
            return difference if by_another else CALLS_OUT
        if Outcome.ERROR in (stored.outcome, again.outcome):
            return difference if by_another else NOT_MARKED
        if by_another or not _same(stored, again):
            return replace(difference, again=again)
        return None

    async def _again(self, source: _Source, stored: Closing) -> Closing:
        answer = Answer(
            text=stored.answer_text or "",
            raw=stored.raw_text or stored.answer_text or "",
            reasoning=stored.reasoning,
            finish=FinishReason(stored.finish_reason or FinishReason.STOP),
        )
        marker = AnswerMarker.of(
            source.session, endpoints=self._endpoints, transport=self._transport
        )
        return await marker.close(source.item, answer, unparsed_is_wrong=source.unparsed_is_wrong)

    async def _sources(
        self, record: SessionRecord, closed: Sequence[Administration]
    ) -> dict[int, _Source]:
        """Where each answer was marked, by position: some were taken over from another session."""
        version = await self._versions.load_as(record.bank_version_id, record.provenance["asking"])
        taken: dict[int, _Source] = {}
        if record.parent_id is not None and record.relation in ("replay", "extend"):
            taken = await self._taken_over(record.parent_id, closed, version.key_at)
        own = [item.position for item in closed if item.position not in taken]
        rescored = record.provenance["rescored_with"] if record.relation == RESCORE else None
        sources = {}
        for position, item in (await self._versions.items_at(version, own)).items():
            marked = replace(item, scorer=ScorerSpec(**rescored)) if rescored else item
            sources[position] = _Source(marked, record, version.unparsed_policy == "wrong")
        return {**sources, **taken}

    async def _taken_over(
        self, parent_id: str, closed: Sequence[Administration], key_at: Callable[[int], str]
    ) -> dict[int, _Source]:
        """Sources of the answers that a session shares with the one that it was made from."""
        async with self._database.reading() as uow:
            parent = await uow.sessions.get(parent_id)
        theirs = [item for item in await self._stored(parent) if item.closing is not None]
        sources = await self._sources(parent, theirs)
        version = await self._versions.load(parent.bank_version_id)
        # What was asked again was answered at another time.
        by_key = {version.key_at(item.position): item for item in theirs}
        return {
            item.position: sources[old.position]
            for item in closed
            if (old := by_key.get(key_at(item.position))) is not None
            and old.answered_at == item.answered_at
        }

    async def _stored(self, record: SessionRecord) -> list[Administration]:
        async with self._database.reading() as uow:
            return await uow.sessions.administrations(record.id)


def _same(one: Closing, other: Closing) -> bool:
    if one.outcome != other.outcome or (one.score is None) != (other.score is None):
        return False
    return one.score is None or math.isclose(
        one.score, other.score or 0.0, rel_tol=0.0, abs_tol=_SAME
    )
