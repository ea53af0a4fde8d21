"""Frozen values made of others that have fields of the same names."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def shallow(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {field.name: getattr(value, field.name) for field in fields(value)}


def made_of(kind: type[T], source: object, **said: Any) -> T:
    """A dataclass of the attributes that `source` has of its fields' names, but for those said."""
    names = (field.name for field in fields(kind) if field.name not in said)
    return kind(**{name: getattr(source, name) for name in names}, **said)
