"""Items of banks: added, shown, changed until a version contains them, and how tests used them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from app.engine.inference.diagnostics import overlap
from app.errors import InvalidInputError, MissingScopeError
from app.exchange.item_record import ItemRecord, parse_item
from app.printable import percent
from app.records.banks import OPEN, Item, ItemAnswer, ItemUse
from app.services.banks.imports import (
    BatchLine,
    batch_line,
    check_scorers,
    item_fields,
    new_item,
    own_scorers,
    refuse_parameters,
)
from app.services.banks.loaded import LoadedVersion
from app.services.banks.spec import faults_of, require_markable
from app.services.endpoints.specs import scorer_endpoints
from app.services.responses.confined_reading import Reader
from app.services.visibility import View
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest
from app.storage.scoping import require_revision

MAX_BATCH = 1000


@dataclass(frozen=True, eq=False)
class ItemService:
    """Use cases of the items of banks."""

    database: Database
    reader: Reader = field(default_factory=Reader)

    async def add(self, bank: str, record: ItemRecord) -> Item:
        """Add one item.

        Raises:
            AlreadyExistsError: Its key is taken.
            InvalidInputError: Its scorer cannot be built, or it contains parameters, which belong
                into an import or a new version.
        """
        refuse_parameters(record)
        check_scorers([record], await faults_of([record.scorer]))
        item = new_item(record, new_id("itm"))
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank, for_update=True)
            require_markable([record], found.default_scorer)
            await scorer_endpoints(uow, own_scorers([item]))
            await uow.items.add(found.id, [item])
            return await uow.items.find(found.id, item.id)

    async def match(
        self, bank: str, keys: Sequence[str], hashes: Sequence[str], *, reveal: bool
    ) -> dict[str, list[str]]:
        """Item keys by given key or content hash, for the ones that match an item of the bank.

        Raises:
            MissingScopeError: Hashes for a withheld bank, which would confirm guessed questions.
        """
        async with self.database.reading() as uow:
            found = await uow.banks.find(bank)
            if hashes and found.visibility != OPEN and not reveal:
                raise MissingScopeError(
                    f"Bank {found.name!r} is withheld: its items are matched by key alone; "
                    "matching by content needs a key with the scope 'banks:write'."
                )
            matching = await uow.items.matching(found.id, keys, hashes)
        matched: dict[str, list[str]] = {}
        # Keys and hashes are looked up apart: a hash given as a key must not match by content.
        by_key, by_hash = frozenset(keys), frozenset(hashes)
        for key, content_hash in matching:
            if key in by_key:
                matched.setdefault(key, []).append(key)
            if content_hash in by_hash:
                matched.setdefault(content_hash, []).append(key)
        return matched

    async def add_batch(self, bank: str, lines: bytes) -> list[BatchLine]:
        """Add many items; each JSON line succeeds or fails by itself.

        Raises:
            InvalidInputError: More than `MAX_BATCH` lines, or they cannot be read.
        """
        given = await self.reader.item_lines(lines, MAX_BATCH + 1)
        if len(given) > MAX_BATCH:
            raise InvalidInputError(f"Expected at most {MAX_BATCH} lines, got more: use an import.")
        faults = await faults_of(row.record.scorer for row in given if row.record is not None)
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank, for_update=True)
            keys = [row.record.key for row in given if row.record is not None]
            existing = await uow.items.by_key(found.id, keys)
            done = [batch_line(row, existing, faults, found.default_scorer) for row in given]
            made = [line.new for line in done if line.new is not None]
            await scorer_endpoints(uow, own_scorers(made))
            await uow.items.add(found.id, made)
            return done

    async def get(self, bank: str, item: str, *, reveal: bool = True) -> Item:
        """An item of a bank by id or key."""
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            return View(is_whole=reveal).item(await uow.items.find(found.id, item), found)

    async def list_page(
        self, bank: str, request: PageRequest, *, reveal: bool = True
    ) -> Page[Item]:
        """One page of a bank's items; `reveal` as in `get`."""
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            page = await uow.items.list_page(found.id, request)
        view = View(is_whole=reveal)
        return Page(tuple(view.item(item, found) for item in page.items), page.has_more)

    async def update(self, bank: str, item: str, revision: int, changes: Mapping[str, Any]) -> Item:
        """Change fields of an item that no version contains.

        `changes` maps fields to values as in an item file; `None` removes the field.

        Raises:
            InvalidStateError: A version contains it.
            PreconditionFailedError: It is not at `revision` any more.
            AlreadyExistsError: The new key is taken.
            InvalidInputError: The changed item would have faults.
        """
        async with self.database.reading() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
        record = parse_item({**item_fields(old), **changes})
        # A scorer's check may take as long as a child process may: no connection waits for it.
        check_scorers([record], await faults_of([record.scorer]))
        require_markable([record], found.default_scorer)
        new = new_item(record, old.id)
        async with self.database.unit_of_work() as uow:
            await scorer_endpoints(uow, own_scorers([new]))
            changed = await uow.items.replace(found.id, revision, new)
            # `new` was made of what was read before, which must be the state that is replaced.
            require_revision(f"Item {old.key!r}", old.revision, revision)
            return changed

    async def delete(self, bank: str, item: str, revision: int) -> None:
        """Remove an item that no version contains.

        Raises:
            InvalidStateError: A version contains it.
            PreconditionFailedError: It is not at `revision` any more.
        """
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
            await uow.items.delete(found.id, old.id, revision)


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
                counts[position] = use.tests
        rates = counts / max(tests, 1)
        in_common = overlap(counts, tests)
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
            overlap=in_common,
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
            caution=_caution(tests, float(rates.max()), in_common),
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
