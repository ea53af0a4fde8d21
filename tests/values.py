"""What tests assert of a value before they look into it."""

from typing import TypeVar

T = TypeVar("T")


def not_none(value: T | None) -> T:
    """Return a value that is there."""
    assert value is not None
    return value


def of_kind(value: object, kind: type[T]) -> T:
    """Return a value of this kind."""
    assert isinstance(value, kind), value
    return value
