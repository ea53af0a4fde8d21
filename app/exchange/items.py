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

Other files (JSON lines, CSV or Parquet) are read by a map of their fields. The map
`prompt=question,target=answer` assigns fields of a row to fields of an item. A dot leads into an
object: `choices=choices.text`. Data sets of the hub may have labels beside the options (`label`
beside `text`); a target that equals a label means the option at its position.
"""

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, cast

from app.errors import FieldProblem, FileFormatError, InvalidInputError
from app.exchange.catalog.rows import read_rows
from app.exchange.files import GZIP, PARQUET, Problems, as_text, comma_hint, csv_rows, shortened
from app.exchange.item_record import FIELDS, PARAMETER_FIELDS, SLOPES, ItemRecord, parse_item
from app.exchange.json_text import STRICT_JSON, json_fault
from app.exchange.results.recorded import value_at
from app.items import JsonValue

MAX_FILE_BYTES = 512 * 2**20
MAX_ROW_BYTES = 2**20
#: Number of faults after which reading ends, as each takes as long as a good row.
MAX_COUNTED = 20_000

_TOKEN_COLUMNS = ("expected_tokens_in", "expected_tokens_out")
_COLUMNS = FIELDS | set(_TOKEN_COLUMNS)
_JSON_COLUMNS = {"choices", "tags", "target", "messages", "expected_tokens", "scorer", SLOPES}
#: Fields whose cells are parsed also where the file's own fields are mapped.
_PARSED = (*_JSON_COLUMNS - {"target"}, "difficulty", *PARAMETER_FIELDS)
_JSONL = frozenset({"jsonl", "ndjson", "json"})
_TEXT, _LABEL = "text", "label"


@dataclass(frozen=True, slots=True)
class ItemRow:
    """One row of an item file: the item, or its faults."""

    row: int
    record: ItemRecord | None
    problems: tuple[FieldProblem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMap:
    """Map from the fields of an item to the fields of a row.

    Attributes:
        fields: Field of the item to field of the row; dots lead into objects.
        target_after: Mark in the target's field, behind whose last occurrence the target stands.

    Raises:
        InvalidInputError: An empty map, or an unknown field of an item.
    """

    fields: Mapping[str, str]
    target_after: str | None = None

    def __post_init__(self) -> None:
        unknown = sorted(self.fields.keys() - FIELDS)
        if unknown or not self.fields:
            raise InvalidInputError(
                f"Expected item fields of {', '.join(sorted(FIELDS))} to be mapped, as in "
                f"prompt=question,target=answer; got {unknown[0] if unknown else 'nothing'!r}."
            )


def field_map(text: str, target_after: str | None = None) -> FieldMap:
    """Parse a map such as `prompt=question,target=answer`.

    Raises:
        InvalidInputError: Another form, a repeated field, or an error of `FieldMap`.
    """
    fields = {}
    for part in filter(None, map(str.strip, text.split(","))):
        name, equals, source = part.partition("=")
        if not (equals and name.strip() and source.strip()):
            raise InvalidInputError(
                f"Expected ITEM=FILE, as in prompt=question,target=answer; got {part!r:.80}."
            )
        if name.strip() in fields:
            raise InvalidInputError(
                "Expected each item field once, as in prompt=question,target=answer; got "
                f"{name.strip()!r} twice."
            )
        fields[name.strip()] = source.strip()
    return FieldMap(fields=fields, target_after=target_after)


#: Rows of a file by number: the fields of each, or its fault.
_Rows = Iterator[tuple[int, Mapping[str, JsonValue] | FieldProblem]]


def read_items(
    source: bytes | BinaryIO, *, name: str = "items", mapping: FieldMap | None = None
) -> list[ItemRecord]:
    """Read an item file, or another file by a map; if any row is faulty, no item is returned.

    The suffix of `name` decides the format of an item file. Without a known one, a first character
    `{` means JSONL. With a map, the key of a row is its mapped key, its `id` or `key`, else its
    number, from 1.

    Raises:
        FileFormatError: No rows, or faults, each with file, row, field, expected and actual value.
            The first `MAX_PROBLEMS` are listed, and reading ends after `MAX_COUNTED`.
    """
    records: list[ItemRecord] = []
    problems = Problems()
    rows = _item_rows(source, name) if mapping is None else _mapped(source, name, mapping)
    for row in _checked(rows, name):
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


def scan_lines(source: bytes | BinaryIO, name: str) -> Iterator[ItemRow]:
    """Iterate over the good and faulty rows of an item file in JSON lines.

    Raises:
        FileFormatError: The file as a whole cannot be read: too large, or not UTF-8 from its first
            bytes.
    """
    return _checked(_jsonl_rows(_Lines(source, name)), name)


def _checked(rows: _Rows, name: str) -> Iterator[ItemRow]:
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


def _item_rows(source: bytes | BinaryIO, name: str) -> _Rows:
    lines, suffix = _Lines(source, name), name.lower().rpartition(".")[2]
    is_jsonl = suffix in _JSONL or (suffix != "csv" and lines.begins_with_object)
    return _jsonl_rows(lines) if is_jsonl else _csv_rows(lines)


class _Lines:
    """Lines of a binary stream as text, with limits for a line's length and the total."""

    def __init__(self, source: bytes | BinaryIO, name: str) -> None:
        self._stream = io.BytesIO(source) if isinstance(source, bytes) else source
        self.name = name
        self._n_bytes = 0
        self._next = self._read()
        if self._next.startswith(GZIP):
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


