"""Item files: JSONL or CSV bytes in, canonical `ItemRecord`s out. No SQL.

Each row is one item. A key, and a prompt or messages, are required. Field names (JSONL keys, CSV
columns) that are not in this table are faults:

| field | JSONL | CSV cell |
|---|---|---|
| `id` or `key` | text | text |
| `prompt` or `messages` | text; list of `{role, content}` | text; JSON |
| `choices` | list of texts or numbers | JSON list, else split at `|` |
| `target` | text, number, or a list of them | JSON list of texts, else one text |
| `tags` | list of texts | JSON list, else split at `|` |
| `group` | text | text |
| `scorer` | name, or `{name, params}` | name, or JSON object |
| `expected_tokens` | `{"in": n, "out": n}` | JSON, or `expected_tokens_in`, `expected_tokens_out` |
| `difficulty` | a guess, on any scale, higher is harder; for `--provisional` alone | number |
| `a`, `b`, `c`, `d` | numbers; `b` is required once one is given; else 1, -, 0, 1 | numbers |
| `k` | dispersion of an item of continuous scores | number |
| `intercept` | number, -a b: instead of `b` or with it; needed where `a` is 0 | number |
| `slopes` | several abilities: `{general, dimension_1, ...}`, with `intercept` | JSON object |

The target of an item with choices names one or several right options. A text equal to an option
means that option, even if it also looks like a letter or an index. Otherwise a single letter counts
from A, and a whole number counts from 0. A JSON number is always an index. An item without a target
is accepted, and lint reports it.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, Literal, NoReturn, cast

from app.errors import FieldProblem, FileFormatError, InvalidInputError
from app.exchange.files import Problems, comma_hint, shortened
from app.exchange.item_record import FIELDS, PARAMETER_FIELDS, SLOPES, ItemRecord, parse_item
from app.exchange.json_text import no_repeats
from app.items import JsonValue

ItemFormat = Literal["jsonl", "csv"]

MAX_FILE_BYTES = 512 * 2**20
MAX_ROW_BYTES = 2**20
#: Number of faults after which reading ends, as each takes as long as a good row.
MAX_COUNTED = 20_000

_TOKEN_COLUMNS = ("expected_tokens_in", "expected_tokens_out")
_COLUMNS = FIELDS | set(_TOKEN_COLUMNS)
_JSON_COLUMNS = {"choices", "tags", "target", "messages", "expected_tokens", "scorer", SLOPES}


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One row of an item file: the item, or its faults."""

    row: int
    record: ItemRecord | None
    problems: tuple[FieldProblem, ...] = ()


def read_items(
    source: bytes | BinaryIO, *, name: str = "items", file_format: ItemFormat | None = None
) -> list[ItemRecord]:
    """Read an item file; if any row is faulty, no item is returned.

    The suffix of `name` decides the format unless `file_format` does. Without either, a first
    character `{` means JSONL.

    Raises:
        FileFormatError: Faults, each with file, row, field, expected and actual value. The first
            `MAX_PROBLEMS` are listed, and reading ends after `MAX_COUNTED`.
    """
    return good_items(scan_items(source, name=name, file_format=file_format), name)


def good_items(rows: Iterable[ItemRow], name: str) -> list[ItemRecord]:
    """The items of all rows.

    Raises:
        FileFormatError: No rows, or faulty rows, as for `read_items`.
    """
    records: list[ItemRecord] = []
    problems = Problems()
    for row in rows:
        for problem in row.problems:
            problems.add(problem.pointer, problem.detail)
        if problems.count >= MAX_COUNTED:
            break
        if row.record is not None and not problems.count:
            records.append(row.record)
    problems.raise_any(name)
    if not records:
        raise FileFormatError(f"{name}: the file is empty: expected at least one item.")
    return records


