"""Pages with cursors over tables whose ids sort by time."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")

#: Largest number of characters in the texts of one page, for lists whose texts may be long.
MOST_CHARS = 8_000_000
#: Characters fetched and decoded at a time; decoding blocks all other tasks of the process.
_AT_ONCE = 1_000_000
#: Number of entries fetched first, to estimate how many more fit.
_FIRST = 16


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The requested part of a list.

    Attributes:
        limit: Largest number of entries.
        after: Id of the entry that the page follows; `None` for the first page.
        descending: Whether the newest entries come first.
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
    """A page of long entries: it may end early, after at least one entry, but skips no entry.

    Args:
        fetch: Returns a number of entries after a given one; fewer only at the end of the list.
        limit: Largest number of entries.
        chars_of: Number of characters in an entry's texts.
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
