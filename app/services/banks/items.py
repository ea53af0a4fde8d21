"""Items of banks: add and show them, and change them until a version contains them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.errors import InvalidInputError, MissingScopeError
from app.exchange.item_record import ItemRecord, parse_item
from app.records.banks import OPEN, Item
from app.services.banks.imports import (
    BatchLine,
    batch_line,
    check_scorers,
    item_fields,
    new_item,
    own_scorers,
    refuse_parameters,
)
from app.services.banks.spec import faults_of, require_markable
from app.services.endpoints.specs import scorer_endpoints
from app.services.responses.confined_reading import Reader
from app.services.visibility import View
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest

MAX_BATCH = 1000


@dataclass(frozen=True, eq=False)
class ItemService:
    """Use cases of the items of banks.

    Raises:
        NotFoundError: From every method that takes a name: nothing of that name exists.
    """

    database: Database
    reader: Reader = field(default_factory=Reader)

    async def add(self, bank: str, record: ItemRecord) -> Item:
        """Add one item.

        Raises:
            NotFoundError: No such bank.
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
            NotFoundError: No such bank.
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
            NotFoundError: No such bank.
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

        Args:
            bank: Id or name.
            item: Id or key.
            revision: Revision of the item on which the change is based.
            changes: Field to value as in an item file; `None` removes the field.

        Raises:
            NotFoundError: No such bank or item.
            InvalidStateError: A version contains it.
            PreconditionFailedError: It is not at `revision` any more.
            AlreadyExistsError: The new key is taken.
            InvalidInputError: The changed item would have faults.
        """
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
            record = parse_item({**item_fields(old), **changes})
            check_scorers([record], await faults_of([record.scorer]))
            require_markable([record], found.default_scorer)
            new = new_item(record, old.id)
            await scorer_endpoints(uow, own_scorers([new]))
            return await uow.items.replace(found.id, revision, new)

    async def delete(self, bank: str, item: str, revision: int) -> None:
        """Remove an item that no version contains.

        Raises:
            NotFoundError: No such bank or item.
            InvalidStateError: A version contains it.
            PreconditionFailedError: It is not at `revision` any more.
        """
        async with self.database.unit_of_work() as uow:
            found = await uow.banks.find(bank)
            old = await uow.items.find(found.id, item)
            await uow.items.delete(found.id, old.id, revision)