def scan_items(
    source: bytes | BinaryIO, *, name: str = "items", file_format: ItemFormat | None = None
) -> Iterator[ItemRow]:
    """Iterate over the good and faulty rows of an item file; arguments are those of `read_items`.

    Raises:
        FileFormatError: The file as a whole cannot be read: too large, not UTF-8 from its first
            bytes, wrong columns, or broken quoting.
    """
    lines = _Lines(io.BytesIO(source) if isinstance(source, bytes) else source, name)
    rows = _csv_rows if _format_of(lines, name, file_format) == "csv" else _jsonl_rows
    yield from checked_rows(rows(lines), name)


def checked_rows(
    rows: Iterable[tuple[int, Mapping[str, JsonValue] | FieldProblem]], name: str
) -> Iterator[ItemRow]:
    """Parse rows of fields; a repeated key is a fault."""
    first_row: dict[str, int] = {}
    for row, fields in rows:
        if isinstance(fields, FieldProblem):
            yield ItemRow(row, None, (fields,))
            continue
        try:
            record = parse_item(fields, row=row, place=partial("{}:{}:{}".format, name, row))
        except InvalidInputError as error:
            yield ItemRow(row, None, error.problems)
            continue
        earlier = first_row.setdefault(record.key, row)
        if earlier == row:
            yield ItemRow(row, record)
        else:
            detail = f"expected a key of its own, got {record.key!r}, which row {earlier} has too"
            yield ItemRow(row, None, (FieldProblem(f"{name}:{row}:key", detail),))


