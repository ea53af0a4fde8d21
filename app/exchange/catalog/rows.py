"""Rows of a split (JSON lines, or Parquet of the hub's data sets), and templates over their fields.

Examples of templates: `Question: {question}`, `{answer|after:####|strip}`.
"""

import io
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from typing import cast

from app.errors import FileFormatError, InvalidInputError
from app.exchange.files import PARQUET
from app.items import JsonValue


def read_rows(content: bytes, name: str, limit: int | None = None) -> list[dict[str, JsonValue]]:
    """All rows, or the first `limit`, as dictionaries.

    Raises:
        FileFormatError: Neither JSON lines of objects nor Parquet.
    """
    # Commands that read only the catalogue's entries load no numpy.
    from app.exchange.json_text import json_lines
    from app.exchange.results.recorded import LeftOut, SourceFile

    if content.startswith(PARQUET):
        return _parquet(content, name, limit)
    rows: list[dict[str, JsonValue]] = []
    for number, row in islice(json_lines(SourceFile.of_bytes(name, content)), limit):
        if isinstance(row, LeftOut):
            raise FileFormatError(f"{name}:{number}: {row.detail}.")
        rows.append(row)
    return rows


def _parquet(content: bytes, name: str, limit: int | None) -> list[dict[str, JsonValue]]:
    from app.exchange.table_batches import open_parquet, reading_parquet

    file = open_parquet(io.BytesIO(content), name)
    with reading_parquet(name):
        batches = file.iter_batches(batch_size=1000, use_threads=False)
        return list(islice((row for batch in batches for row in batch.to_pylist()), limit))


_HOLE = re.compile(r"\{([^{}]*)\}")


def _wikihow(text: str) -> str:
    """Remove traces of WikiHow pages from HellaSwag's texts, as the harness does."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


_PLAIN: Mapping[str, Callable[[str], str]] = {
    "strip": str.strip,
    "capitalize": str.capitalize,
    "wikihow": _wikihow,
    "without_commas": lambda text: text.replace(",", ""),
}
_WITH_ARGUMENT: Mapping[str, Callable[[str, str], str]] = {
    "after": lambda text, mark: text.rpartition(mark)[2],
    "before": lambda text, mark: text.partition(mark)[0],
}


@lru_cache(maxsize=64)
def filter_of(name: str) -> Callable[[str], str]:
    """The filter of a name such as `strip` or `after:####`.

    Raises:
        InvalidInputError: There is no such filter.
    """
    word, colon, argument = name.partition(":")
    if colon and word in _WITH_ARGUMENT and argument:
        with_argument = _WITH_ARGUMENT[word]
        return lambda text: with_argument(text, argument)
    if not colon and word in _PLAIN:
        return _PLAIN[word]
    known = ", ".join([*_PLAIN, *(f"{word}:TEXT" for word in _WITH_ARGUMENT)])
    raise InvalidInputError(f"Expected one of the filters {known}, got {name!r}.")


def field_of(row: Mapping[str, JsonValue], path: str) -> JsonValue:
    """The value of a field; `choices.text` is the field `text` of the field `choices`.

    Raises:
        InvalidInputError: The row does not have the field.
    """
    value: object = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(row)
            raise InvalidInputError(f"Expected a field {path!r}, got a row with {known:.200}.")
        value = value[name]
    return cast(JsonValue, value)


class Template:
    """A text with placeholders, each a field and filters.

    Raises:
        InvalidInputError: An unknown filter.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[str | tuple[str, list[Callable[[str], str]]]] = []
        end = 0
        for hole in _HOLE.finditer(text):
            self._parts.append(text[end : hole.start()])
            # Bars separate filters, so a filter's mark may hold any other character.
            field, *filters = hole[1].split("|")
            self._parts.append((field.strip(), [filter_of(name) for name in filters]))
            end = hole.end()
        self._parts.append(text[end:])

    def fill(self, row: Mapping[str, JsonValue]) -> str:
        """The text of one row.

        Raises:
            InvalidInputError: A field is missing from the row, or is neither text nor number.
        """
        return "".join(
            part if isinstance(part, str) else self._value(row, *part) for part in self._parts
        )

    def _value(
        self, row: Mapping[str, JsonValue], field: str, filters: list[Callable[[str], str]]
    ) -> str:
        value = field_of(row, field)
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise InvalidInputError(
                f"Expected a text or number in field {field!r}, got {type(value).__name__}."
            )
        text = str(value)
        for apply in filters:
            text = apply(text)
        return text


#: The template of a text, which is read once for all rows.
template = lru_cache(maxsize=256)(Template)
