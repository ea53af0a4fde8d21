"""Items of banks, their contents, and how often tests used them."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import ColumnElement, Float, case, func, literal_column, select, text
from sqlalchemy.orm import aliased

from app.acting import maker
from app.errors import InvalidStateError
from app.items import ItemContent
from app.records.banks import Item, ItemAnswer, ItemOutline, ItemUse, NewItem
from app.records.fields import convert
from app.storage.auditing import note_change
from app.storage.paging import Page, PageRequest, within_size
from app.storage.repositories.banks import read_item, read_scorer, scorer_json
from app.storage.repositories.projects import require_space
from app.storage.rows.banks import BankRow, BankVersionRow, ItemRow, VersionItemRow
from app.storage.rows.projects import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow
from app.storage.scoping import STREAMED, Repository, of_opened, require_revision

_ADD_ITEMS = text("""
    INSERT INTO items (id, bank_id, key, content, scorer, tags, group_key,
                       expected_tokens_in, expected_tokens_out, content_hash, created_by)
    SELECT * FROM jsonb_to_recordset(CAST(:records AS jsonb)) AS r(
        id text, bank_id text, key text, content jsonb, scorer jsonb, tags text[], group_key text,
        expected_tokens_in int, expected_tokens_out int, content_hash text, created_by text)
""").execution_options(**of_opened("the bank, which is locked"))

_FILL_ITEMS = text("""
    UPDATE items SET content = r.content, scorer = r.scorer, tags = r.tags,
                     group_key = r.group_key, expected_tokens_in = r.expected_tokens_in,
                     expected_tokens_out = r.expected_tokens_out,
                     content_hash = r.content_hash, revision = items.revision + 1
    FROM jsonb_to_recordset(CAST(:records AS jsonb)) AS r(
        id text, bank_id text, key text, content jsonb, scorer jsonb, tags text[], group_key text,
        expected_tokens_in int, expected_tokens_out int, content_hash text)
    WHERE items.id = r.id AND items.bank_id = r.bank_id
""").execution_options(**of_opened("the bank, which is locked"))

_NOTE_CONTENT = text("""
    UPDATE bank_versions SET extras = extras || jsonb_build_object('has_content', true)
    WHERE bank_id = :bank_id AND NOT EXISTS (
        SELECT 1 FROM version_items JOIN items ON items.id = version_items.item_id
        WHERE version_items.version_id = bank_versions.id AND version_items.status <> 'pretest'
              AND items.content = jsonb_build_object())
