"""Reads a JSON object field by field and collects every fault with its JSON pointer."""

import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import Enum, StrEnum
from typing import Any, TypeVar

from app.errors import FieldProblem

E = TypeVar("E", bound=Enum)


class Section:
    """One JSON object being read.

    Every getter returns None where the field is absent or null, and also after noting a problem:
    values may be used only once `problems` has stayed empty.

    Args:
        value: What should be an object.
        pointer: Its JSON pointer; "" for the whole document.
        problems: Where faults are noted, shared by all sections of a document.
    """

    def __init__(self, value: object, pointer: str, problems: list[FieldProblem]) -> None:
        self.pointer = pointer
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

    def number(
        self,
        key: str,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
        below: float = math.inf,
    ) -> float | None:
        """A finite number within its limits."""
        value = self._take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.note(key, f"expected a number, got {value!r:.80}")
            return None
        limits = [
            f"{sign} {limit:g}"
            for sign, limit in ((">", above), (">=", least), ("<=", most), ("<", below))
            if math.isfinite(limit)
        ]
        try:
            number = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            number = math.inf
        if not (math.isfinite(number) and above < number < below and least <= number <= most):
            wanted = " and ".join(limits) or "finite"
            self.note(key, f"expected a number {wanted}, got {value!r:.80}")
            return None
        return number

    def integer(self, key: str, *, least: int, most: int | None = None) -> int | None:
        """A whole number within its limits."""
        value = self._take(key)
        if value is None:
            return None
        wanted = f">= {least}" + ("" if most is None else f" and <= {most}")
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or value < least or (most is not None and value > most):
            self.note(key, f"expected a whole number {wanted}, got {value!r:.80}")
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
            near = get_close_matches(str(value), known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            self.note(key, f"expected one of {', '.join(known)}, got {value!r:.80}{hint}")
            return None
        return known[value]

    def interval(self, key: str) -> tuple[float, float] | None:
        """Two finite numbers, the lower first."""
        value = self._take(key)
        if value is None:
            return None
        if (
            isinstance(value, str)
            or not isinstance(value, Sequence)
            or len(value) != 2
            or not all(isinstance(end, int | float) and math.isfinite(end) for end in value)
            or not value[0] < value[1]
        ):
            self.note(key, f"expected [lo, hi] with lo < hi, got {value!r:.80}")
            return None
        return float(value[0]), float(value[1])

    def shares(self, key: str) -> dict[str, float] | None:
        """An object of names with shares in (0, 1]."""
        value = self._take(key)
        if value is None:
            return None
        inner = Section(value, f"{self.pointer}/{key}", self.problems)
        read = {name: inner.number(name, above=0.0, most=1.0) for name in inner._fields}
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
        return [
            Section(entry, f"{self.pointer}/{key}/{position}", self.problems)
            for position, entry in enumerate(value)
        ]

    def close(self, also_known: Sequence[str] = ()) -> None:
        """Note every field that nobody asked for."""
        known = [*also_known, *self._read]
        for key in self._fields:
            if key not in known:
                near = get_close_matches(str(key), known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
                self.note(str(key), f"unknown field; {hint}")

    def _take(self, key: str) -> Any:  # JSON can be anything; each getter checks its own
        self._read.append(key)
        return self._fields.get(key)


def _escaped(key: str) -> str:
    """A key as one step of a JSON pointer (RFC 6901, section 3)."""
    return key.replace("~", "~0").replace("/", "~1")


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were there, so that the others keep their defaults."""
    return {name: value for name, value in fields.items() if value is not None}


def as_json(document: Mapping[str, Any]) -> dict[str, Any]:
    """What `asdict` gives, with enumerations as their strings and tuples as lists."""
    return {key: _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return as_json(value)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value
