"""Scorers: an item and a written answer in, a mark out.

`build` makes a scorer from its stored description, `mark` marks an answer with it.
"""

from typing import Any

from app.items import ScorerSpec
from app.scorers.base import Mark, NotScored, Scored, Scorer, ScorerParams
from app.scorers.marking import mark
from app.scorers.reference import reference_answers
from app.scorers.registry import default_registry
from app.scorers.workbench import aclose

__all__ = [
    "Mark",
    "NotScored",
    "Scored",
    "Scorer",
    "ScorerParams",
    "aclose",
    "build",
    "describe",
    "mark",
    "reference_answers",
]


def build(spec: ScorerSpec) -> Scorer:
    """The scorer that `spec` describes.

    Raises:
        UnknownNameError: No scorer of that name is installed.
        InvalidInputError: A parameter is unknown or has a wrong value.
    """
    return default_registry().build(spec)


def describe() -> list[dict[str, Any]]:
    """What is installed: name, description, schema of the parameters, scales, version."""
    return default_registry().describe()
