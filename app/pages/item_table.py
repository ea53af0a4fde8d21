"""The items of a version as a table that the server sorts, filters and divides into pages."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal
from weakref import WeakValueDictionary

from cachetools import TTLCache

from app.api.schemas.banks.versions import VersionItemRead
from app.records.banks import BankVersion, ItemUse, VersionItem
from app.services.banks.items import ItemUses
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.storage.paging import PageRequest

Column = Literal["position", "key", "b", "a", "c", "d", "status", "flags", "asked", "mean"]
PER_PAGE: Final = 100
#: Versions whose rows are kept, and for how many seconds: use of the items grows meanwhile.
_KEPT, _KEPT_S = 4, 60.0
#: Rows that are read before other requests have their turn.
_AT_ONCE: Final = 1_000


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item, its tags, and its use in sessions."""

    item: VersionItemRead
    tags: tuple[str, ...]
    use: ItemUse | None


@dataclass(frozen=True, slots=True)
class Items:
    """All items of a version.

    Attributes:
        n_tests: Number of sessions on the version; use of an item is a share of it.
        flags: Number of items with each finding, the most frequent first.
    """

    rows: Sequence[ItemRow]
    n_tests: int
    flags: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Filters and order of the items."""

    sort: Column = "position"
    descending: bool = False
    status: str | None = None
    tag: str | None = None
    flag: str | None = None
    text: str | None = None
    page: int = 1


_tables: TTLCache[tuple[str, str], Items] = TTLCache(_KEPT, _KEPT_S)
_making: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()


async def items_of(
    versions: VersionService,
    uses: ItemUses,
    version: BankVersion,
    loaded: LoadedVersion,
    *,
    seen_by: str,
) -> Items:
    """The rows of a version, ordered by position.

    Args:
        versions: Reads the items.
        uses: Reads the use of items in sessions.
        version: Record of the bank version.
        loaded: The same version in memory.
        seen_by: Project whose sessions count; rows kept for one project serve no other.
    """
    key = (version.id, seen_by)
    # Requests that come while the rows are read wait for them.
    async with _making.setdefault(key, asyncio.Lock()):
        found = _tables.get(key)
        if found is None:
            rows, (n_tests, used) = [], await uses.of_version(version.id)
            async for item in _stored(versions, version):
                tags = loaded.tags[item.position] if item.position < len(loaded.tags) else ()
                rows.append(ItemRow(VersionItemRead.read(item), tags, used.get(item.position)))
            found = _tables[key] = Items(rows, n_tests, flag_counts(rows))
    return found


async def _stored(versions: VersionService, version: BankVersion) -> AsyncIterator[VersionItem]:
    after, more = None, True
    while more:
        request = PageRequest(limit=_AT_ONCE, after=after, descending=False)
        found = await versions.items(version.bank_id, version.id, request)
        for item in found.items:
            yield item
        after, more = found.items[-1].item_id if found.items else None, found.has_more


def chosen(items: Items, wanted: Wanted) -> list[ItemRow]:
    """Rows that pass the filters, in order; rows without a value come last."""
    text = (wanted.text or "").casefold()
    rows = [
        row
        for row in items.rows
        if (wanted.status is None or row.item.status == wanted.status)
        and (wanted.tag is None or wanted.tag in row.tags)
        and (wanted.flag is None or any(flag.code == wanted.flag for flag in row.item.flags))
        and text in row.item.key.casefold()
    ]
    known = [row for row in rows if _value(row, wanted.sort) is not None]
    unknown = [row for row in rows if _value(row, wanted.sort) is None]
    known.sort(key=lambda row: _value(row, wanted.sort) or 0, reverse=wanted.descending)
    return known + unknown


def flag_counts(rows: Sequence[ItemRow]) -> Mapping[str, int]:
    """Number of rows with each finding, the most frequent first."""
    counts: dict[str, int] = {}
    for row in rows:
        for code in {flag.code for flag in row.item.flags}:
            counts[code] = counts.get(code, 0) + 1
    return dict(sorted(counts.items(), key=lambda entry: -entry[1]))


def _value(row: ItemRow, column: Column) -> float | str | None:
    match column:
        case "flags":
            return len(row.item.flags)
        case "asked":
            return row.use.asked if row.use else 0
        case "mean":
            return row.use.mean if row.use else None
        case _:
            value: float | str | None = getattr(row.item, column)
            return value
