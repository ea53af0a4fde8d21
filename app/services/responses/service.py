"""Response sets: import recorded answers from other tools, return them as a matrix or a file."""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from app.engine.responses import ResponseTable
from app.errors import InvalidInputError, InvalidStateError, NotFoundError
from app.exchange.files import FileFormat
from app.exchange.py_irt import write_py_irt
from app.exchange.response_files import Trial, write_csv, write_long, write_parquet
from app.exchange.results.recorded import FIRST_TRIAL
from app.items import Outcome
from app.records.fields import convert
from app.records.response_sets import ImportedFile, ImportEntry, ResponseSet, StoredSheet
from app.services.responses.confined_reading import Reader
from app.services.responses.imports import (
    MAX_BYTES,
    AnswerImport,
    Change,
    Draft,
    SkippedRows,
    change_of,
)
from app.services.responses.sheets import CODE_OF, FRACTION, NOT_RUN, RIGHT, WRONG, Sheet, table_of
from app.services.waiting import again_if_taken
from app.storage.database import Database
from app.storage.identifiers import may_name, new_id
from app.storage.unit_of_work import UnitOfWork

#: Largest number of imports, and of files of each, that a set remembers.
MAX_IMPORTS = 100
MAX_FILES = 10
#: Size of a block of lines, bytes: each block is sent as one message.
_BLOCK_BYTES = 1 << 18

