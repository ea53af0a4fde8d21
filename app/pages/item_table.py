"""The items of a version as a table that the server sorts, filters and cuts into pages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from cachetools import TTLCache

from app.api.schemas.versions import VersionItemRead
from app.records.banks import BankVersion
from app.records.item_uses import ItemUse
from app.services.banks.loaded import LoadedVersion
from app.services.banks.uses import ItemUses
from app.services.banks.versions import VersionService
from app.storage.paging import PageRequest

Column = Literal["position", "key", "b", "a", "c", "d", "status", "flags", "asked", "mean"]
PER_PAGE: Final = 100
#: Versions whose rows are kept, and seconds: use grows while they are.
_KEPT, _KEPT_S = 4, 60.0
_MOST_ITEMS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class ItemRow:
    """An item, its tags, and how it was used."""

    item: VersionItemRead
    tags: tuple[str, ...]
    use: ItemUse | None


@dataclass(frozen=True, slots=True)
class Items:
    """All of a version.

    Attributes:
        n_tests: Of the version; use is a share of it.
    """

    rows: Sequence[ItemRow]
    n_tests: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """What of them, and in which order."""

    sort: Column = "position"
    descending: bool = False
    status: str | None = None
    tag: str | None = None
    flag: str | None = None
    text: str | None = None
    page: int = 1


_tables: TTLCache[tuple[str, str], Items] = TTLCache(_KEPT, _KEPT_S)


async def items_of(
    versions: VersionService,
    uses: ItemUses,
    version: BankVersion,
    loaded: LoadedVersion,
    *,
    seen_by: str,
) -> Items:
    """The rows of a version by position.

    Args:
        versions: Where items are.
        uses: Where answers are.
        version: Whose.
        loaded: The same in memory.
        seen_by: Whose tests count: what is kept for one is not shown to others.
    """
    key = (version.id, seen_by)
    found = _tables.get(key)
    if found is None:
        everything = PageRequest(limit=_MOST_ITEMS, descending=False)
        stored = await versions.items(version.bank_id, version.id, everything)
        n_tests, used = await uses.of_version(version.id)
        rows = [
            ItemRow(
                VersionItemRead.read(item),
                loaded.tags[item.position] if item.position < len(loaded.tags) else (),
                used.get(item.position),
            )
            for item in stored.items
        ]
        found = _tables[key] = Items(rows, n_tests)
    return found


def chosen(items: Items, wanted: Wanted) -> list[ItemRow]:
    """Rows that pass the filters, in order; what has no value stands last."""
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


def flag_counts(items: Items) -> Mapping[str, int]:
    """How many items each finding is about, the most frequent first."""
    counts: dict[str, int] = {}
    for row in items.rows:
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
