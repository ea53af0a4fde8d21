"""The table of a version's items: order, filters, missing values, and reading in slices."""

import asyncio

import pytest

from app.api.schemas.versions import VersionItemRead
from app.pages import item_table
from app.pages.item_table import ItemRow, Items, Wanted, chosen, flag_counts, items_of
from app.records.banks import ItemUse
from app.settings import Settings
from app.storage.database import Database
from tests.services.sessions import opened


def row(position: int, b: float | None, **given: object) -> ItemRow:
    item = {
        "item_id": f"itm_{position}",
        "key": f"Key {position}",
        "position": position,
        "status": "active",
        "a": 1.0,
        "b": b,
        "intercept": 0.0,
        "c": 0.0,
        "d": 1.0,
        "k": None,
        "flags": [],
        "pretest_sessions": 0,
        **given,
    }
    use = ItemUse(position=position, asked=position, marked=0, mean=None) if position else None
    return ItemRow(VersionItemRead.read(item), (f"task-{position % 2}",), use)


FLAG = {
    "code": "misfit",
    "severity": "warning",
    "field": "a",
    "value": 1.0,
    "message": "It leaves.",
}
ROWS = [
    row(0, 0.5),
    row(1, None, status="pretest"),
    row(2, -1.0, status="quarantined", flags=[FLAG, FLAG]),
    row(3, 2.0, flags=[FLAG]),
]
ITEMS = Items(ROWS, n_tests=9, flags=flag_counts(ROWS))


def positions(**wanted: object) -> list[int]:
    return [found.item.position for found in chosen(ITEMS, Wanted(**wanted))]  # type: ignore[arg-type]


def test_items_are_sorted_with_missing_values_last_in_both_orders() -> None:
    assert positions() == [0, 1, 2, 3]
    assert positions(sort="b") == [2, 0, 3, 1]
    assert positions(sort="b", descending=True) == [3, 0, 2, 1]
    assert positions(sort="asked", descending=True) == [3, 2, 1, 0]
    assert positions(sort="flags", descending=True)[:2] == [2, 3]


def test_items_are_filtered_by_state_task_finding_and_part_of_their_key() -> None:
    assert positions(status="quarantined") == [2]
    assert positions(tag="task-1") == [1, 3]
    assert positions(flag="misfit") == [2, 3]
    assert positions(text="kEY 3") == [3]
    assert positions(text="(", flag="misfit") == []
    assert ITEMS.flags == {"misfit": 2}  # items, not findings


async def test_rows_are_read_in_slices_and_once_for_all_readers(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_table, "_AT_ONCE", 100)
    async with opened(settings, database) as services:
        version = await services.versions.get("demo", "latest")
        loaded = await services.versions.load(version.id)

        async def look() -> Items:
            return await items_of(
                services.versions, services.item_uses, version, loaded, seen_by="somebody"
            )

        found = await asyncio.gather(*(look() for _ in range(5)))

    assert [one.item.position for one in found[0].rows] == list(range(loaded.bank.n_items))
    assert len(found[0].rows) % 100
    assert all(one is found[0] for one in found)
