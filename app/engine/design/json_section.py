"""Reads JSON objects into the parts of a design, whose annotations say what a field may hold.

    class Example(Part):
        share: Annotated[float, Within(above=0.0, most=1.0), "What people are told of it."] = 0.5

A fault is noted with its JSON pointer. Whoever documents the fields reads the same annotations by
`forms_of`.
"""

import math
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from difflib import get_close_matches
from enum import Enum, StrEnum
from types import UnionType
from typing import (
    Annotated,
    Any,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from app.errors import FieldProblem

E = TypeVar("E", bound=Enum)

#: Most rules of one list, and how deep lists of rules may lie in each other.
MAX_RULES, MAX_DEPTH = 10, 2
#: Unknown fields that are named; each is compared with those that are known.
_MAX_UNKNOWN = 20
#: Characters of a misspelt word that are looked at.
_MAX_WORD = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """Limits of a number."""

    above: float = -math.inf
    least: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def words(self) -> str:
        """As people are told: `> 0 and <= 1`."""
        limits = ((">", self.above), (">=", self.least), ("<=", self.most), ("<", self.below))
        known = [f"{sign} {limit:.16g}" for sign, limit in limits if math.isfinite(limit)]
        return " and ".join(known) or "finite"


@dataclass(frozen=True, slots=True)
class Form:
    """What a field may hold.

    Attributes:
        kind: `float`, `int`, `bool`, an enumeration, `tuple[float, float]` (an interval),
            a part, a tuple of parts, or a mapping of tags to shares.
        within: Limits of a number, or of each share.
        told: What people are told of it; empty where its name says enough.
        required: It has to be given.
    """

    kind: Any
    within: Within
    told: str
    required: bool


def _form_of(hint: Any, *, required: bool) -> Form:
    within, told = Within(), ""
    while get_origin(hint) in (Annotated, Union, UnionType):
        if get_origin(hint) is Annotated:
            hint, *notes = get_args(hint)
            within = next((note for note in notes if isinstance(note, Within)), within)
            told = next((note for note in notes if isinstance(note, str)), told)
        else:
            hint = next(arm for arm in get_args(hint) if arm is not type(None))
    if get_origin(hint) is abc.Mapping:
        within = _form_of(get_args(hint)[1], required=False).within
    return Form(hint, within, told, required)


#: Reading annotations takes a while, and each design is read many times.
_FORMS: dict[Any, Mapping[str, Form]] = {}


def forms_of(kind: "type[Part]") -> Mapping[str, Form]:
    """What the fields of a part may hold, by name; null is the same as absent."""
    if kind not in _FORMS:
        hints = get_type_hints(kind, include_extras=True)
        given: Any = kind  # a dataclass, as all parts are
        _FORMS[kind] = {
            each.name: _form_of(hints[each.name], required=each.default is MISSING)
            for each in fields(given)
        }
    return _FORMS[kind]


class Section:
    """One JSON object being read.

    Every getter returns None where the field is absent or null, and also after noting a problem:
    values may be used only once `problems` has stayed empty.

    Args:
        value: What should be an object.
        pointer: Its JSON pointer; "" for the whole document.
        problems: Where faults are noted, shared by all sections of a document.
        depth: In how many lists it lies.
    """

    def __init__(
        self, value: object, pointer: str, problems: list[FieldProblem], depth: int = 0
    ) -> None:
        self.pointer = pointer
        self.depth = depth
        self.problems = problems
        self._read: list[str] = []
        self._fields: Mapping[str, Any] = {}
        if isinstance(value, Mapping):
            self._fields = value
        elif value is not None:
            self.note(None, f"expected an object, got {value!r:.80}")

    def note(self, key: str | None, detail: str) -> None:
        """Record a fault of the field `key`, or of the object itself."""
        pointer = self.pointer if key is None else f"{self.pointer}/{_escaped(key)}"
        self.problems.append(FieldProblem(pointer, detail))

    def has(self, key: str) -> bool:
        """Whether the field is there and not null."""
        return self._fields.get(key) is not None

    def given(self, kind: "type[Part]") -> dict[str, Any]:
        """The fields of a part that are there and right, and those that it must have.

        Notes the others, and unknown ones.
        """
        found = {}
        for name, form in forms_of(kind).items():
            value = self._value(name, form)
            if value is not None or form.required:
                found[name] = value
            if form.required and not self.has(name):
                self.note(name, f"expected {form.told}")
        self.close()
        return found

    def _value(self, key: str, form: Form) -> Any:
        kind, within = form.kind, form.within
        if kind is float:
            return self.number(key, within)
        if kind is int:
            return self.integer(key, within)
        if kind is bool:
            return self.flag(key)
        if kind == tuple[float, float]:
            return self.interval(key)
        if get_origin(kind) is abc.Mapping:
            return self.shares(key, within)
        if get_origin(kind) is tuple:
            part = get_args(kind)[0]
            return tuple(part.read(inner) for inner in self.sections(key)) or None
        if issubclass(kind, Part):
            inner = self.section(key)
            return kind.read(inner) if self.has(key) else None
        return self.choice(key, kind)

    def number(self, key: str, within: Within) -> float | None:
        """A finite number within its limits."""
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note(key, f"expected a number, got {value!r:.80}")
            return None
        number = _as_float(value)
        if not (
            math.isfinite(number)
            and within.above < number < within.below
            and within.least <= number <= within.most
        ):
            self.note(key, f"expected a number {within.words()}, got {value!r:.80}")
            return None
        return number

    def integer(self, key: str, within: Within) -> int | None:
        """A whole number within its limits."""
        value = self._take(key)
        if value is None:
            return None
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not within.least <= value <= within.most:
            self.note(key, f"expected a whole number {within.words()}, got {value!r:.80}")
            return None
        return int(value)

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self._take(key)
        if value is not None and not isinstance(value, bool):
            self.note(key, f"expected true or false, got {value!r:.80}")
            return None
        return value

    def choice(self, key: str, kind: type[E]) -> E | None:
        """A member of an enumeration of strings."""
        value = self._take(key)
        if value is None:
            return None
        known = {str(member.value): member for member in kind}
        if not isinstance(value, str) or value not in known:
            near = get_close_matches(str(value)[:_MAX_WORD], known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.note(key, f"expected one of {', '.join(known)}, got {value!r:.80}{hint}")
            return None
        return known[value]

    def interval(self, key: str) -> tuple[float, float] | None:
        """Two finite numbers, the lower first."""
        value = self._take(key)
        if value is None:
            return None
        ends = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
        numbers = [_as_float(end) for end in ends if isinstance(end, int | float)]
        if (len(ends), len(numbers)) != (2, 2) or not -math.inf < numbers[0] < numbers[
            1
        ] < math.inf:
            self.note(key, f"expected [lo, hi] with lo < hi, got {value!r:.80}")
            return None
        return numbers[0], numbers[1]

    def shares(self, key: str, within: Within) -> dict[str, float] | None:
        """An object of names with shares."""
        value = self._take(key)
        if value is None:
            return None
        inner = Section(value, f"{self.pointer}/{key}", self.problems)
        read = {name: inner.number(name, within) for name in inner._fields}
        if isinstance(value, Mapping) and not read:
            inner.note(None, "expected at least one tag")
        return {name: share for name, share in read.items() if share is not None}

    def section(self, key: str) -> "Section":
        """An object inside; an empty one where it is absent."""
        return Section(self._take(key), f"{self.pointer}/{key}", self.problems)

    def sections(self, key: str) -> list["Section"]:
        """A list of objects inside."""
        value = self._take(key)
        if value is None:
            return []
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.note(key, f"expected a list, got {value!r:.80}")
            return []
        if len(value) > MAX_RULES:
            self.note(key, f"expected at most {MAX_RULES}, got {len(value)}")
            return []
        if value and self.depth == MAX_DEPTH:
            self.note(key, f"expected lists at most {MAX_DEPTH} deep in each other")
            return []
        return [
            Section(entry, f"{self.pointer}/{key}/{position}", self.problems, self.depth + 1)
            for position, entry in enumerate(value)
        ]

    def close(self, also_known: Sequence[str] = ()) -> None:
        """Note every field that nobody asked for."""
        known = [*also_known, *self._read]
        for key in [key for key in self._fields if key not in known][:_MAX_UNKNOWN]:
            near = get_close_matches(str(key)[:_MAX_WORD], known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
            self.note(str(key), f"unknown field; {hint}")

    def _take(self, key: str) -> Any:  # JSON can be anything; each getter checks its own
        self._read.append(key)
        return self._fields.get(key)


def _as_float(value: float) -> float:
    """Without end where it has hundreds of digits."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _escaped(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901, section 3)."""
    return key.replace("~", "~0").replace("/", "~1")


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, Part):
        return value.to_dict()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


class Part:
    """A frozen dataclass that reads itself from JSON, by its annotations, and writes itself.

    One with a method `check` notes there, in the section, what does not go together.
    """

    __slots__ = ()

    @classmethod
    def read(cls, section: Section) -> Self:
        """From JSON; faults are noted in the section, and then it may hold anything."""
        made = cls(**section.given(cls))
        check: Callable[[Section], None] | None = getattr(made, "check", None)
        if check is not None:
            check(section)
        return made

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        return {name: _plain(getattr(self, name)) for name in forms_of(type(self))}
