"""Read uploaded files in a child process; see `app.sandbox.pool`.

Files on the disk belong to the operator and are read in this process; only uploads are confined. A
small file is first tried with little memory, so that it does not wait for a large one.
"""

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, BinaryIO, TypeVar

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.errors import FieldProblem, InvalidInputError, LimitExceededError
from app.exchange.bank_files import slopes_by_name
from app.exchange.files import PACKED
from app.exchange.item_record import ItemRecord
from app.exchange.items import FieldMap, ItemRow, read_items, scan_lines
from app.exchange.parameters import bank_of_slopes, read_parameters
from app.exchange.response_files import ResponseFormat
from app.exchange.results.found import Found
from app.exchange.results.recorded import Choices, SourceFile
from app.sandbox.pool import SMALL_MEMORY, Limits, Work, sandbox
from app.services.responses.imports import (
    MAX_BYTES,
    AnswerImport,
    Draft,
    ResultsImport,
    read_draft,
    read_results,
)
from app.services.responses.sheets import FRACTION_BYTES, Sheet

R = TypeVar("R", bound=AnswerImport)

#: Memory limit in bytes for reading an upload, beyond the memory that any process takes.
DEFAULT_MEMORY = 640 * 2**20
_SECONDS = 300.0
_SMALL = Limits(memory=SMALL_MEMORY, seconds=20.0, output=64 * 2**20)
#: Largest size of a small file, bytes.
_SMALL_FILE = 256 * 1024
_ADVICE = "send it in parts, if it is the right file"
#: Largest number of items or parameters in one import, as for a version sent in a request body.
MAX_ITEMS = 200_000
#: Number of names in one line of a child's output.
_NAMES = 1000
#: Largest number of faults reported for one line.
_MAX_LINE_PROBLEMS = 20
#: What a draft tells of the files, which travels as it is.
_TOLD = ("files", "passed_over", "rows_read", "accepted")


@dataclass(frozen=True, slots=True)
class SentFile:
    """An uploaded file."""

    name: str
    content: bytes

    @property
    def is_packed(self) -> bool:
        """Whether its contents may be far larger than the file, as with gzip, ZIP and Parquet."""
        return self.content.startswith(PACKED)


class Reader:
    """Reads uploaded files."""

    def __init__(self, memory: int = DEFAULT_MEMORY) -> None:
        self._large = Limits(memory=memory, seconds=_SECONDS, output=MAX_BYTES + 2**26)

    @asynccontextmanager
    async def answers(self, request: AnswerImport) -> AsyncIterator[Draft]:
        """The answers of an import; no other large import is read until the block ends.

        Raises:
            BusyError: Too many imports are waiting.
            InvalidInputError: As for `read_draft`, or the import exceeds a limit.
        """
        if not _is_sent(request):
            yield await asyncio.to_thread(read_draft, request)
            return
        async with self._read(read_sent_answers, request) as (value, output):
            yield await asyncio.to_thread(_draft, request.choices, value, output)

    @asynccontextmanager
    async def results(self, request: ResultsImport) -> AsyncIterator[tuple[Draft, Found]]:
        """The answers of an import together with their questions; has its turn as `answers`.

        Raises:
            BusyError: Too many imports are waiting.
            InvalidInputError: As for `read_results`, or the import exceeds a limit.
        """
        if not _is_sent(request):
            yield await asyncio.to_thread(read_results, request)
            return
        async with self._read(read_sent_results, request) as (value, output):
            found = await asyncio.to_thread(Found.from_dict, value["found"])
            yield await asyncio.to_thread(_draft, request.choices, value, output), found

    async def items(self, file: SentFile, mapping: FieldMap | None = None) -> list[ItemRecord]:
        """The items of a file, read by `read_items`."""
        argument = {"name": file.name, "mapping": None if mapping is None else asdict(mapping)}
        async with self._made(read_sent_items, argument, [file.content], file.name) as (_, output):
            rows = await asyncio.to_thread(lambda: list(_rows(output)))
        return [row.record for row in rows if row.record is not None]

    async def item_lines(self, content: bytes, limit: int) -> list[ItemRow]:
        """The first `limit` rows of JSON lines, valid and faulty ones, read by `scan_lines`."""
        async with self._made(scan_sent_lines, limit, [content], "The body") as (_, output):
            return await asyncio.to_thread(lambda: list(_rows(output)))

    async def parameters(self, file: SentFile) -> ItemBank:
        """The items of a parameter file, read by `read_parameters`."""
        async with self._made(read_sent_parameters, file.name, [file.content], file.name) as (
            value,
            output,
        ):
            return await asyncio.to_thread(_bank, value, output)

    def _read(
        self, work: Work, request: AnswerImport
    ) -> AbstractAsyncContextManager[tuple[Any, BinaryIO]]:
        sent = [file.content for file in request.files if isinstance(file.content, bytes)]
        first, *more = (file.name for file in request.files)
        subject = f"The import of {first} and {len(more)} more" if more else first
        return self._made(work, _to_json(request), sent, subject)

    @asynccontextmanager
    async def _made(
        self, work: Work, argument: object, sent: Sequence[bytes], subject: str
    ) -> AsyncIterator[tuple[Any, BinaryIO]]:
        def within(limits: Limits) -> AbstractAsyncContextManager[tuple[Any, BinaryIO]]:
            return sandbox().made(
                work, argument, sent, limits=limits, subject=subject, advice=_ADVICE
            )

        async with AsyncExitStack() as stack:
            made = None
            if sum(map(len, sent)) <= _SMALL_FILE:
                with suppress(LimitExceededError):
                    made = await stack.enter_async_context(within(_SMALL))
            if made is None:
                made = await stack.enter_async_context(within(self._large))
            yield made


