"""Helpers for frozen values that are built from values with fields of the same names."""

import math
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import TypedDict

from app.items import JsonValue

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def shallow(value: "DataclassInstance") -> dict[str, Any]:
    """What a dataclass was made of, by name, without copying the values."""
    return {name: getattr(value, name) for name in _names(type(value))}


def not_none(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass that are not None."""
    return {name: given for name, given in shallow(value).items() if given is not None}


def convert(kind: type[T], source: object, **said: Any) -> T:
    """Make a dataclass from the attributes of `source` with its fields' names, and from `said`."""
    return kind(
        **{name: getattr(source, name) for name in _names(kind) if name not in said}, **said
    )


def restored(kind: type[T], stored: Mapping[str, JsonValue], **said: Any) -> T:
    """Make a dataclass from its fields stored as JSON, and from `said`, which takes precedence."""
    return kind(**{**stored, **said})


@lru_cache(maxsize=256)
def _names(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.init)


class Interval(TypedDict):
    """Interval for a true value, with its confidence level."""

    lo: float | None
    hi: float | None
    level: float


def interval(lo: float | None, hi: float | None, level: float = 0.95) -> Interval | None:
    """Make the interval between two ends; None if it has no ends.

    Args:
        lo: Lower end; None and infinity mean an open end.
        hi: Upper end, likewise.
        level: Coverage of the interval.
    """
    first, last = finite(lo), finite(hi)
    if first is None and last is None:
        return None
    return {"lo": first, "hi": last, "level": level}


def ends(told: Interval | None) -> tuple[float | None, float | None]:
    """Both ends of an interval; two Nones without one."""
    return (None, None) if told is None else (told["lo"], told["hi"])


def finite(value: float | None) -> float | None:
    """The value for JSON, which has no infinity; None if it is not finite."""
    return float(value) if value is not None and math.isfinite(value) else None
