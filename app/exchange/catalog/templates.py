"""Texts with the fields of a row in them: `Question: {question}`, `{answer|after:####|strip}`."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from app.errors import InvalidInputError

_HOLE = re.compile(r"\{([^{}]*)\}")


def _wikihow(text: str) -> str:
    """Without the traces of the pages that HellaSwag was made from, as its harness takes them."""
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
        InvalidInputError: There is none.
    """
    word, colon, argument = name.partition(":")
    if colon and word in _WITH_ARGUMENT and argument:
        with_argument = _WITH_ARGUMENT[word]
        return lambda text: with_argument(text, argument)
    if not colon and word in _PLAIN:
        return _PLAIN[word]
    known = ", ".join([*_PLAIN, *(f"{word}:TEXT" for word in _WITH_ARGUMENT)])
    raise InvalidInputError(f"Expected one of the filters {known}, got {name!r}.")


def field_of(row: Mapping[str, Any], path: str) -> Any:
    """The value of a field, `choices.text` being that in another.

    Raises:
        InvalidInputError: The row has none such.
    """
    value: Any = row
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            known = ", ".join(row)
            raise InvalidInputError(f"Expected a field {path!r}, got a row with {known:.200}.")
        value = value[name]
    return value


class Template:
    """A text with holes, each a field and filters.

    Raises:
        InvalidInputError: A filter that there is not.
    """

    def __init__(self, text: str) -> None:
        self._parts: list[str | tuple[str, list[Callable[[str], str]]]] = []
        end = 0
        for hole in _HOLE.finditer(text):
            self._parts.append(text[end : hole.start()])
            # Filters are parted by bars; a mark to look for may hold anything else.
            field, *filters = hole[1].split("|")
            self._parts.append((field.strip(), [filter_of(name) for name in filters]))
            end = hole.end()
        self._parts.append(text[end:])

    def fill(self, row: Mapping[str, Any]) -> str:
        """The text of one row.

        Raises:
            InvalidInputError: A field that the row does not have, or that is no text or number.
        """
        return "".join(
            part if isinstance(part, str) else self._value(row, *part) for part in self._parts
        )

    def _value(
        self, row: Mapping[str, Any], field: str, filters: list[Callable[[str], str]]
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
