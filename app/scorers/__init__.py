"""Scorers, which score a written answer to an item.

`build` makes a scorer from its stored spec, and `mark` scores an answer with it.
"""

from typing import Any

from app.items import ScorerSpec
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.calling import CallingScorer, Tools
from app.scorers.confined import aclose
from app.scorers.marking import check, examples, mark
from app.scorers.registry import default_registry

__all__ = [
    "CallingScorer",
    "Mark",
    "NotScored",
    "Scored",
    "ScorerParams",
    "Tools",
    "aclose",
    "build",
    "check",
    "describe",
    "examples",
    "mark",
]


def build(spec: ScorerSpec) -> ScorerParams:
    """Build the scorer that `spec` describes.

    Raises:
        UnknownNameError: No scorer of that name is installed.
        InvalidInputError: A parameter is unknown or has a wrong value.
    """
    return default_registry().build(spec)


def describe() -> list[dict[str, Any]]:
    """Installed scorers: name, description, schema of the parameters, scales and version."""
    return default_registry().describe()
