"""Scorers, which score a written answer to an item.

`build` makes a scorer from its stored spec, and `mark` scores an answer with it.
"""

from app.scorers.base import Mark, NotScored, Scored, Scorer
from app.scorers.calling import CallingScorer, Tools
from app.scorers.confined import aclose
from app.scorers.marking import check, examples, mark
from app.scorers.registry import build, describe

__all__ = [
    "CallingScorer",
    "Mark",
    "NotScored",
    "Scored",
    "Scorer",
    "Tools",
    "aclose",
    "build",
    "check",
    "describe",
    "examples",
    "mark",
]
