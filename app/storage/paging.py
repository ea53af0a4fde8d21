"""Cursor pages over tables whose ids sort by time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: Characters of the texts of one page, where these may be long.
MOST_CHARS = 8_000_000
#: So many of them are fetched and decoded in one go, while which nothing else of this process runs.
_AT_ONCE = 1_000_000
#: So many entries are looked at before it is guessed how many more fit.
_FIRST = 16


@dataclass(frozen=True, slots=True)
class PageRequest:
    """Which part of a list is wanted.

    Attributes:
        limit: Entries at most.
        after: Id of the entry that the page follows; `None` for the first page.
        descending: Newest first.
    """

    limit: int = 20
    after: str | None = None
    descending: bool = True


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list, and whether more follows."""

    items: tuple[T, ...]
    has_more: bool


async def within_size(
    fetch: Callable[[T | None, int], Awaitable[Sequence[T]]],
    limit: int,
    chars_of: Callable[[T], int],
) -> Page[T]:
    """A page of what may be long: it ends early, with at least one entry, and loses nothing.

    Args:
        fetch: So many entries behind one, or from the first; fewer only where there are no more.
        limit: Entries at most.
        chars_of: How long an entry's texts are, characters.
    """
    found: list[T] = []
    chars, at_once = 0, min(limit + 1, _FIRST)
    while True:
        rows = await fetch(found[-1] if found else None, at_once)
        for row in rows:
            chars += chars_of(row)
            if len(found) == limit or (found and chars > MOST_CHARS):
                return Page(tuple(found), has_more=True)
            found.append(row)
        if len(rows) < at_once:
            return Page(tuple(found), has_more=False)
        room = min(MOST_CHARS - chars, _AT_ONCE)
        like_these = room * len(found) // max(chars, 1)
        at_once = max(1, min(limit + 1 - len(found), like_these))
