"""Many rows by few statements."""

import json
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncSession

# Rows per statement. They travel as one JSON text: as fast as COPY for these tables, and its errors
# are translated like those of any other statement.
_BATCH = 5000


async def insert_many(
    db: AsyncSession, statement: TextClause, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Run `statement` on all rows; its parameter `records` is a JSON array of them."""
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH)):
        records = json.dumps(batch, ensure_ascii=False, allow_nan=False)
        await db.execute(statement, {"records": records})
