"""JSON decoded in slices: other threads run meanwhile, and it ends where there are too many values.

The decoder in C takes a whole document, or one text of it, in one go: of 16 MB up to half a second
in which nothing else of this process runs. So it is given the small lists and objects, as almost
all are, and what is large is taken apart in Python.
"""

import json
import re
from collections.abc import Callable
from functools import partial
from json import JSONDecodeError
from json.decoder import JSONArray, scanstring  # type: ignore[attr-defined]  # missing in the stubs
from json.scanner import c_make_scanner, py_make_scanner  # type: ignore[attr-defined]  # as above
from typing import Any

from typing_extensions import override

from app.pacing import Pace

#: Of a document, where nothing else is said.
MAX_VALUES = 700_000
#: Of a number.
MAX_DIGITS = 10_000
_TOO_LONG = re.compile(rf"-?[0-9][0-9.eE+-]{{{MAX_DIGITS}}}")
#: Letters of a list or object that are decoded in one go.
_WINDOW = 1 << 12
#: Letters of a text that are decoded in one go.
_PIECE = 1 << 16
#: So much of a text as takes a millisecond. Never ends within an escape, or between the two halves
#: of a surrogate pair.
_SOME_TEXT = re.compile(
    r"(?>[^\"\\]{1,64}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|\\u[0-9a-fA-F]{4}|\\[^u]){0,4096}+"
)

_Scan = Callable[[str, int], tuple[Any, int]]


class TooManyValuesError(ValueError):
    """A document holds more values than any request needs: each costs far more than a byte."""


class InSlices(json.JSONDecoder):
    """Decodes what `json.JSONDecoder` does, with the same faults.

    Args:
        pace: Kept while it decodes.
        max_values: `MAX_VALUES`, if nothing else is said.
        options: Those of `json.JSONDecoder`.

    Raises:
        TooManyValuesError: There are more than `max_values`.
        UnwantedError: `pace` was stopped.
    """

    def __init__(
        self, *, pace: Pace | None = None, max_values: int | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self._n_values = self._large_until = 0
        self._pace = pace or Pace()
        self._max_values = MAX_VALUES if max_values is None else max_values
        self._in_one_go: _Scan = c_make_scanner(self)
        self.parse_string = partial(_text, pace=self._pace)
        self.parse_array = lambda start, scan: JSONArray(start, self._counting(scan))
        self.parse_object = lambda start, strict, scan, *_: _object(
            start, strict, self._counting(scan), self.parse_string
        )
        self.scan_once = _bounded(py_make_scanner(self))

    @override
    def decode(self, s: str, *args: Any) -> Any:
        self._n_values = self._large_until = 0
        return super().decode(s, *args)

    def _counting(self, scan: _Scan) -> _Scan:
        def counted(text: str, at: int) -> tuple[Any, int]:
            self._pace.keep()
            self._count(1)
            return self._small(text, at) or bounded(text, at)

        bounded = _bounded(scan)
        return counted

    def _small(self, text: str, at: int) -> tuple[Any, int] | None:
        """The list or object that begins there, if it is small and without a fault."""
        if at < self._large_until or text[at : at + 1] not in ("{", "["):
            return None
        window = text[at : at + _WINDOW]
        try:
            value, end = self._in_one_go(window, 0)
        except (StopIteration, ValueError, RecursionError):
            # What begins within the window is not tried once more: of lists in lists, each a
            # letter further, each would take as long.
            self._large_until = at + _WINDOW
            return None
        is_flat = window.count("{", 0, end) + window.count("[", 0, end) == 1
        self._count(len(value) if is_flat else _n_values(value))
        return value, at + end

    def _count(self, more: int) -> None:
        self._n_values += more
        if self._n_values > self._max_values:
            raise TooManyValuesError(f"more than {self._max_values} values")


def _n_values(value: Any) -> int:
    """How many values a list or object holds, at every depth."""
    entries = value.values() if isinstance(value, dict) else value
    return len(value) + sum(_n_values(entry) for entry in entries if isinstance(entry, list | dict))


def _bounded(scan: _Scan) -> _Scan:
    def bounded(text: str, at: int) -> tuple[Any, int]:
        if _TOO_LONG.match(text, at):  # else all its digits are looked at in one go
            raise ValueError(f"a number of more than {MAX_DIGITS} digits")
        return scan(text, at)

    return bounded


def _object(
    start: tuple[str, int], strict: bool, scan: _Scan, parse_key: Callable[..., tuple[str, int]]
) -> tuple[dict[str, Any], int]:
    """An object, as the decoder of the standard library; its keys too are read in pieces."""
    text, at = start
    made: dict[str, Any] = {}
    at = _past_space(text, at)
    if text[at : at + 1] == "}":
        return made, at + 1
    while True:
        if text[at : at + 1] != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = parse_key(text, at + 1, strict)
        at = _after(":", text, at)
        try:
            made[key], at = scan(text, at)
        except StopIteration as end:
            raise JSONDecodeError("Expecting value", text, end.value) from None
        at = _past_space(text, at)
        if text[at : at + 1] == "}":
            return made, at + 1
        at = _after(",", text, at)


def _after(mark: str, text: str, at: int) -> int:
    at = _past_space(text, at)
    if text[at : at + 1] != mark:
        raise JSONDecodeError(f"Expecting '{mark}' delimiter", text, at)
    return _past_space(text, at + 1)


def _past_space(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _text(document: str, at: int, strict: bool = True, *, pace: Pace) -> tuple[str, int]:
    """The text that begins behind the quote before `at`, and where what follows it begins."""
    close = document.find('"', at, at + _PIECE)
    if close >= 0 and document.find("\\", at, close) < 0:  # as good as always
        return _scanned(document, at, strict)
    began = at
    pieces: list[str] = []
    while True:
        pace.keep()
        found = _SOME_TEXT.match(document, at)
        end = found.end() if found else at
        if end == at:  # it is closed here, or faulty
            try:
                last, after = _scanned(document, at, strict)
            except JSONDecodeError as error:
                is_open = error.pos == at - 1  # faults of an open text are told of its beginning
                raise JSONDecodeError(
                    error.msg, document, began - 1 if is_open else error.pos
                ) from None
            pieces.append(last)
            return "".join(pieces), after
        try:
            pieces.append(_scanned(document[at:end] + '"', 0, strict)[0])
        except JSONDecodeError as error:
            raise JSONDecodeError(error.msg, document, at + error.pos) from None
        at = end


def _scanned(document: str, at: int, strict: bool) -> tuple[str, int]:
    found: tuple[str, int] = scanstring(document, at, strict)
    return found
