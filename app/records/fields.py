"""Frozen values made of others that have fields of the same names."""

from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def shallow(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass by name, as they are."""
    return {name: getattr(value, name) for name in _names(type(value))}


def not_none(value: "DataclassInstance") -> dict[str, Any]:
    """The fields of a dataclass that are not None."""
    return {name: given for name, given in shallow(value).items() if given is not None}


def convert(kind: type[T], source: object, **said: Any) -> T:
    """A dataclass of the attributes that `source` has of its fields' names, but for those said."""
    return kind(
        **{name: getattr(source, name) for name in _names(kind) if name not in said}, **said
    )


@lru_cache(maxsize=256)
def _names(kind: "type[DataclassInstance]") -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
