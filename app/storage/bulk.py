"""Write many rows by few statements, and refuse changes of an outdated revision."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import PreconditionFailedError
from app.items import JsonValue

#: Rows fetched at a time where there may be tens of thousands; other tasks run in between.
STREAMED = 250
# Rows per statement. They travel as one JSON text: as fast as COPY for these tables, and its errors
# are translated like those of any other statement.
_BATCH = 1000


async def insert_many(
    db: AsyncSession, statement: TextClause, rows: Iterable[Mapping[str, JsonValue]]
) -> None:
    """Run `statement` on all rows; its parameter `records` is a JSON array of them."""
    remaining = iter(rows)
    # In a thread, as the iterable makes rows lazily, and thousands of them take 0.1 s.
    while records := await asyncio.to_thread(_next_batch, remaining):
        await db.execute(statement, {"records": records})


def _next_batch(remaining: Iterator[Mapping[str, JsonValue]]) -> str | None:
    batch = list(islice(remaining, _BATCH))
    return json.dumps(batch, ensure_ascii=False, allow_nan=False) if batch else None


def require_revision(what: str, actual: int, expected: int) -> None:
    """Require that a change is based on the present revision, as named by If-Match.

    `what` is the start of the error message, such as `Bank 'sums'`.

    Raises:
        PreconditionFailedError: The revisions differ.
    """
    if actual != expected:
        raise PreconditionFailedError(
            f"{what} is at revision {actual}, If-Match names {expected}: read it again."
        )
