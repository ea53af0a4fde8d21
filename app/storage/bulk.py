"""Many rows by few statements, and changes that are refused when somebody else was faster."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import PreconditionFailedError
from app.items import JsonValue

#: Rows that are fetched in one go where there may be tens of thousands: between them others run.
STREAMED = 250
# Rows per statement. They travel as one JSON text: as fast as COPY for these tables, and its errors
# are translated like those of any other statement.
_BATCH = 1000


async def insert_many(
    db: AsyncSession, statement: TextClause, rows: Iterable[Mapping[str, JsonValue]]
) -> None:
    """Run `statement` on all rows; its parameter `records` is a JSON array of them."""
    remaining = iter(rows)
    # In a thread: rows are made as they are taken, and thousands of them are a tenth of a second.
    while records := await asyncio.to_thread(_next_batch, remaining):
        await db.execute(statement, {"records": records})


def _next_batch(remaining: Iterator[Mapping[str, JsonValue]]) -> str | None:
    batch = list(islice(remaining, _BATCH))
    return json.dumps(batch, ensure_ascii=False, allow_nan=False) if batch else None


def require_revision(what: str, actual: int, expected: int) -> None:
    """Let a change through only if it is based on the present revision, as If-Match names it.

    `what` begins the sentence of the error: `Bank 'sums'`.

    Raises:
        PreconditionFailedError: They differ.
    """
    if actual != expected:
        raise PreconditionFailedError(
            f"{what} is at revision {actual}, If-Match names {expected}: read it again."
        )
