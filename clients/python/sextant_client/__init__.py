"""Client of Sextant: adaptive tests over its REST API, synchronously or with asyncio."""

from sextant_client.client import AsyncSextant, Sextant
from sextant_client.errors import (
    FieldProblem,
    NotSextantError,
    ProblemError,
    SextantError,
    UnreachableError,
)
from sextant_client.models import Answer, Answered, Examinee, Item, Session

__all__ = [
    "Answer",
    "Answered",
    "AsyncSextant",
    "Examinee",
    "FieldProblem",
    "Item",
    "NotSextantError",
    "ProblemError",
    "Session",
    "Sextant",
    "SextantError",
    "UnreachableError",
]
