"""Cursor pages over tables whose ids sort by time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from app.errors import NotFoundError

T = TypeVar("T")


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


async def read_page(
    db: AsyncSession,
    statement: Select[Any],
    request: PageRequest,
    *,
    key: InstrumentedAttribute[str],
    kind: str,
    read: Callable[[Any], T],
) -> Page[T]:
    """Run `statement` for one page.

    Args:
        db: Open session.
        statement: Selects one ORM class, or columns; filters applied, not ordered.
        request: Which page.
        key: Column of the ids, by which the list is ordered.
        kind: What the list holds, for the error.
        read: An ORM row, or a mapping of columns, to the domain's value.

    Raises:
        NotFoundError: Nothing has the id `after`. An entry that merely left the filter is fine.
    """
    if request.after is not None:
        if await db.scalar(select(key).where(key == request.after)) is None:
            raise NotFoundError(kind, request.after)
        statement = statement.where(
            key < request.after if request.descending else key > request.after
        )
    order: Any = key.desc() if request.descending else key.asc()
    found = await db.execute(statement.order_by(order).limit(request.limit + 1))
    is_one = len(statement.column_descriptions) == 1
    rows: Sequence[Any] = found.scalars().all() if is_one else found.mappings().all()
    return Page(
        items=tuple(read(row) for row in rows[: request.limit]),
        has_more=len(rows) > request.limit,
    )
