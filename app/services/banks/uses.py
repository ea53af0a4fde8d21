"""How often a version's items were asked, and how they were answered."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from app.engine.inference.diagnostics import overlap_of_counts
from app.printable import percent
from app.records.banks import ItemAnswer, ItemUse
from app.services.banks.loaded import LoadedVersion
from app.storage.database import Database

#: Above these, items become known. Guides of operational testing: an item in 20 to 30 % of the
#: tests, and 10 to 15 % of items shared by two tests (Way 1998, Educational Measurement 17).
MOST_EXPOSURE, MOST_OVERLAP = 0.3, 0.15
#: With fewer tests than this, neither rate says much.
LEAST_TESTS = 20
_MOST_ASKED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedItem:
    """An item that many tests asked."""

    item_id: str
    asked: int
    exposure: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedTask:
    """Items of one tag."""

    tag: str
    asked: float
    bank: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemExposure:
    """How widely the tests of a version spread over its items.

    Attributes:
        tests: Number of tests that asked at least one item.
        n_items: Number of items of the version.
        n_asked: Number of items asked at least once.
        exposure_mean: Mean over the items of the share of tests that asked the item.
        exposure_max: Largest share of tests that asked one item.
        overlap: Share of a test's items that another test asks, too.
        most_asked: The most used items, in descending order of use.
        tasks: Exposure by tag.
        caution: Which guides are exceeded; None where none is, or there are too few tests.
    """

    tests: int
    n_items: int
    n_asked: int
    exposure_mean: float
    exposure_max: float
    overlap: float
    most_asked: Sequence[ExposedItem]
    tasks: Sequence[ExposedTask]
    caution: str | None


@dataclass(frozen=True, eq=False)
class ItemUses:
    """Reads the tests of a version; stores nothing."""

    database: Database

    async def of_version(self, version_id: str) -> tuple[int, dict[int, ItemUse]]:
        """Number of tests that asked any item, and the use of each asked item by position."""
        async with self.database.reading() as uow:
            return await uow.item_uses.tests(version_id), await uow.item_uses.of_version(version_id)

    async def exposure(self, version: LoadedVersion) -> ItemExposure:
        """How widely tests spread over a version's items, without pretest items."""
        tests, uses = await self.of_version(version.id)
        counts = np.zeros(version.bank.n_items, dtype=np.intp)
        for position, use in uses.items():
            if position < counts.size:
                counts[position] = use.asked
        rates = counts / max(tests, 1)
        overlap = overlap_of_counts(counts, tests)
        order = np.argsort(-counts, kind="stable")[:_MOST_ASKED]
        of_bank = Counter(chain.from_iterable(version.tags))
        of_asked: Counter[str] = Counter()
        for at in np.flatnonzero(counts).tolist():
            of_asked.update(dict.fromkeys(version.tags[at], int(counts[at])))
        asked = max(int(counts.sum()), 1)
        return ItemExposure(
            tests=tests,
            n_items=counts.size,
            n_asked=int(np.count_nonzero(counts)),
            exposure_mean=float(rates.mean()),
            exposure_max=float(rates.max()),
            overlap=overlap,
            most_asked=[
                ExposedItem(
                    item_id=version.bank.item_ids[at],
                    asked=int(counts[at]),
                    exposure=float(rates[at]),
                )
                for at in order.tolist()
                if counts[at]
            ],
            tasks=[
                ExposedTask(tag=tag, asked=of_asked[tag] / asked, bank=n / counts.size)
                for tag, n in sorted(of_bank.items())
            ],
            caution=_caution(tests, float(rates.max()), overlap),
        )

    async def answers(
        self, version_id: str, position: int, *, limit: int, skip: int = 0
    ) -> list[ItemAnswer]:
        """The latest answers to the item at a position, after the first `skip` of them."""
        async with self.database.reading() as uow:
            return await uow.item_uses.answers(version_id, position, limit, skip)


def _caution(tests: int, exposure: float, overlap: float) -> str | None:
    if tests < LEAST_TESTS:
        return None
    beyond = []
    if exposure > MOST_EXPOSURE:
        beyond.append(
            f"one item was in {percent(exposure)} of the tests (guide: {percent(MOST_EXPOSURE)})"
        )
    if overlap > MOST_OVERLAP:
        beyond.append(
            f"two tests share {percent(overlap)} of their items (guide: {percent(MOST_OVERLAP)})"
        )
    if not beyond:
        return None
    return (
        f"These items become known: {' and '.join(beyond)}. Add items, or limit exposure "
        "(selection.exposure)."
    )
