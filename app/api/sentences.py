"""Faults of requests in the words of the house: what was expected, and what came."""

import re
from collections.abc import Mapping
from typing import Any, Final

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
}
_ID: Final = re.compile(r"\^([a-z]+_)\[0-9a-z\]\{\d+\}\$")


def sentence(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors in a sentence.

    What came is told where it is a number, a choice or an id, which no secret ever is.
    """
    kind, found = str(error["type"]), error.get("ctx", {})
    expected: str | None = None
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        expected = f"a number {sign} {found[name]}"
    elif kind in ("literal_error", "enum"):
        expected = str(found["expected"])
    elif kind in _KINDS:
        expected = _KINDS[kind]
    elif kind == "string_pattern_mismatch" and (of := _ID.fullmatch(str(found["pattern"]))):
        expected = f"an id that begins with {of[1]}"
    came = error.get("input")
    if isinstance(came, int) and came.bit_length() > 4 * _MOST:
        came = None  # a number of thousands of digits is refused as text
    if expected is None or not isinstance(came, str | int | float):
        return re.sub(r"^(Value|Assertion) error, ", "", str(error["msg"]))
    told = came[:_MOST] if isinstance(came, str) else came
    return f"expected {expected}, got {told!r}"
