"""Client of Sextant: adaptive tests over its REST API, synchronously or with asyncio."""

from sextant_client.client import AsyncSextant, Sextant
from sextant_client.errors import (
    MissingFieldError,
    NotSextantError,
    ProblemError,
    SextantError,
    UnreachableError,
)
from sextant_client.models import Answer, Answered, Event, Examinee, Item, Session

__all__ = [
    "Answer",
    "Answered",
    "AsyncSextant",
    "Event",
    "Examinee",
    "Item",
    "MissingFieldError",
    "NotSextantError",
    "ProblemError",
    "Session",
    "Sextant",
    "SextantError",
    "UnreachableError",
]