""").execution_options(**of_opened("the bank, which is locked"))

#: Whether an item can be asked; items without content are known by their parameters only.
HAS_CONTENT = ItemRow.content != literal_column("'{}'::jsonb")


class ItemRepository(Repository):
    """Queries and changes of the items of banks, within one transaction."""

    async def add(self, bank_id: str, items: Sequence[NewItem]) -> None:
        """Store new items of a bank.

        Raises:
            StorageFullError: The project has reached its storage limit.
        """
        await require_space(self._db)
        note_change(self._db, bank_id)
        await self._insert_many(_ADD_ITEMS, (_stored(bank_id, item) for item in items))

    async def fill(self, bank_id: str, items: Sequence[NewItem]) -> None:
        """Add texts to items of a bank that had none; the bank counts as changed."""
        if not items:
            return
        note_change(self._db, bank_id)
        await self._insert_many(_FILL_ITEMS, (_stored(bank_id, item) for item in items))
        await self._db.execute(_NOTE_CONTENT, {"bank_id": bank_id})
        await self._set(BankRow, bank_id, revision=BankRow.revision + 1)

    async def outlines(self, bank_id: str) -> list[ItemOutline]:
        """Every item of a bank without its text, oldest first."""
        target: ColumnElement[Any] = ItemRow.content["target"]
        choices: ColumnElement[Any] = ItemRow.content["choices"]
        query = (
            select(
                ItemRow.id,
                ItemRow.key,
                ItemRow.content_hash,
                ItemRow.scorer,
                ItemRow.tags,
                ItemRow.group_key.label("group"),
                ItemRow.expected_tokens_in,
                ItemRow.expected_tokens_out,
                HAS_CONTENT.label("has_content"),
                (func.coalesce(func.jsonb_array_length(target), 0) > 0).label("has_target"),
                func.coalesce(func.jsonb_array_length(choices), 0).label("n_choices"),
                case((func.length(target.as_string()) <= 400, target)).label("targets"),
            )
            .where(ItemRow.bank_id == bank_id)
            .order_by(ItemRow.id)
            .execution_options(yield_per=STREAMED)
        )
        return [
            convert(
                ItemOutline,
                row,
                scorer=read_scorer(row.scorer),
                tags=tuple(row.tags),
                targets=tuple(row.targets or ()),
            )
            async for row in await self._db.stream(query)
        ]

    async def find(self, bank_id: str, id_or_key: str, *, for_update: bool = False) -> Item:
        """An item of a bank by its id or its key."""
        of_bank = ItemRow.bank_id == bank_id
        return read_item(
            await self._named(ItemRow.key, id_or_key, "item", of_bank, for_update=for_update)
        )

    async def by_key(self, bank_id: str, keys: Sequence[str]) -> dict[str, Item]:
        """Key to item, for the `keys` that exist in the bank."""
        query = select(ItemRow).where(ItemRow.bank_id == bank_id, ItemRow.key.in_(keys))
        return {row.key: read_item(row) for row in (await self._db.execute(query)).scalars()}

    async def matching(
        self, bank_id: str, keys: Sequence[str], hashes: Sequence[str]
    ) -> list[tuple[str, str]]:
        """Key and content hash of matching items; items without text have no hash."""
        # As arrays: thousands of parameters would hold up the event loop.
        by_key = ItemRow.key == func.any(list(keys))
        by_hash = (ItemRow.content_hash == func.any(list(hashes))) & HAS_CONTENT
        query = (
            select(ItemRow.key, ItemRow.content_hash)
            .where(ItemRow.bank_id == bank_id, by_key | by_hash)
            .order_by(ItemRow.id)
        )
        return [(row.key, row.content_hash) for row in await self._db.execute(query)]

    async def list_page(self, bank_id: str, request: PageRequest) -> Page[Item]:
        """One page of a bank's items; a page of long items may have fewer than requested."""
        query = select(ItemRow).where(ItemRow.bank_id == bank_id)

        async def fetch(last: Item | None, limit: int) -> Sequence[Item]:
            part = replace(request, limit=limit, after=last.id if last else request.after)
            return (await self._page(query, part, ItemRow.id, "item", read_item)).items

        return await within_size(fetch, request.limit, lambda item: len(str(item.content)))

    async def replace(self, bank_id: str, revision: int, new: NewItem) -> Item:
        """Replace the item with the id of `new`.

        Raises:
            InvalidStateError: A version contains the item.
        """
        await self._changeable(bank_id, new.id, revision)
        await self._set(ItemRow, new.id, **_columns(new), revision=revision + 1)
        return await self.find(bank_id, new.id)

    async def delete(self, bank_id: str, item_id: str, revision: int) -> None:
        """Remove an item that no version contains.

        Raises:
            InvalidStateError: A version contains the item.
        """
        await self._changeable(bank_id, item_id, revision)
        await self._db.delete(await self._db.get_one(ItemRow, item_id))
        await self._db.flush()

    async def counts(self, bank_ids: Sequence[str]) -> dict[str, int]:
        """Bank id to its number of items."""
        query = (
            select(ItemRow.bank_id, func.count())
            .where(ItemRow.bank_id.in_(bank_ids))
            .group_by(ItemRow.bank_id)
        )
        counts = dict((await self._db.execute(query)).all())
        return {bank_id: counts.get(bank_id, 0) for bank_id in bank_ids}

    async def _changeable(self, bank_id: str, item_id: str, revision: int) -> None:
        note_change(self._db, bank_id)
        item = await self.find(bank_id, item_id, for_update=True)
        holder = (
            select(BankVersionRow.number)
            .join(VersionItemRow, VersionItemRow.version_id == BankVersionRow.id)
            .where(VersionItemRow.item_id == item_id)
            .order_by(BankVersionRow.number)
            .limit(1)
        )
        number = await self._db.scalar(holder)
        if number is not None:
            advice = (
                "import items to add its text"
                if item.content == ItemContent()
                else "what was measured with it holds for its present text; add another item"
            )
            raise InvalidStateError(
                f"Item {item.key!r} is frozen, because version {number} of its bank holds it: "
                f"{advice}."
            )
        require_revision(f"Item {item.key!r}", item.revision, revision)


