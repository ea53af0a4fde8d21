"""Faults of requests in the words of the house: what was expected, and what came."""

import re
from collections.abc import Mapping, Sized
from typing import Any, Final

from app.api.schemas.common import HEADER_NAME, NAME, NAME_IN_URL, THETA_RANGE, VERSION

#: Characters of what came that are told; longer numbers are not.
_MOST: Final = 60
_BOUNDS: Final = {
    "greater_than": ("gt", ">"),
    "greater_than_equal": ("ge", ">="),
    "less_than": ("lt", "<"),
    "less_than_equal": ("le", "<="),
}
_KINDS: Final = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "a finite number",
}
#: Of what came the kind is told alone: it may be a secret in the wrong place.
_SHAPES: Final = {
    "string_type": "a text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_LENGTHS: Final = {
    "too_short": ("min_length", "at least", "entry", "entries"),
    "too_long": ("max_length", "at most", "entry", "entries"),
    "string_too_short": ("min_length", "at least", "character", "characters"),
    "string_too_long": ("max_length", "at most", "character", "characters"),
}
_PATTERNS: Final = {
    NAME: "a name without control characters, and without blanks at either end",
    NAME_IN_URL: "a name without / : or control characters, and without blanks at either end",
    HEADER_NAME: "up to 100 letters, digits and -",
    THETA_RANGE: "start:stop:step of up to six decimal places, such as -4:4:0.1",
    VERSION: "latest, or the number or id of a version",
}
_ID: Final = re.compile(r"\^([a-z]+_)\[0-9a-z\]\{(\d+)\}\$")


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors in a sentence.

    What came is told where it is a number, a choice, a name or an id, which no secret ever is.
    """
    kind, came = str(error["type"]), error.get("input")
    if kind in _SHAPES:
        return f"expected {_SHAPES[kind]}, got {_kind_of(came)}"
    if kind in _LENGTHS and isinstance(came, Sized):
        name, bound, one, more = _LENGTHS[kind]
        n = error["ctx"][name]
        return f"expected {bound} {n} {one if n == 1 else more}, got {len(came)}"
    expected = _expected(kind, error.get("ctx", {}))
    if isinstance(came, int) and came.bit_length() > 4 * _MOST:
        expected = None  # a number of thousands of digits is refused as text
    if expected is None:
        return re.sub(r"^(Value|Assertion) error, ", "", str(error["msg"]))
    if isinstance(came, str):
        return f"expected {expected}, got {came[:_MOST]!r}"
    is_number = isinstance(came, int | float) and not isinstance(came, bool)
    return f"expected {expected}, got {came if is_number else _kind_of(came)}"


def _expected(kind: str, found: Mapping[str, Any]) -> str | None:
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        return f"a number {sign} {found[name]}"
    if kind in ("literal_error", "enum"):
        return str(found["expected"])
    if kind == "string_pattern_mismatch":
        if of := _ID.fullmatch(str(found["pattern"])):
            return f"an id, {of[1]} and {of[2]} lower-case letters and digits"
        return _PATTERNS.get(str(found["pattern"]))
    return _KINDS.get(kind)


def _kind_of(came: object) -> str:
    match came:
        case None:
            return "null"
        case bool():
            return str(came).lower()
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list() | tuple():
            return "a list"
        case _:
            return "an object"
