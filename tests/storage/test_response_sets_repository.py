"""Response sets are written in batches, whatever the names of items and examinees."""

from dataclasses import replace

import pytest

from app.records.response_sets import ResponseSet, StoredSheet
from app.services.responses.service import new_set
from app.storage.database import Database
from app.storage.repositories import response_sets

#: Characters of array literals and placeholders of parameters.
NAMES = [
    *("NULL", "null", "", "a,b", 'a"b', "a\\b", "{x}", "{}", '"', "\\", '\\"', "'", "x\ny", "\t"),
    *(" lead", "trail ", "é\u2028", "😀", "\x01", "%s", ":set_id", "a" * 2000),
]


async def stored(database: Database, response_set: ResponseSet) -> list[StoredSheet]:
    async with database.snapshot() as uow:
        assert await uow.response_sets.item_keys(response_set.id) == NAMES
        return [sheet async for sheet in uow.response_sets.sheets(response_set.id)]


@pytest.mark.parametrize("answers_at_once", [2**22, 3 * len(NAMES), 1])
async def test_batches_are_read_back(
    database: Database, monkeypatch: pytest.MonkeyPatch, answers_at_once: int
) -> None:
    monkeypatch.setattr(response_sets, "_BATCH_ANSWERS", answers_at_once)
    made = replace(new_set("answers"), n_items=len(NAMES))
    sheets = [
        StoredSheet(name, 1, bytes([at, 0, 255, 34, 92]), None if at % 2 else bytes(16))
        for at, name in enumerate(NAMES)
    ]
    async with database.unit_of_work() as uow:
        await uow.response_sets.add(made)
        written = await uow.response_sets.extend(
            made, items=dict(enumerate(NAMES)), added=list(enumerate(sheets)), changed=[]
        )
    assert written.revision == made.revision + 1
    assert await stored(database, made) == sheets

    changed = [replace(sheet, codes=b"", fractions=None) for sheet in sheets]
    async with database.unit_of_work() as uow:
        await uow.response_sets.extend(written, items={}, added=[], changed=changed)
    assert await stored(database, made) == changed
