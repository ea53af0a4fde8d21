"""Overviews of banks for lists; this module imports no code that handles items or numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.records.banks import Bank, BankVersion
from app.storage.database import Database
from app.storage.paging import Page, PageRequest
from app.storage.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class BankOverview:
    """A bank with figures about its contents."""

    bank: Bank
    n_items: int
    latest: BankVersion | None


async def list_banks(database: Database, request: PageRequest) -> Page[BankOverview]:
    """One page of banks."""
    async with database.unit_of_work() as uow:
        page = await uow.banks.list_page(request)
        return Page(await overviews(uow, page.items), page.has_more)


async def overviews(uow: UnitOfWork, banks: Sequence[Bank]) -> tuple[BankOverview, ...]:
    """The overview of each of the banks."""
    ids = [bank.id for bank in banks]
    counts = await uow.items.counts(ids)
    latest = await uow.versions.latest(ids)
    return tuple(BankOverview(bank, counts[bank.id], latest.get(bank.id)) for bank in banks)
