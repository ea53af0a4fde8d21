"""What is said of a faulty request: what was expected, what came, what may have been meant."""

import re
from collections.abc import Iterator, Mapping, Sequence, Sized
from difflib import get_close_matches
from typing import Any, Final, get_args

from fastapi import Request
from pydantic import BaseModel

from app.api.schemas.common import (
    CONTENT_HASH,
    HEADER_NAME,
    NAME,
    NAME_IN_URL,
    THETA_RANGE,
    VERSION,
    WEB_LINK,
)

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
    CONTENT_HASH: "a SHA-256 of 64 lower-case hexadecimal digits",
    WEB_LINK: "an address that begins with http:// or https://",
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


def unknown_field(request: Request, loc: Sequence[int | str]) -> str:
    """What to say of a field of the body that is not known.

    Args:
        request: Its route says what its body may be.
        loc: Where the field stands, as Pydantic says it: `body`, then the way to it.
    """
    body = getattr(request.scope.get("route"), "body_field", None)
    known = _fields_at(body.field_info.annotation, loc[1:-1]) if body is not None else []
    close = get_close_matches(str(loc[-1])[:100], known, n=1)
    if close:
        return f"no such field; did you mean {close[0]!r}?"
    listed = ", ".join(known[:20])
    return f"no such field; there are {listed}" if 0 < len(known) <= 20 else "no such field"


def _fields_at(annotation: Any, way: Sequence[int | str]) -> list[str]:
    """Names of the fields of whatever may stand at the end of a way into a body."""
    models = list(_models(annotation))
    for part in way:
        inside = [
            found
            for model in models
            if isinstance(part, str) and part in model.model_fields
            for found in _models(model.model_fields[part].annotation)
        ]
        # A place in a list, or which of several shapes it was taken for: the fields are the same.
        models = inside or models
    return list(dict.fromkeys(name for model in models for name in model.model_fields))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, however deep in lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)
