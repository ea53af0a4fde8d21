"""Client of Sextant: adaptive tests over its REST API, synchronously or with asyncio."""

from sextant_client.client import AsyncSextant, Sextant
from sextant_client.errors import NotSextantError, ProblemError, SextantError, UnreachableError
from sextant_client.models import Answer, Answered, Event, Examinee, Item, Session

__all__ = [
    "Answer",
    "Answered",
    "AsyncSextant",
    "Event",
    "Examinee",
    "Item",
    "NotSextantError",
    "ProblemError",
    "Session",
    "Sextant",
    "SextantError",
    "UnreachableError",
]