def _stored(bank_id: str, item: NewItem) -> dict[str, Any]:
    return {"id": item.id, "bank_id": bank_id, "created_by": maker(), **_columns(item)}


def _columns(item: NewItem) -> dict[str, Any]:
    return {
        "key": item.key,
        "content": {} if item.content == ItemContent() else asdict(item.content),
        "scorer": None if item.scorer is None else scorer_json(item.scorer),
        "tags": list(item.tags),
        "group_key": item.group,
        "expected_tokens_in": item.expected_tokens_in,
        "expected_tokens_out": item.expected_tokens_out,
        "content_hash": item.content.content_hash,
    }


class ItemUseRepository(Repository):
    """Queries of the answers to items, within one transaction."""

    async def tests(self, version_id: str) -> int:
        """Number of tests of a version that asked any item and were not made from another test."""
        query = (
            select(func.count(AdministrationRow.session_id.distinct()))
            .join(SessionRow, SessionRow.id == AdministrationRow.session_id)
            .where(SessionRow.bank_version_id == version_id, SessionRow.parent_id.is_(None))
        )
        return await self._db.scalar(query) or 0

    async def of_version(self, version_id: str) -> dict[int, ItemUse]:
        """Use of each asked item, by position."""
        given = AdministrationRow
        query = (
            select(
                given.position,
                func.count().label("asked"),
                func.count(given.score).label("marked"),
                func.avg(given.score).label("mean"),
            )
            .join(SessionRow, SessionRow.id == given.session_id)
            .where(SessionRow.bank_version_id == version_id, _is_new())
            .group_by(given.position)
        )
        again = await self._asked_again(version_id)
        return {
            row.position: convert(ItemUse, row, tests=row.asked - again.get(row.position, 0))
            for row in await self._db.execute(query)
        }

    async def _asked_again(self, version_id: str) -> dict[int, int]:
        """How often an item was asked in tests that asked it before.

        Extensions of one test each ask it anew, as does one whose parent left it out as failed.
        """
        longer, given = aliased(SessionRow), AdministrationRow
        family = (
            select(SessionRow.id, SessionRow.id.label("test"))
            .where(SessionRow.bank_version_id == version_id, SessionRow.parent_id.is_(None))
            .where(select(longer).where(longer.parent_id == SessionRow.id).exists())
            .cte(recursive=True)
        )
        family = family.union_all(
            select(longer.id, family.c.test).join(family, longer.parent_id == family.c.id)
        )
        n_again = func.count() - func.count(family.c.test.distinct())
        query = (
            select(given.position, n_again.label("n"))
            .join(SessionRow, SessionRow.id == given.session_id)
            .join(family, family.c.id == SessionRow.id)
            .where(SessionRow.bank_version_id == version_id, _is_new())
            .group_by(given.position)
        )
        return {row.position: row.n for row in await self._db.execute(query)}

    async def answers(
        self, version_id: str, position: int, limit: int, skip: int
    ) -> list[ItemAnswer]:
        """The latest answers to an item after the first `skip`, with each test's final ability."""
        given = AdministrationRow
        theta = SessionRow.summary["estimate"]["theta"].astext.cast(Float)
        query = (
            select(
                SessionRow.id.label("session_id"),
                func.coalesce(EndpointRow.name, EndpointRow.model).label("examinee"),
                theta.label("theta"),
                given.step,
                given.outcome,
                given.score,
                given.answered_at,
            )
            .join(SessionRow, SessionRow.id == given.session_id)
            .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
            .where(
                SessionRow.bank_version_id == version_id,
                _is_new(),
                given.position == position,
                given.arrival.is_not(None),
            )
            .order_by(SessionRow.id.desc())
            .offset(skip)
            .limit(limit)
        )
        return [convert(ItemAnswer, row) for row in await self._db.execute(query)]


def _is_new() -> ColumnElement[bool]:
    """Whether a test asked an item itself: made of no other, or extends one that did not ask it."""
    before = aliased(AdministrationRow)
    known = select(before).where(
        before.session_id == SessionRow.parent_id, before.position == AdministrationRow.position
    )
    is_extension = SessionRow.relation == "extend"
    return SessionRow.parent_id.is_(None) | (is_extension & ~known.exists())
