"""Small banks of the tests: open questions, and parameters alone."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from app.engine.bank import ItemBank
from app.exchange.item_record import ItemRecord
from app.items import ItemContent
from app.records.banks import BankSpec, BankVersion
from app.services.banks.imports import BankImport
from app.services.container import Services
from tests.values import not_none


def question(key: str, *target: str, **more: Any) -> ItemRecord:
    """Return an item whose prompt is its key, with these other fields."""
    content = ItemContent(prompt=f"{key}?", target=target or ("x",))
    return ItemRecord(key=key, content=content, **more)


def alike(*keys: str) -> ItemBank:
    """Return equally informative items."""
    return spread(*keys, lowest=0.0)


def spread(*keys: str, lowest: float = -2.0, a: float = 1.0) -> ItemBank:
    """Return items of difficulties from the lowest to its opposite."""
    n = len(keys)
    return ItemBank.from_difficulties(
        a=np.full(n, a), b=np.linspace(lowest, -lowest, n), item_ids=keys
    )


async def make_bank(
    services: Services,
    bank: str | BankSpec,
    parameters: ItemBank | None = None,
    items: Iterable[ItemRecord] = (),
    **more: Any,
) -> BankVersion:
    """Create a bank of this name or description; `more` as for an import."""
    spec = BankSpec(name=bank) if isinstance(bank, str) else bank
    request = BankImport(items=list(items), parameters=parameters, **more)
    return not_none((await services.banks.import_bank(spec, request)).version)