def _is_sent(request: AnswerImport) -> bool:
    return all(isinstance(file.content, bytes) for file in request.files)


# The functions from here to the next such line run in the child process.


def read_sent_answers(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Read an import of answers: write its sheets one after the other, and return the rest."""
    return _written(read_draft(_request(AnswerImport, argument, attachments)), output)


def read_sent_results(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Read an import of answers with their questions, in the same form."""
    draft, found = read_results(_request(ResultsImport, argument, attachments))
    return {**_written(draft, output), "found": found.to_dict()}


def _written(draft: Draft, output: BinaryIO) -> dict[str, Any]:
    sheets = []
    for (examinee, trial), sheet in draft.sheets.items():
        output.write(sheet.codes)
        if sheet.fractions is not None:
            output.write(sheet.fractions)
        sheets.append((examinee, trial, len(sheet.codes), sheet.fractions is not None))
    return {
        "columns": list(draft.columns),
        "sheets": sheets,
        "asked": draft.choices.asked,
        "told": {name: getattr(draft, name) for name in _TOLD},
        "counts": draft.skips.counts,
        "places": draft.skips.places,
    }


def _request(kind: type[R], argument: Any, attachments: Sequence[bytes]) -> R:
    choices = argument["choices"]
    lists = ("filters", "metrics", "scorers", "tasks", "score_range")
    return kind(
        files=[
            SourceFile(PurePosixPath(path), folder, content, asked_for)
            for (path, folder, asked_for), content in zip(
                argument["files"], attachments, strict=True
            )
        ],
        file_format=argument["format"] and ResponseFormat(argument["format"]),
        choices=Choices(**choices | {name: tuple(choices[name]) for name in lists}),
        **argument["questions"],
    )


def read_sent_items(argument: Any, attachments: Sequence[bytes], output: BinaryIO) -> None:
    """Read an item file, or another file whose fields are mapped."""
    name, mapping = argument["name"], argument["mapping"]
    by = None if mapping is None else FieldMap(**mapping)
    records = read_items(attachments[0], name=name, mapping=by)
    _refuse_too_many(name, len(records))
    for record in records:
        _write_row(ItemRow(record.row, record), output)


def scan_sent_lines(limit: int, attachments: Sequence[bytes], output: BinaryIO) -> None:
    """Read some lines of items."""
    for row in islice(scan_lines(attachments[0], "body"), limit):
        _write_row(row, output)


def read_sent_parameters(name: str, attachments: Sequence[bytes], output: BinaryIO) -> Any:
    """Read a parameter file: write its columns one after the other, then the names."""
    bank = read_parameters(attachments[0], name=name)
    _refuse_too_many(name, bank.n_items)
    slopes = {} if bank.abilities is None else slopes_by_name(bank)
    columns = bank.columns
    for values in (*columns.values(), *slopes.values()):
        output.write(np.ascontiguousarray(values, dtype=np.float64).tobytes())
    for start in range(0, bank.n_items, _NAMES):
        output.write(json.dumps(bank.item_ids[start : start + _NAMES]).encode() + b"\n")
    return {"n_items": bank.n_items, "columns": list(columns), "slopes": list(slopes)}


def _refuse_too_many(name: str, n_items: int) -> None:
    if n_items > MAX_ITEMS:
        raise InvalidInputError(
            f"{name} has {n_items} items: expected at most {MAX_ITEMS} in one import."
        )


def _write_row(row: ItemRow, output: BinaryIO) -> None:
    record = None if row.record is None else asdict(row.record)
    problems = [(p.pointer, p.detail) for p in row.problems[:_MAX_LINE_PROBLEMS]]
    output.write(json.dumps([row.row, record, problems]).encode() + b"\n")


# The functions from here on run in the server's process and read a child's output.


def _to_json(request: AnswerImport) -> dict[str, Any]:
    return {
        "files": [(str(f.path), f.folder, f.asked_for) for f in request.files],
        "format": request.file_format,
        "choices": asdict(request.choices),
        "questions": {
            name: getattr(request, name)
            for name in ("target_after", "prompts_of", "numbered")
            if hasattr(request, name)
        },
    }


def _draft(choices: Choices, value: Any, output: BinaryIO) -> Draft:
    draft = Draft(replace(choices, asked=value["asked"]), **value["told"])
    draft.columns = {item: column for column, item in enumerate(value["columns"])}
    for examinee, trial, n_codes, has_fractions in value["sheets"]:
        sheet = Sheet(bytearray(output.read(n_codes)))
        if has_fractions:
            sheet.fractions = array("d", output.read(FRACTION_BYTES * n_codes))
        draft.sheets[examinee, trial] = sheet
    draft.skips.counts.update(value["counts"])
    draft.skips.places.update(value["places"])
    return draft


def _rows(output: BinaryIO) -> Iterator[ItemRow]:
    from pydantic import TypeAdapter  # not needed in children, so imported only here

    records = TypeAdapter[ItemRecord | None](ItemRecord | None)
    for line in output:
        row, record, problems = json.loads(line)
        faults = tuple(FieldProblem(*problem) for problem in problems)
        yield ItemRow(row, records.validate_python(record), faults)


def _bank(value: Any, output: BinaryIO) -> ItemBank:
    def column() -> FloatArray:
        return np.frombuffer(output.read(FRACTION_BYTES * value["n_items"]), dtype=np.float64)

    columns: dict[str, Any] = {name: column() for name in value["columns"]}
    slopes = {name: column() for name in value["slopes"]}
    item_ids = [name for line in output for name in json.loads(line)]
    if slopes:
        return bank_of_slopes(slopes, columns["intercept"], item_ids)
    return ItemBank.from_intercepts(**columns, item_ids=item_ids)
