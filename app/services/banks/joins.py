"""Check that a version's parameters belong to its questions, by answers not used to make it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from app.acting import present
from app.engine.bank import FloatArray, ItemBank
from app.engine.inference.join import JoinCheck, check_join
from app.engine.models.base import BoolArray
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError
from app.records.banks import PROVISIONAL, BankVersion
from app.records.response_sets import Source, TakenTest
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService, calibration_of
from app.services.responses.service import ResponseSetService
from app.storage.database import Database

#: Number of latest sessions that are read; more add nothing new.
MAX_SESSIONS = 200
#: Sessions from which on looks may take this share of the time alone.
_MANY, _SHARE = 20, 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinLook:
    """What answers say about the join of a version's parameters to its questions.

    Attributes:
        response_set_id: Id of the set of answers; None for answers of live sessions.
    """

    version: BankVersion
    check: JoinCheck
    response_set_id: str | None = None
    n_sessions: int = 0


@dataclass(eq=False, slots=True)
class _Line:
    """Looks at the sessions of one version: one at a time."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[tuple[str, ...]] = field(default_factory=list)
    rests_until: float = 0.0


@dataclass(frozen=True, eq=False)
class JoinChecks:
    """Compares answers with the parameters of the answered version."""

    database: Database
    versions: VersionService
    response_sets: ResponseSetService
    #: Project and version -> the looks at its sessions.
    _lines: dict[tuple[str | None, str], _Line] = field(init=False, default_factory=dict)

    async def look(
        self, bank: str, version: str | None = None, response_set: str | None = None
    ) -> JoinLook:
        """Judge the join of a version.

        Raises:
            InvalidInputError: The version was calibrated from this set: these answers always fit
                its parameters.
        """
        found = await self.versions.get(bank, version)
        if response_set is None:
            return await self.of_sessions(found)
        answers = await self.response_sets.get(response_set)
        async with self.database.unit_of_work() as uow:
            record = await calibration_of(uow, found)
        if record is not None and record.response_set_id == answers.id:
            raise InvalidInputError(
                f"Version {found.number} was calibrated from response set {answers.name!r}: "
                "answers from outside the calibration are needed to tell whether its parameters "
                "belong to its questions."
            )
        loaded = await self.versions.load(found.id)
        table = await self.response_sets.matrix(answers.id)
        check = await asyncio.to_thread(join_of_table, loaded.bank, table, loaded.active)
        return JoinLook(version=found, check=check, response_set_id=answers.id)

    async def of_sessions(self, version: BankVersion, ending: Sequence[str] = ()) -> JoinLook:
        """Check by answers of the latest live sessions, without simulated examinees.

        A session and what extends it are one test, and all tests of one model are of one examinee.
        Unparseable answers tell nothing, even where they count as wrong. Sessions in `ending`
        count, though their ends are stored next: whoever reads their results must find the verdict.

        Provisional versions are not checked: their guesses were made for these very items.
        """
        source = Source(bank_id=version.bank_id, version_id=version.id)
        loaded = await self.versions.load(version.id)
        answers: dict[TakenTest, dict[int, float]] = {}
        async with self.database.unit_of_work() as uow:
            guessed = PROVISIONAL in version.knowledge
            taken = {} if guessed else await uow.collected.latest(source, MAX_SESSIONS, ending)
            if taken:
                async for session_id, position, score in uow.collected.scores(list(taken)):
                    if not loaded.is_pretest(position):
                        answers.setdefault(taken[session_id], {})[position] = score
        check = await asyncio.to_thread(_join_of_sessions, loaded, answers)
        return JoinLook(version=version, check=check, n_sessions=len(answers))

    async def renew(self, version_id: str, ending: Sequence[str] = ()) -> None:
        """Keep the verdict of live sessions, which limits the trust in results on the version.

        Sessions that end while others are looked at share the next look. A look at many sessions
        takes long and changes little: it takes `_SHARE` of the time at most.
        """
        line = self._lines.setdefault((present().project_id, version_id), _Line())
        mine = tuple(ending)
        line.waiting.append(mine)
        async with line.lock:
            if not any(one is mine for one in line.waiting):
                return  # another's look was at these, too
            taken, line.waiting = line.waiting, []
            begun = time.monotonic()
            if begun < line.rests_until:
                return
            try:
                version = await self.versions.by_id(version_id)
                look = await self.of_sessions(version, [*chain.from_iterable(taken)])
                if look.n_sessions:
                    async with self.database.reading() as uow:
                        await uow.versions.note_join(version_id, look.check.verdict)
            except BaseException:
                line.waiting += taken  # those who wait look themselves
                raise
            if look.n_sessions >= _MANY:
                ended = time.monotonic()
                line.rests_until = ended + (ended - begun) / _SHARE


def join_of_table(
    bank: ItemBank, table: ResponseTable, active: BoolArray | None = None
) -> JoinCheck:
    """Check a join by recorded answers, matched by item key."""
    columns = {key: place for place, key in enumerate(table.items)}
    scores = np.full((table.n_examinees, bank.n_items), np.nan)
    for position, key in enumerate(bank.item_ids):
        if key in columns:
            scores[:, position] = table.scores[:, columns[key]]
    return check_join(bank, scores, active)


def _join_of_sessions(
    version: LoadedVersion, tests: Mapping[TakenTest, Mapping[int, float]]
) -> JoinCheck:
    """Check a join by adaptive tests, each with the scores of its items by position."""
    scores: FloatArray = np.full((len(tests), version.bank.n_items), np.nan)
    for row, answers in enumerate(tests.values()):
        scores[row, list(answers)] = list(answers.values())
    adaptive, who = np.ones(len(tests), dtype=np.bool_), [test.model for test in tests]
    return check_join(version.bank, scores, version.active, adaptive, who)