def _jsonl_rows(lines: _Lines) -> _Rows:
    for row, line in lines:
        if isinstance(line, FieldProblem):
            yield row, line
            continue
        text = line.strip()
        if not text:
            continue
        try:
            value = STRICT_JSON.decode(text)
        except (ValueError, RecursionError) as error:
            detail = f"expected one JSON object, got {text[:40]!r} ({json_fault(error)})"
            yield row, FieldProblem(f"{lines.name}:{row}", shortened(detail))
            continue
        if isinstance(value, dict):
            yield row, value
        else:
            detail = f"expected one JSON object, got {text[:40]!r}"
            yield row, FieldProblem(f"{lines.name}:{row}", detail)


def _csv_rows(lines: _Lines) -> _Rows:
    # The limit is a global of the csv module; lines have the same limit anyway.
    csv.field_size_limit(MAX_ROW_BYTES)
    reader = csv.reader(_good_lines(lines), strict=True)
    try:
        header = [column.strip() for column in next(filter(None, reader), [])]
        _check_header(header, lines.name)
        row = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                yield row, _fields_of_cells(dict(zip(header, cells, strict=True)))
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


def _fields_of_cells(cells: Mapping[str, str]) -> dict[str, JsonValue]:
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
        return cast(JsonValue, STRICT_JSON.decode(cell))
    except (ValueError, RecursionError):
        return None


def _number_or_text(cell: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(cell)
        except ValueError:
            continue
    return cell


def _mapped(source: bytes | BinaryIO, name: str, mapping: FieldMap) -> _Rows:
    content = source if isinstance(source, bytes) else source.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise FileFormatError(f"{name}: expected at most {MAX_FILE_BYTES} bytes, got more.")
    for row, given in enumerate(_rows_of_others(content, name), start=1):
        yield row, _fields(given, mapping, row, name)


def _rows_of_others(content: bytes, name: str) -> Iterator[Mapping[str, JsonValue]]:
    if content.startswith(PARQUET) or content.lstrip()[:1] == b"{":
        yield from read_rows(content, name)
        return
    csv.field_size_limit(MAX_ROW_BYTES)
    rows = csv_rows(as_text(content, name), name)
    _, header = next(rows, (0, []))
    if hint := comma_hint(header):
        raise FileFormatError(f"{name}: found one column, {header!r:.200}.{hint}")
    for _, cells in rows:
        yield {key: cell for key, cell in zip(header, cells, strict=False) if cell}


def _fields(
    row: Mapping[str, JsonValue], mapping: FieldMap, number: int, name: str
) -> dict[str, JsonValue] | FieldProblem:
    """Fields of the item of a row, or why the row does not fit the map."""
    fields: dict[str, JsonValue] = {}
    for field, source in mapping.fields.items():
        value = value_at(row, *source.split("."))
        if value is None:
            known = ", ".join(map(str, row))[:200]
            detail = f"expected a field {source!r}, found {known}"
            return FieldProblem(f"{name}:{number}:{field}", detail)
        fields[field] = value
    cells = {name: value for name, value in fields.items() if isinstance(value, str)}
    fields |= _fields_of_cells({name: cells[name] for name in _PARSED if name in cells})
    if not {"key", "id"} & fields.keys():
        fields["key"] = next((row[name] for name in ("id", "key") if row.get(name)), str(number))
    if (mark := mapping.target_after) is not None:
        target = fields.get("target")
        if not isinstance(target, str) or mark not in target:
            detail = f"expected {mark!r} in the target, got {target!r:.80}"
            return FieldProblem(f"{name}:{number}:target", detail)
        fields["target"] = target.rpartition(mark)[2].strip()
    return _with_labels(row, mapping, fields)


def _with_labels(
    row: Mapping[str, JsonValue], mapping: FieldMap, fields: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    path = mapping.fields.get("choices", "").split(".")
    choices = fields.get("choices")
    if path[-1] != _TEXT or not isinstance(choices, list):
        return fields
    labels = value_at(row, *path[:-1], _LABEL)
    if isinstance(labels, list) and len(labels) == len(choices):
        target = fields.get("target")
        if target in labels:
            return {**fields, "target": choices[labels.index(target)]}
    return fields