# Names stand in URLs, where `/` and `:` are separators.
_NAME = re.compile(r"(?!\s)[^/:\x00-\x1f\x7f\ud800-\udfff]{1,200}(?<!\s)")
_OUTCOMES = {code: outcome for outcome, code in CODE_OF.items()}
_WORDS = {WRONG: "wrong", RIGHT: "right", FRACTION: "in between"}


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """One recorded answer to an item; its score is None where its outcome has none."""

    examinee: str
    trial: int
    score: float | None
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class RecordedAnswers:
    """All recorded answers to an item: their counts, and the first answers in full.

    Attributes:
        counts: Number of answers by `right`, `wrong`, `in between` or an outcome without score.
        first: The first answers, in the order in which their examinees came into the set.
    """

    response_set: ResponseSet
    counts: Mapping[str, int]
    first: Sequence[RecordedAnswer]

    @property
    def total(self) -> int:
        """Number of answers."""
        return sum(self.counts.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerImportReport:
    """What an import did, or would do."""

    dry_run: bool
    response_set: ResponseSet
    files: Sequence[ImportedFile]
    passed_over: tuple[str, ...]
    rows_read: int
    accepted: int
    skipped: tuple[SkippedRows, ...]
    new_examinees: int
    new_items: int
    outcomes: dict[str, int]
    without_scores: tuple[str, ...]


class Trials(NamedTuple):
    """The answers of a set at one moment."""

    response_set: ResponseSet
    items: list[str]
    """Names of the items, by position in the sheets."""
    sheets: list[StoredSheet]


class MatrixFormat(FileFormat):
    """File formats of the scores of a response set."""

    CSV = "csv", "text/csv; charset=utf-8", "csv"
    LONG = "long", "text/csv; charset=utf-8", "long.csv"
    PARQUET = "parquet", "application/vnd.apache.parquet", "parquet"
    PY_IRT = "py-irt", "application/x-ndjson", "jsonl"
    JSONL = "jsonl", "application/x-ndjson", "jsonl"


@dataclass(frozen=True, eq=False)
class ResponseSetService:
    """Use cases of response sets.

    Raises:
        NotFoundError: From every method that takes a name: nothing of that name exists.
    """

    database: Database
    reader: Reader = field(default_factory=Reader)

    async def create(
        self, name: str, *, description: str = "", metadata: dict[str, str] | None = None
    ) -> ResponseSet:
        """Make an empty set.

        Raises:
            AlreadyExistsError: Its name is taken.
            InvalidInputError: A name that cannot stand in a URL.
        """
        made = new_set(name, description=description, metadata=metadata or {})
        async with self.database.unit_of_work() as uow:
            await uow.response_sets.add(made)
            return await uow.response_sets.find(made.id)

    async def get(self, response_set: str) -> ResponseSet:
        """A set by id or name."""
        async with self.database.unit_of_work() as uow:
            return await uow.response_sets.find(response_set)

    async def delete(self, response_set: str, revision: int) -> None:
        """Remove a set with all its answers.

        Raises:
            InvalidStateError: A calibration was made from it.
            PreconditionFailedError: It is not at `revision` any more.
        """
        async with self.database.unit_of_work() as uow:
            found = await uow.response_sets.find(response_set)
            user = await uow.calibrations.using(found.id)
            if user is not None:
                raise InvalidStateError(
                    f"Response set {found.name!r} is the source of calibration {user}; delete "
                    "that first."
                )
            await uow.response_sets.delete(response_set, revision)
            await uow.removals.unused(found.id, endpoints=())

    async def import_into(self, response_set: str, request: AnswerImport) -> AnswerImportReport:
        """Import answers into a set: all usable ones, or nothing.

        Answers in the set stay: another score for the same examinee, item and trial is skipped and
        reported. Only an answer without a score is replaced by a scored one.

        Raises:
            InvalidInputError: A file that cannot be read or needs a choice, or no answer in any.
        """
        await self.get(response_set)
        async with self.reader.answers(request) as draft, self.database.unit_of_work() as uow:
            found = await uow.response_sets.find(response_set, for_update=True)
            return await import_draft(uow, found, draft)

    async def import_set(
        self, name: str, request: AnswerImport, *, dry_run: bool = False
    ) -> AnswerImportReport:
        """Import into the set of that name; a missing set is created.

        Raises:
            InvalidInputError: As for `import_into`, or a name that cannot stand in a URL.
            NotFoundError: The name is the id of no set.
        """
        made = new_set(name)
        async with self.reader.answers(request) as draft:
            return await again_if_taken(lambda: self._import_named(made, draft, dry_run=dry_run))

    async def _import_named(
        self, made: ResponseSet, draft: Draft, *, dry_run: bool
    ) -> AnswerImportReport:
        async with self.database.unit_of_work() as uow:
            try:
                found = await uow.response_sets.find(made.name, for_update=True)
            except NotFoundError:
                if may_name(made.name, "rsp_"):  # an id that is gone, or another project's
                    raise
                found = made
                if not dry_run:
                    await uow.response_sets.add(made)
            return await import_draft(uow, found, draft, dry_run=dry_run)

    async def matrix(self, response_set: str) -> ResponseTable:
        """All scores of a set, the mean over repeated answers; NaN where there is no score.

        Raises:
            InvalidInputError: More cells than fit into memory.
        """
        found = await self.trials(response_set)
        return await asyncio.to_thread(table_of, found.items, found.sheets)

    async def answers_to(
        self, response_set: str, key: str, *, limit: int, skip: int = 0
    ) -> RecordedAnswers | None:
        """The answers to an item in a set; None where the set does not have the item."""
        async with self.database.reading() as uow:
            found = await uow.response_sets.find(response_set)
            counted = await uow.response_sets.codes_of(found.id, key)
            if counted is None:
                return None
            position, counts = counted
            sheets = await uow.response_sets.sheets_with(
                found.id, position, but=NOT_RUN, limit=limit, skip=skip
            )
        told = {
            _WORDS.get(code) or _OUTCOMES[code].value: n
            for code, n in sorted(counts.items())
            if code != NOT_RUN
        }
        first = await asyncio.to_thread(lambda: [_answer(sheet, position) for sheet in sheets])
        return RecordedAnswers(found, told, first)

    async def trials(self, response_set: str) -> Trials:
        """All answers of a set at one moment, with repeated answers kept apart."""
        async with self.database.snapshot() as uow:
            found = await uow.response_sets.find(response_set)
            items = await uow.response_sets.item_keys(found.id)
            sheets = [sheet async for sheet in uow.response_sets.sheets(found.id)]
        return Trials(found, items, sheets)

    async def export(
        self, response_set: str, file_format: MatrixFormat
    ) -> tuple[str, Iterator[bytes]]:
        """The name of a set, and its scores as a file, block by block.

        Answers without a score are omitted. `long` contains each repeated answer with its trial;
        other formats contain their mean.

        `csv` and `parquet` have one row per examinee, `long` one per answer; `py-irt`, also called
        `jsonl`, one line per examinee.

        Raises:
            InvalidInputError: More cells than fit into memory, or a score between 0 and 1 for
                py-irt.
        """
        found = await self.trials(response_set)
        if file_format is MatrixFormat.LONG:
            repeated = any(sheet.trial != FIRST_TRIAL for sheet in found.sheets)
            trials = (
                Trial(sheet.examinee, sheet.trial, Sheet.of_stored(sheet).scores(len(found.items)))
                for sheet in found.sheets
            )
            lines = write_long(found.items, trials, repeated=repeated)
            return found.response_set.name, _blocks(lines)
        table = await asyncio.to_thread(table_of, found.items, found.sheets)
        return found.response_set.name, await asyncio.to_thread(_written, table, file_format)


async def import_draft(
    uow: UnitOfWork, found: ResponseSet, draft: Draft, *, dry_run: bool = False
) -> AnswerImportReport:
    """Import a draft into a locked set, within the caller's transaction."""
    sets = uow.response_sets
    examinees = draft.examinees
    items = await sets.item_keys(found.id)
    positions: dict[str, int] = {}
    held: dict[tuple[str, int], StoredSheet] = {}
    if found.n_sheets:
        positions = await sets.examinee_positions(found.id, examinees)
        n_bytes = 0
        async for sheet in sets.sheets(found.id, list(positions)):
            held[sheet.examinee, sheet.trial] = sheet
            n_bytes += len(sheet.codes) + len(sheet.fractions or b"")
            if n_bytes > MAX_BYTES:
                raise InvalidInputError(
                    f"{found.name!r} has more than {MAX_BYTES / 2**20:.0f} MB of answers of these "
                    "examinees: import fewer examinees at a time, or into another set."
                )
    change = await asyncio.to_thread(change_of, draft, items, held)
    n_known = len(positions)
    for sheet in change.new_sheets:
        positions.setdefault(sheet.examinee, found.n_examinees + len(positions) - n_known)
    n_new = len(positions) - n_known
    changed = _after(found, change, n_new, draft)
    if not dry_run:
        changed = await sets.extend(
            changed,
            items=dict(enumerate(change.new_items, start=len(items))),
            added=[(positions[sheet.examinee], sheet) for sheet in change.new_sheets],
            changed=change.changed_sheets,
        )
    return convert(
        AnswerImportReport,
        change,
        dry_run=dry_run,
        response_set=changed,
        files=draft.files,
        passed_over=tuple(draft.passed_over),
        rows_read=draft.rows_read,
        new_examinees=n_new,
        new_items=len(change.new_items),
        outcomes=dict(change.outcomes),
    )


def _after(found: ResponseSet, change: Change, n_new: int, draft: Draft) -> ResponseSet:
    outcomes = Counter(found.outcomes)
    outcomes.update(change.outcomes)
    entry: ImportEntry = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "files": draft.files[:MAX_FILES],
        "n_files": len(draft.files),
        "choices": {
            f.name: getattr(draft.choices, f.name)
            for f in fields(draft.choices)
            if getattr(draft.choices, f.name) != f.default
        },
        "rows_read": draft.rows_read,
        "accepted": change.accepted,
        "skipped": {skipped.reason: skipped.count for skipped in change.skipped},
    }
    return replace(
        found,
        n_examinees=found.n_examinees + n_new,
        n_items=found.n_items + len(change.new_items),
        n_sheets=found.n_sheets + len(change.new_sheets),
        outcomes=dict(outcomes),
        imports=[*found.imports, entry][-MAX_IMPORTS:],
    )


def new_set(name: str, **values: Any) -> ResponseSet:
    """A set that is not stored yet.

    Raises:
        InvalidInputError: A name that cannot stand in a URL.
    """
    if _NAME.fullmatch(name) is None:
        raise InvalidInputError(
            "Expected a name of 1 to 200 characters, without / : and control characters and with "
            f"no space at either end, got {name!r:.80}."
        )
    now = datetime.now(UTC)
    return ResponseSet(
        id=new_id("rsp"), name=name, revision=1, created_at=now, updated_at=now, **values
    )


def _answer(stored: StoredSheet, position: int) -> RecordedAnswer:
    score = Sheet.of_stored(stored).score(position)
    outcome = _OUTCOMES.get(stored.codes[position], Outcome.SCORED)
    return RecordedAnswer(stored.examinee, stored.trial, score, outcome)


def _written(table: ResponseTable, file_format: MatrixFormat) -> Iterator[bytes]:
    if file_format is MatrixFormat.PARQUET:
        return iter([write_parquet(table)])
    return _blocks(write_csv(table) if file_format is MatrixFormat.CSV else write_py_irt(table))


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)