class _Lines:
    """Lines of a binary stream as text, with limits for a line's length and the total."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._stream = stream
        self.name = name
        self._n_bytes = 0
        self._next = self._read()
        if self._next.startswith(b"\x1f\x8b"):
            raise FileFormatError(f"{name}: is packed by gzip: unpack it first.")
        for mark in (b"\xff\xfe", b"\xfe\xff"):
            if self._next.startswith(mark):
                raise FileFormatError(f"{name}: expected UTF-8, got a UTF-16 byte order mark.")
        self._next = self._next.removeprefix(b"\xef\xbb\xbf")

    @property
    def begins_with_object(self) -> bool:
        return self._next.lstrip().startswith(b"{")

    def __iter__(self) -> Iterator[tuple[int, str | FieldProblem]]:
        """Line number from 1, and the line or its fault."""
        row = 0
        while self._next:
            row += 1
            yield row, self._decode(row, self._next)
            self._next = self._read()

    def _read(self) -> bytes:
        line = self._stream.readline(MAX_ROW_BYTES + 1)
        self._n_bytes += len(line)
        tail = line
        while len(tail) > MAX_ROW_BYTES and not tail.endswith(b"\n"):
            tail = self._stream.readline(MAX_ROW_BYTES + 1)
            self._n_bytes += len(tail)
            if self._n_bytes > MAX_FILE_BYTES:
                break
        if self._n_bytes > MAX_FILE_BYTES:
            raise FileFormatError(
                f"{self.name}: expected at most {MAX_FILE_BYTES} bytes, got more."
            )
        return line

    def _decode(self, row: int, line: bytes) -> str | FieldProblem:
        place = f"{self.name}:{row}"
        if len(line) > MAX_ROW_BYTES:
            return FieldProblem(
                place, f"expected a line of at most {MAX_ROW_BYTES} bytes, got more"
            )
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            got = f"byte 0x{line[error.start]:02x} at {error.start + 1}"
            return FieldProblem(place, f"expected UTF-8, got {got}")


def _format_of(lines: _Lines, name: str, file_format: ItemFormat | None) -> ItemFormat:
    if file_format is not None:
        return file_format
    suffix = name.lower().rpartition(".")[2]
    if suffix in {"jsonl", "ndjson", "json"}:
        return "jsonl"
    return "csv" if suffix == "csv" or not lines.begins_with_object else "jsonl"


def _jsonl_rows(lines: _Lines) -> Iterator[tuple[int, Mapping[str, JsonValue] | FieldProblem]]:
    for row, line in lines:
        if isinstance(line, FieldProblem):
            yield row, line
            continue
        text = line.strip()
        if not text:
            continue
        try:
            value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=no_repeats)
        except (ValueError, RecursionError) as error:
            detail = f"expected one JSON object, got {text[:40]!r} ({error})"
            yield row, FieldProblem(f"{lines.name}:{row}", shortened(detail))
            continue
        if isinstance(value, dict):
            yield row, value
        else:
            detail = f"expected one JSON object, got {text[:40]!r}"
            yield row, FieldProblem(f"{lines.name}:{row}", detail)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _csv_rows(lines: _Lines) -> Iterator[tuple[int, Mapping[str, JsonValue] | FieldProblem]]:
    # The limit is a global of the csv module; lines have the same limit anyway.
    csv.field_size_limit(MAX_ROW_BYTES)
    reader = csv.reader(_good_lines(lines), strict=True)
    try:
        header = [column.strip() for column in next(filter(None, reader), [])]
        _check_header(header, lines.name)
        row = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                yield row, fields_of_cells(dict(zip(header, cells, strict=True)))
            elif cells:
                detail = f"expected {len(header)} cells as in the header, got {len(cells)}"
                yield row, FieldProblem(f"{lines.name}:{row}", detail)
            row = reader.line_num + 1
    except csv.Error as error:
        problem = FieldProblem(f"{lines.name}:{reader.line_num}", f"expected CSV, got {error}")
        raise FileFormatError(
            f"{problem.pointer}: {problem.detail}.", problems=[problem]
        ) from error


def _good_lines(lines: _Lines) -> Iterator[str]:
    """The lines up to the first faulty one, as a line within quotes cannot be skipped."""
    for _, line in lines:
        if isinstance(line, FieldProblem):
            raise FileFormatError(f"{line.pointer}: {line.detail}.", problems=[line])
        yield line


def _check_header(header: list[str], name: str) -> None:
    known = ", ".join(sorted(_COLUMNS))
    problems, seen = Problems(), set[str]()
    for column in header:
        if column not in _COLUMNS:
            problems.add(f"{name}:1:{column}", f"no such column: {column!r:.80}")
        elif column in seen:
            problems.add(f"{name}:1:{column}", f"expected each column once, got {column!r} again")
        seen.add(column)
    if header and not {"id", "key"} & seen:
        problems.add(f"{name}:1", "expected a column `key` or `id`, got neither")
    if problems.count:
        raise FileFormatError(
            f"{name}: wrong columns; known are {known}.{comma_hint(header)}",
            problems=problems.kept,
        )


def fields_of_cells(cells: Mapping[str, str]) -> dict[str, JsonValue]:
    """CSV cells as the JSON values that `parse_item` reads; an empty cell is an absent field."""
    fields: dict[str, JsonValue] = {}
    tokens: dict[str, JsonValue] = {}
    for name, cell in cells.items():
        if not cell.strip():
            continue
        if name in _TOKEN_COLUMNS:
            tokens[name.rpartition("_")[2]] = _number_or_text(cell)
        else:
            fields[name] = _value_of(name, cell)
    if tokens:
        fields.setdefault("expected_tokens", tokens)
    return fields


def _value_of(name: str, cell: str) -> JsonValue:
    if name in (*PARAMETER_FIELDS, "difficulty"):
        return _number_or_text(cell)
    value = _json_or_none(cell) if name in _JSON_COLUMNS else None
    if name in ("choices", "tags"):
        return value if isinstance(value, list) else [part.strip() for part in cell.split("|")]
    if name == "target":
        is_texts = isinstance(value, list) and value and all(isinstance(v, str) for v in value)
        return value if is_texts else cell
    return value if isinstance(value, list | dict) else cell


def _json_or_none(cell: str) -> JsonValue:
    try:
        return cast(JsonValue, json.loads(cell, parse_constant=_refuse_constant))
    except (ValueError, RecursionError):
        return None


def _number_or_text(cell: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell
