"""Bank versions as files."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from app.engine.bank import FloatArray, ItemBank
from app.exchange.bank_files import BankFormat, item_line, write_bank
from app.exchange.item_record import MAX_PARAMETER
from app.exchange.parameters import shortest_difficulties
from app.exchange.slopes import slopes_by_name
from app.items import ItemContent
from app.records.banks import ACTIVE, OPEN, QUARANTINED, BankVersion, Item, VersionItem
from app.services.banks.imports import item_fields
from app.services.banks.versions import VersionService
from app.services.visibility import Sight
from app.storage.database import Database

#: Items of one read: a block of the file in memory, a short transaction.
_PAGE = 1000
_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class BankFile:
    """A version on its way out.

    Attributes:
        version: What it is.
        name: For the file.
        media_type: What HTTP calls it.
        blocks: Its bytes, part by part.
        withheld: Its items' content stays inside.
    """

    version: BankVersion
    name: str
    media_type: str
    blocks: AsyncIterator[bytes]
    withheld: bool = False


class BankExports:
    """Gives out bank versions.

    Args:
        database: Where the items are.
        versions: Keeps versions in memory.
    """

    def __init__(self, database: Database, versions: VersionService) -> None:
        self._database = database
        self._versions = versions

    async def export(
        self, bank: str, version: str | None, file_format: BankFormat, *, reveal: bool
    ) -> BankFile:
        """One version as a file: all items with parameters; `jsonl` has those in pretest, too.

        Args:
            bank: Id or name.
            version: Number, id or `latest`, the default.
            file_format: Of the file.
            reveal: Whether the content of a withheld bank may be given out.

        Raises:
            NotFoundError: No such bank or version.
            ItemBankError: Parameters that the format cannot hold.
        """
        found = await self._versions.get(bank, version)
        loaded = await self._versions.load(found.id)
        name = f"{loaded.bank_name}-v{found.number}.{file_format.suffix}"
        withheld = False
        if file_format is BankFormat.JSONL:
            withheld = not Sight(is_whole=reveal).shows(withheld=loaded.visibility != OPEN)
            blocks = self._lines(
                found.id, await asyncio.to_thread(_Numbers.of, loaded.bank), withheld=withheld
            )
        else:
            statuses = [ACTIVE if active else QUARANTINED for active in loaded.active.tolist()]
            content = await asyncio.to_thread(write_bank, loaded.bank, file_format, statuses)
            blocks = _cut(content)
        return BankFile(found, name, file_format.media_type, blocks, withheld)

    async def _lines(
        self, version_id: str, numbers: "_Numbers", *, withheld: bool
    ) -> AsyncIterator[bytes]:
        after = -1
        while True:
            async with self._database.unit_of_work() as uow:
                page = await uow.versions.contents(version_id, after=after, limit=_PAGE)
            if not page:
                return
            yield b"".join(_line(member, item, numbers, withheld=withheld) for member, item in page)
            after = page[-1][0].position


async def _cut(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _BLOCK_BYTES):
        yield content[start : start + _BLOCK_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """Parameters as they are written.

    Attributes:
        bank: Standardised, where it has several abilities.
        b: Difficulties, NaN where there is none, shape (n_items,).
        slopes: In several abilities, by name, shape (n_items,) each.
    """

    bank: ItemBank
    b: FloatArray
    slopes: Mapping[str, FloatArray]

    @classmethod
    def of(cls, bank: ItemBank) -> "_Numbers":
        bank = bank.standardised()
        return cls(bank, shortest_difficulties(bank, flat=True), slopes_by_name(bank))


def _line(member: VersionItem, item: Item, numbers: _Numbers, *, withheld: bool) -> bytes:
    fields = item_fields(item)
    if withheld or item.content == ItemContent():
        hidden = ("prompt", "messages", "choices", "target") + (("scorer",) if withheld else ())
        fields |= dict.fromkeys(hidden)
    tokens = {"in": item.expected_tokens_in, "out": item.expected_tokens_out}
    fields["expected_tokens"] = {way: n for way, n in tokens.items() if n is not None}
    if member.a is not None:
        at, bank = member.position, numbers.bank
        difficulty = float(numbers.b[at])
        fields |= {
            "a": float(bank.a[at]),
            # Where a is about 0 there is none, or none that means anything.
            "b": difficulty if abs(difficulty) <= MAX_PARAMETER else None,
            "intercept": float(bank.intercept[at]),
            "slopes": {name: float(values[at]) for name, values in numbers.slopes.items()},
            "c": member.c,
            "d": member.d,
            "k": member.k,
        }
    return item_line(fields)
