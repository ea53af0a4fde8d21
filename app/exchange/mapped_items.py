"""Items from other files (JSON lines, CSV or Parquet), by a map of their fields.

The map `prompt=question,target=answer` assigns fields of a row to fields of an item. A dot leads
into an object: `choices=choices.text`. Data sets of the hub may have labels beside the options
(`label` beside `text`); a target that equals a label means the option at its position.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from app.errors import FieldProblem, FileFormatError, InvalidInputError
from app.exchange.catalog.rows import read_rows
from app.exchange.files import as_text, comma_hint, csv_rows
from app.exchange.item_record import FIELDS, PARAMETER_FIELDS, SLOPES, ItemRecord
from app.exchange.items import (
    MAX_FILE_BYTES,
    MAX_ROW_BYTES,
    checked_rows,
    fields_of_cells,
    good_items,
)
from app.exchange.results.recorded import value_at
from app.items import JsonValue

_PARQUET = b"PAR1"
_TEXT, _LABEL = "text", "label"
#: Item fields whose text cells are parsed: as a list, an object or a number.
_OF_CELLS = (
    "choices", "tags", "messages", "expected_tokens", "scorer", SLOPES, "difficulty",
    *PARAMETER_FIELDS,
)  # fmt: skip


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


def read_mapped(
    source: bytes | BinaryIO, *, name: str = "items", mapping: FieldMap
) -> list[ItemRecord]:
    """Read the items of a file; if any row is faulty, no item is returned.

    The key of a row is its mapped key, its `id` or `key`, else its number, from 1.

    Raises:
        FileFormatError: Faults, each with file, row and field.
    """
    content = source if isinstance(source, bytes) else source.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise FileFormatError(f"{name}: expected at most {MAX_FILE_BYTES} bytes, got more.")
    return good_items(checked_rows(_mapped(content, name, mapping), name), name)


def _mapped(
    content: bytes, name: str, mapping: FieldMap
) -> Iterator[tuple[int, Mapping[str, JsonValue] | FieldProblem]]:
    for row, given in enumerate(_rows(content, name), start=1):
        yield row, _fields(given, mapping, row, name)


def _rows(content: bytes, name: str) -> Iterator[Mapping[str, JsonValue]]:
    if content.startswith(_PARQUET) or content.lstrip()[:1] == b"{":
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
    fields |= fields_of_cells({name: cells[name] for name in _OF_CELLS if name in cells})
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
