"""Parameters that several routes take, and lists: `?limit=20&after=<id>&order=asc|desc`."""

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Path, Query

from app.shapes import Int32, ListRead, SortOrder
from app.storage.paging import Page, PageRequest
from app.validation import ANY_ID, VERSION

D = TypeVar("D")
R = TypeVar("R")


def id_path(prefix: str) -> Any:
    """A path parameter that takes ids with this prefix."""
    example = f"{prefix}_01jd0000000000000000000000"
    return Path(pattern=rf"^{prefix}_[0-9a-z]{{26}}$", examples=[example])


def name_path(what: str, example: str) -> Any:
    """A path parameter that takes the id or name of something."""
    said = f"Id or name of the {what}."
    return Path(min_length=1, max_length=200, description=said, examples=[example])


BankRef = Annotated[str, name_path("bank", "demo")]
VersionRef = Annotated[
    str,
    Path(
        pattern=VERSION,
        description="Number or id of the version, or `latest`.",
        examples=["latest"],
    ),
]
Erase = Annotated[
    bool,
    Query(
        description="Delete permanently and at once, with everything stored about it. Answers 409, "
        "and says what uses it, if anything still does."
    ),
]
Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of entries on the page.")]
#: Limit for lists in order, which clients read to the end: a bank has thousands of items.
_LongLimit = Annotated[
    int, Query(ge=1, le=1000, description="Maximum number of entries on the page.")
]
_After = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=64,
        pattern=ANY_ID,
        description="Start after this id: the `last_id` of the previous page.",
    ),
]

#: Position to list behind; -1 begins with the first.
AfterPosition = Annotated[Int32, Query(ge=-1, description="Start after this position.")]
AfterStep = Annotated[Int32, Query(ge=0, description="Start after this step.")]


async def _newest_first(
    limit: Limit = 20, after: _After = None, order: Annotated[SortOrder, Query()] = "desc"
) -> PageRequest:
    return PageRequest(limit=limit, after=after, descending=order == "desc")


async def _oldest_first(
    limit: _LongLimit = 20, after: _After = None, order: Annotated[SortOrder, Query()] = "asc"
) -> PageRequest:
    return PageRequest(limit=limit, after=after, descending=order == "desc")


#: Page parameters of a list that shows the newest first.
Paging = Annotated[PageRequest, Depends(_newest_first)]
#: Page parameters of a list in order of creation (items of a bank, answers of a session).
PagingInOrder = Annotated[PageRequest, Depends(_oldest_first)]


def _as_it_is(value: D) -> Any:
    return value


def list_of(
    page: Page[D],
    read: Callable[[D], R] = _as_it_is,
    *,
    identify: Callable[[D], str] = attrgetter("id"),
) -> ListRead[R]:
    """Make the body of a list.

    Args:
        page: Page of domain values, as the service returned it.
        read: Converts a value to its outgoing schema, unless it has that already.
        identify: Returns the id of a value.
    """
    ids = [identify(item) for item in page.items]
    return ListRead(
        data=[read(item) for item in page.items],
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=page.has_more,
    )
