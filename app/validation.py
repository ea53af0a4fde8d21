"""Patterns of texts, and messages of faults: what was expected, what came, what was meant."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from app.errors import FieldProblem
from app.printable import percent_meant

#: Names have no control characters, and no white space at either end; in URLs no `/` and `:`.
NAME: Final = r"^[^\s\x00-\x1f\x7f-\x9f]([^\x00-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f])?$"
NAME_IN_URL: Final = r"^[^\s/:\x00-\x1f\x7f]([^/:\x00-\x1f\x7f]*[^\s/:\x00-\x1f\x7f])?$"
#: Names that programs give: of catalogue entries and scorers, and kinds of endpoints.
ENTRY_NAME: Final = r"^[a-z0-9][a-z0-9_.-]{0,99}$"
SCORER_NAME: Final = r"^[a-z][a-z0-9_.-]{0,63}$"
KIND: Final = r"^[a-z][a-z0-9_]{0,63}$"
FILE_NAME: Final = r"^[^\x00-\x1f\x7f]*$"
SHORT_KEY: Final = r"^[^\x00]{1,64}$"
CONTENT_HASH: Final = r"^[0-9a-f]{64}$"
WEB_LINK: Final = r"^https?://[^\s\x00-\x1f]+$"
HEADER_NAME: Final = r"^[A-Za-z0-9-]{1,100}$"
ANY_ID: Final = r"^[a-z]+_[0-9a-z]+$"
VERSION: Final = r"^(latest|[1-9][0-9]{0,8}|bkv_[0-9a-z]{26})$"
_NUMBER: Final = r"[0-9]{1,4}(\.[0-9]{1,6})?"
_PERCENT: Final = re.compile(rf"\s*({_NUMBER})\s*%\s*")
THETA_RANGE: Final = rf"^-?{_NUMBER}:-?{_NUMBER}:{_NUMBER}$"

#: Most faults that are reported for one input.
_MAX_PROBLEMS: Final = 100
#: Most characters of the input that a message quotes; longer numbers are not quoted.
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
    **dict.fromkeys(
        ("datetime_parsing", "datetime_from_date_parsing", "datetime_type", "timezone_aware"),
        "a time such as 2030-01-31T12:00:00Z",
    ),
    **dict.fromkeys(("ip_v4_network", "ip_v6_network"), "a network such as 10.0.0.0/8"),
}
_CHOICES: Final = ("literal_error", "enum")
#: Faults of fields that a model or a dataclass does not have.
_UNKNOWN: Final = ("extra_forbidden", "unexpected_keyword_argument")
#: Fields that people give in percent by mistake; scores and the like are not meant so.
_SHARES: Final = ("confidence", "score_margin", "max_share", "max_rate")
#: Faults whose message names only the kind of the input, which may be a misplaced secret.
_SHAPES: Final = {
    "string_type": "a text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
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
    ENTRY_NAME: "up to 100 lower-case letters, digits, _ . and -, first a letter or a digit",
    SCORER_NAME: "up to 64 lower-case letters, digits, _ . and -, first a letter",
    KIND: "up to 64 lower-case letters, digits and _, first a letter",
    FILE_NAME: "a name without control characters",
    SHORT_KEY: "1 to 64 characters",
    CONTENT_HASH: "a SHA-256 of 64 lower-case hexadecimal digits",
    WEB_LINK: "an address that begins with http:// or https://",
    HEADER_NAME: "up to 100 letters, digits and -",
    THETA_RANGE: "start:stop:step of up to six decimal places, such as -4:4:0.1",
    ANY_ID: "an id",
    VERSION: "latest, or the number or id of a version",
}
#: Pattern of an id of one kind, which a page may allow to be empty.
_ID: Final = re.compile(r"\^\(?([a-z]+_)\[0-9a-z\]\{(\d+)\}(?:\)\?)?\$")


def problems_of(errors: Iterable[Mapping[str, Any]], shape: Any = None) -> list[FieldProblem]:
    """The first of Pydantic's errors in sentences, each with its JSON pointer.

    Args:
        errors: Errors of a `ValidationError`.
        shape: Expected model or type, whose fields are suggested in place of unknown ones.
    """
    return [
        FieldProblem(
            pointer_of(error["loc"]),
            _unknown_field(shape, error["loc"]) if error["type"] in _UNKNOWN else sentence(error),
        )
        for error in islice(errors, _MAX_PROBLEMS)
    ]


def sentence(error: Mapping[str, Any]) -> str:
    """One of Pydantic's errors in a sentence.

    The input is quoted where it is a number, a choice, a name or an id, which is never a secret.
    """
    kind, came = str(error["type"]), error.get("input")
    if kind in _SHAPES:
        return f"expected {_SHAPES[kind]}, got {_kind_of(came)}"
    if kind in _LENGTHS and isinstance(came, Sized):
        name, bound, one, more = _LENGTHS[kind]
        n = error["ctx"][name]
        return f"expected {bound} {n} {one if n == 1 else more}, got {len(came)}"
    expected = _expected(kind, error.get("ctx", {}))
    if expected is None:
        return re.sub(r"^(Value|Assertion) error, ", "", str(error["msg"]))
    if isinstance(came, int) and came.bit_length() > 4 * _MOST:
        return f"expected {expected}, got one of more than {_MOST} digits"
    field = error["loc"][-1] if error["loc"] else None  # a value of the command line has no place
    is_share = kind.startswith("less") and field in _SHARES
    meant = percent_meant(float(str(came))) if is_share else None  # texts in a query
    if kind == "float_parsing" and (percent := _PERCENT.fullmatch(str(came))):
        meant = percent_meant(float(percent[1]))
    hint = f"; {meant}" if meant else ""
    if isinstance(came, str):
        choices = re.findall(r"'(.+?)'", expected) if kind in _CHOICES else []
        return f"expected {expected}, got {came[:_MOST]!r}{hint or _suggestion(came, choices)}"
    if not isinstance(came, int | float) or isinstance(came, bool):
        return f"expected {expected}, got {_kind_of(came)}"
    return f"expected {expected}, got {came}{hint}"


def _expected(kind: str, found: Mapping[str, Any]) -> str | None:
    if kind in _BOUNDS:
        name, sign = _BOUNDS[kind]
        limit = found[name]
        return f"a number {sign} {f'{limit:.16g}' if isinstance(limit, float) else limit}"
    if kind in _CHOICES:
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


def pointer_of(loc: Iterable[int | str]) -> str:
    """JSON pointer of a place that Pydantic gives as a tuple; a faulty name ends in `[key]`."""
    parts = (str(part) for part in loc if part != "[key]")
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _suggestion(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word[:100], known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _unknown_field(shape: Any, loc: Sequence[int | str]) -> str:
    known = _fields_at(shape, loc[:-1])
    if near := _suggestion(str(loc[-1]), known):
        return f"no such field{near}"
    listed = ", ".join(known[:20])
    return f"no such field; there are {listed}" if 0 < len(known) <= 20 else "no such field"


def _fields_at(annotation: Any, way: Sequence[int | str]) -> list[str]:
    """Names of the fields that are allowed at a place in a body."""
    shapes = list(_fields_of(annotation))
    for part in way:
        inside = [
            found
            for fields in shapes
            if isinstance(part, str) and part in fields
            for found in _fields_of(fields[part])
        ]
        # An index of a list or the name of a union's variant does not change the fields.
        shapes = inside or shapes
    return list(dict.fromkeys(name for fields in shapes for name in fields))


def _fields_of(annotation: Any) -> Iterator[Mapping[str, Any]]:
    """Fields and types of each class in an annotation, at any depth of lists and unions."""
    is_class = isinstance(annotation, type)  # a validator in it is a dataclass, but no class
    if is_class and issubclass(annotation, BaseModel):
        yield {name: _shown(field) for name, field in annotation.model_fields.items()}
    elif is_class and is_dataclass(annotation):
        yield {field.name: field.type for field in fields(annotation)}
    for argument in get_args(annotation):
        yield from _fields_of(argument)


def _shown(field: FieldInfo) -> Any:
    """Type of a field as JSON Schema shows it; see `app.shapes.ShownAs`."""
    return next((one.type for one in field.metadata if hasattr(one, "type")), field.annotation)
