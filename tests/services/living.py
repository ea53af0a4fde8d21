"""Helpers of the tests of banks in which some items have no parameters yet."""

from collections.abc import Sequence

from app.demo.bank import demo_bank
from app.engine.bank import ItemBank
from app.records.banks import BankVersion
from app.services.banks.imports import demo_import
from app.services.container import Services
from tests.services.banks import make_bank

BANK = "living"


def some_of(bank: ItemBank, rows: Sequence[int]) -> ItemBank:
    """Return a bank of some of the items."""
    return ItemBank.from_intercepts(
        a=bank.a[list(rows)],
        intercept=bank.intercept[list(rows)],
        c=bank.c[list(rows)],
        d=bank.d[list(rows)],
        item_ids=[bank.item_ids[row] for row in rows],
    )


async def living_bank(services: Services, *, every: int = 5, scale: str = "old") -> BankVersion:
    """Create a bank of the demo's items in which each `every`-th one is in pretest."""
    demo = demo_bank()
    known = [row for row in range(len(demo.items)) if row % every]
    parameters = some_of(demo.item_bank(), known)
    return await make_bank(services, BANK, parameters, demo_import(demo).items, scale=scale)
