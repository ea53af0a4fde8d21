"""Bank versions as files."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from app.engine.bank import ItemBank
from app.exchange.bank_files import BankFormat, item_line, write_bank
from app.exchange.item_record import MAX_PARAMETER
from app.exchange.parameters import shortest_difficulties
from app.exchange.slopes import slopes_by_name
from app.fair_semaphore import FairSemaphore
from app.records.banks import ACTIVE, OPEN, QUARANTINED, BankVersion, Item, VersionItem
from app.services.banks.imports import item_fields
from app.services.banks.loaded import LoadedVersion
from app.services.banks.versions import VersionService
from app.services.visibility import View
from app.services.waiting import InProgress
from app.storage.database import Database

#: Items in one read: it makes one block of the file in memory, in a short transaction.
_PAGE = 100
_BLOCK_BYTES = 1 << 18
#: Callers that ask for files take turns, one block each.
_MAKING = FairSemaphore(1, waiting=10_000, spare=1)
#: Number of finished files kept for the next request; each takes some megabytes at most.
_KEPT = 2

Page = Sequence[tuple[VersionItem, Item]]


@dataclass(frozen=True, slots=True)
class BankFile:
    """A bank version as a file to send."""

    version: BankVersion
    name: str
    media_type: str
    blocks: AsyncIterator[bytes]
    withheld: bool = False


class BankExports:
    """Gives out bank versions."""

    def __init__(self, database: Database, versions: VersionService) -> None:
        self._database = database
        self._versions = versions
        self._kept: LRUCache[tuple[str, BankFormat], tuple[ItemBank, bytes]] = LRUCache(_KEPT)
        self._writing: InProgress[tuple[str, BankFormat], bytes] = InProgress()

    async def export(
        self, bank: str, version: str | None, file_format: BankFormat, *, reveal: bool
    ) -> BankFile:
        """One version as a file of all items with parameters; `jsonl` includes pretest items.

        Raises:
            NotFoundError: No such bank or version.
            ItemBankError: The format cannot hold the parameters.
        """
        found = await self._versions.get(bank, version)
        loaded = await self._versions.load(found.id)
        name = f"{loaded.bank_name}-v{found.number}.{file_format.suffix}"
        withheld = False
        if file_format is BankFormat.JSONL:
            withheld = not View(is_whole=reveal).shows(withheld=loaded.visibility != OPEN)
            write = await asyncio.to_thread(_line_writer, loaded.bank, withheld=withheld)
            blocks = written_by_page(self._database, found.id, write)
        else:
            blocks = _cut(await self._written(loaded, file_format))
        return BankFile(found, name, file_format.media_type, blocks, withheld)

    async def _written(self, version: LoadedVersion, file_format: BankFormat) -> bytes:
        """The whole file; requests for the same file at the same time write it only once."""
        asked = version.id, file_format
        bank, content = self._kept.get(asked, (None, b""))
        if bank is not version.bank:
            content = await self._writing.once(
                asked, lambda: asyncio.to_thread(_write, version, file_format)
            )
            self._kept[asked] = version.bank, content
        return content


async def written_by_page(
    database: Database, version_id: str, write: Callable[[Page], bytes]
) -> AsyncIterator[bytes]:
    """All items of a version as a file; each block is one page of items.

    Pages are made one at a time over all requests, plus one more for another API key.

    Args:
        database: Where the items are.
        version_id: The version.
        write: Turns a page into a block of the file; runs in a thread.
    """
    after = -1
    while True:
        async with _MAKING.turn():
            async with database.unit_of_work() as uow:
                page = await uow.versions.contents(version_id, after=after, limit=_PAGE)
            if not page:
                return
            block = await asyncio.to_thread(write, page)
        yield block
        after = page[-1][0].position


def _write(version: LoadedVersion, file_format: BankFormat) -> bytes:
    statuses = [ACTIVE if active else QUARANTINED for active in version.active.tolist()]
    return write_bank(version.bank, file_format, statuses)


async def _cut(content: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(content), _BLOCK_BYTES):
        yield content[start : start + _BLOCK_BYTES]


def _line_writer(bank: ItemBank, *, withheld: bool) -> Callable[[Page], bytes]:
    """Make a function that writes items as lines; slopes of several abilities are standardised."""
    bank = bank.standardised()
    difficulties, slopes = shortest_difficulties(bank), slopes_by_name(bank)

    def line(member: VersionItem, item: Item) -> bytes:
        fields = item_fields(item)
        if withheld:
            fields |= dict.fromkeys(("prompt", "messages", "choices", "target", "scorer"))
        if member.a is not None:
            at = member.position
            b = float(difficulties[at])
            fields |= {
                "a": float(bank.a[at]),
                # Where a is about 0, no difficulty exists, or none with a meaning.
                "b": b if abs(b) <= MAX_PARAMETER else None,
                "intercept": float(bank.intercept[at]),
                "slopes": {name: float(values[at]) for name, values in slopes.items()},
                "c": member.c,
                "d": member.d,
                "k": member.k,
            }
        return item_line(fields)

    return lambda page: b"".join(line(*each) for each in page)
