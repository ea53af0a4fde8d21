"""Banks, their items and their immutable versions."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from sqlalchemy import (
    ColumnElement,
    TextClause,
    func,
    literal_column,
    null,
    or_,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import InvalidStateError, NotFoundError, PreconditionFailedError
from app.items import ScorerSpec
from app.storage.paging import Page, PageRequest, read_page
from app.storage.repositories.bank_values import (
    PRETEST,
    VERSION_EXTRAS,
    Bank,
    BankVersion,
    Item,
    ItemOutline,
    NewItem,
    PretestItem,
    VersionColumns,
    VersionItem,
    bank_values,
    content_json,
    read_bank,
    read_item,
    read_scorer,
    read_version,
    read_version_item,
    scorer_json,
)
from app.storage.rows import BankRow, BankVersionRow, ItemRow, VersionItemRow

# Rows per statement. They travel as one JSON text: as fast as COPY for these tables, and its errors
# are translated like those of any other statement.
_BATCH = 5000

_ADD_ITEMS = text("""
    INSERT INTO items (id, bank_id, key, content, scorer, tags, group_key,
                       expected_tokens_in, expected_tokens_out, content_hash)
    SELECT * FROM jsonb_to_recordset(CAST(:records AS jsonb)) AS r(
        id text, bank_id text, key text, content jsonb, scorer jsonb, tags text[], group_key text,
        expected_tokens_in int, expected_tokens_out int, content_hash text)
""")
_ADD_VERSION_ITEMS = text("""
    INSERT INTO version_items (version_id, position, item_id, a, intercept, c, d, k, status, flags)
    SELECT * FROM jsonb_to_recordset(CAST(:records AS jsonb)) AS r(
        version_id text, position int, item_id text, a float8, intercept float8, c float8,
        d float8, k float8, status text, flags jsonb)
""")


_HAS_CONTENT = ItemRow.content != literal_column("'{}'::jsonb")

_IS_FLAGGED = VersionItemRow.flags != literal_column("'[]'::jsonb")


class BankRepository:
    """Questions and changes about banks, within one transaction.

    Archived banks are not seen, except by the id of one of their versions: sessions refer to those.
    """

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(self, bank: Bank) -> None:
        """Store a new bank.

        Raises:
            AlreadyExistsError: Its name is taken (from the unit of work).
        """
        values = bank_values({f.name: getattr(bank, f.name) for f in fields(bank)})
        self._db.add(BankRow(**values))
        await self._db.flush()

    async def find(self, id_or_name: str, *, for_update: bool = False) -> Bank:
        """A bank by its id or its name.

        Raises:
            NotFoundError: No such bank.
        """
        query = select(BankRow).where(
            or_(BankRow.id == id_or_name, BankRow.name == id_or_name),
            BankRow.archived_at.is_(None),
        )
        # A name may look like another bank's id; the id wins.
        query = query.order_by((BankRow.id == id_or_name).desc()).limit(1)
        query = query.execution_options(populate_existing=True)
        if for_update:
            query = query.with_for_update()
        row = (await self._db.execute(query)).scalar_one_or_none()
        if row is None:
            raise NotFoundError("bank", id_or_name)
        return read_bank(row)

    async def list_page(self, request: PageRequest) -> Page[Bank]:
        """One page of banks."""
        return await read_page(
            self._db,
            select(BankRow).where(BankRow.archived_at.is_(None)),
            request,
            key=BankRow.id,
            kind="bank",
            read=read_bank,
        )

    async def update(self, bank_id: str, revision: int, changes: Mapping[str, Any]) -> Bank:
        """Change fields of a bank that is still at `revision`.

        Raises:
            NotFoundError: No such bank.
            PreconditionFailedError: It has changed since.
            AlreadyExistsError: The new name is taken (from the unit of work).
        """
        bank = await self.find(bank_id, for_update=True)
        _check_revision(f"Bank {bank.name!r}", bank.revision, revision)
        await self._db.execute(
            update(BankRow)
            .where(BankRow.id == bank.id)
            .values(**bank_values(changes), revision=revision + 1, updated_at=func.now())
        )
        return await self.find(bank.id)

    async def archive(self, bank_id: str, revision: int) -> None:
        """Take a bank out of use and free its name; sessions keep their versions.

        Raises:
            NotFoundError: No such bank.
            PreconditionFailedError: It has changed since.
        """
        bank = await self.find(bank_id, for_update=True)
        _check_revision(f"Bank {bank.name!r}", bank.revision, revision)
        await self._db.execute(
            update(BankRow).where(BankRow.id == bank.id).values(archived_at=func.now())
        )

    async def add_items(self, bank_id: str, items: Sequence[NewItem]) -> None:
        """Store new items of a bank.

        Raises:
            AlreadyExistsError: A key is taken (from the unit of work).
        """
        await self._insert_many(
            _ADD_ITEMS,
            (
                {
                    "id": item.id,
                    "bank_id": bank_id,
                    "key": item.key,
                    "content": content_json(item.content),
                    "scorer": None if item.scorer is None else scorer_json(item.scorer),
                    "tags": item.tags,
                    "group_key": item.group,
                    "expected_tokens_in": item.expected_tokens_in,
                    "expected_tokens_out": item.expected_tokens_out,
                    "content_hash": item.content.content_hash,
                }
                for item in items
            ),
        )

    async def item_outlines(self, bank_id: str) -> list[ItemOutline]:
        """Every item of a bank without its text, oldest first."""
        target: ColumnElement[Any] = ItemRow.content["target"]
        query = (
            select(
                ItemRow.id,
                ItemRow.key,
                ItemRow.content_hash,
                ItemRow.scorer,
                ItemRow.tags,
                ItemRow.group_key,
                ItemRow.expected_tokens_in,
                ItemRow.expected_tokens_out,
                _HAS_CONTENT,
                func.coalesce(func.jsonb_array_length(target), 0) > 0,
            )
            .where(ItemRow.bank_id == bank_id)
            .order_by(ItemRow.id)
        )
        return [
            ItemOutline(
                id=row[0],
                key=row[1],
                content_hash=row[2],
                scorer=read_scorer(row[3]),
                tags=tuple(row[4]),
                group=row[5],
                expected_tokens_in=row[6],
                expected_tokens_out=row[7],
                has_content=row[8],
                has_target=row[9],
            )
            for row in await self._db.execute(query)
        ]

    async def find_item(self, bank_id: str, id_or_key: str, *, for_update: bool = False) -> Item:
        """An item of a bank by its id or its key.

        Raises:
            NotFoundError: The bank has no such item.
        """
        query = (
            select(ItemRow)
            .where(
                ItemRow.bank_id == bank_id, or_(ItemRow.id == id_or_key, ItemRow.key == id_or_key)
            )
            .order_by((ItemRow.id == id_or_key).desc())
            .limit(1)
            .execution_options(populate_existing=True)
        )
        if for_update:
            query = query.with_for_update()
        row = (await self._db.execute(query)).scalar_one_or_none()
        if row is None:
            raise NotFoundError("item", id_or_key)
        return read_item(row)

    async def items_by_key(self, bank_id: str, keys: Sequence[str]) -> dict[str, Item]:
        """Key to item, for those of `keys` that the bank has."""
        query = select(ItemRow).where(ItemRow.bank_id == bank_id, ItemRow.key.in_(keys))
        return {row.key: read_item(row) for row in (await self._db.execute(query)).scalars()}

    async def list_items(self, bank_id: str, request: PageRequest) -> Page[Item]:
        """One page of a bank's items."""
        return await read_page(
            self._db,
            select(ItemRow).where(ItemRow.bank_id == bank_id),
            request,
            key=ItemRow.id,
            kind="item",
            read=read_item,
        )

    async def replace_item(self, bank_id: str, revision: int, new: NewItem) -> Item:
        """Put `new` in the place of the item with its id.

        Raises:
            NotFoundError: The bank has no such item.
            PreconditionFailedError: It has changed since `revision`.
            InvalidStateError: A version holds it.
            AlreadyExistsError: The new key is taken (from the unit of work).
        """
        await self._changeable_item(bank_id, new.id, revision)
        await self._db.execute(
            update(ItemRow)
            .where(ItemRow.id == new.id)
            .values(
                key=new.key,
                content=content_json(new.content),
                scorer=null() if new.scorer is None else scorer_json(new.scorer),
                tags=list(new.tags),
                group_key=new.group,
                expected_tokens_in=new.expected_tokens_in,
                expected_tokens_out=new.expected_tokens_out,
                content_hash=new.content.content_hash,
                revision=revision + 1,
            )
        )
        return await self.find_item(bank_id, new.id)

    async def delete_item(self, bank_id: str, item_id: str, revision: int) -> None:
        """Remove an item that no version holds.

        Raises:
            NotFoundError: The bank has no such item.
            PreconditionFailedError: It has changed since `revision`.
            InvalidStateError: A version holds it.
        """
        await self._changeable_item(bank_id, item_id, revision)
        await self._db.delete(await self._db.get_one(ItemRow, item_id))
        await self._db.flush()

    async def next_number(self, bank_id: str) -> int:
        """Number of the bank's next version; the caller holds the bank's row lock."""
        query = select(func.max(BankVersionRow.number)).where(BankVersionRow.bank_id == bank_id)
        return (await self._db.scalar(query) or 0) + 1

    async def add_version(self, version: BankVersion, items: Iterable[VersionItem]) -> None:
        """Store a version with its items."""
        values = {f.name: getattr(version, f.name) for f in fields(version)}
        extras = {name: values.pop(name) for name in VERSION_EXTRAS}
        self._db.add(BankVersionRow(**values, extras=extras))
        await self._db.flush()
        # The columns need numbers; a slope of 0 tells nothing, as befits an item in pretest.
        unknown = {"a": 0.0, "intercept": 0.0, "c": 0.0, "d": 1.0}
        names = ("position", "item_id", "a", "intercept", "c", "d", "k", "status", "flags")
        await self._insert_many(
            _ADD_VERSION_ITEMS,
            (
                {
                    "version_id": version.id,
                    **{
                        name: unknown.get(name) if (v := getattr(item, name)) is None else v
                        for name in names
                    },
                }
                for item in items
            ),
        )

    async def version(self, version_id: str) -> BankVersion:
        """A version by its id, also of an archived bank.

        Raises:
            NotFoundError: No such version.
        """
        row = await self._db.get(BankVersionRow, version_id)
        if row is None:
            raise NotFoundError("bank version", version_id)
        return read_version(row)

    async def bank_of(self, version_id: str) -> Bank:
        """The bank of a version, also when it is archived.

        Raises:
            NotFoundError: No such version.
        """
        query = select(BankRow).join(BankVersionRow, BankVersionRow.bank_id == BankRow.id)
        row = (
            await self._db.execute(query.where(BankVersionRow.id == version_id))
        ).scalar_one_or_none()
        if row is None:
            raise NotFoundError("bank version", version_id)
        return read_bank(row)

    async def find_version(self, bank: Bank, reference: str | int | None = None) -> BankVersion:
        """A version of a bank by its number or id; the latest by default.

        Raises:
            NotFoundError: The bank has no such version.
        """
        query = select(BankVersionRow).where(BankVersionRow.bank_id == bank.id)
        wanted = "latest" if reference is None else str(reference)
        if wanted == "latest":
            query = query.order_by(BankVersionRow.number.desc()).limit(1)
        elif wanted.isascii() and wanted.isdigit() and len(wanted) < 10:  # int4
            query = query.where(BankVersionRow.number == int(wanted))
        else:
            query = query.where(BankVersionRow.id == wanted)
        row = (await self._db.execute(query)).scalar_one_or_none()
        if row is None:
            raise NotFoundError(f"version of bank {bank.name!r}:", wanted)
        return read_version(row)

    async def list_versions(self, bank_id: str, request: PageRequest) -> Page[BankVersion]:
        """One page of a bank's versions."""
        return await read_page(
            self._db,
            select(BankVersionRow).where(BankVersionRow.bank_id == bank_id),
            request,
            key=BankVersionRow.id,
            kind="bank version",
            read=read_version,
        )

    async def latest_versions(self, bank_ids: Sequence[str]) -> dict[str, BankVersion]:
        """Bank id to its latest version, for the banks that have one."""
        query = (
            select(BankVersionRow)
            .ext(distinct_on(BankVersionRow.bank_id))
            .where(BankVersionRow.bank_id.in_(bank_ids))
            .order_by(BankVersionRow.bank_id, BankVersionRow.number.desc())
        )
        return {row.bank_id: read_version(row) for row in (await self._db.execute(query)).scalars()}

    async def item_counts(self, bank_ids: Sequence[str]) -> dict[str, int]:
        """Bank id to its number of items."""
        query = (
            select(ItemRow.bank_id, func.count())
            .where(ItemRow.bank_id.in_(bank_ids))
            .group_by(ItemRow.bank_id)
        )
        counts = dict((await self._db.execute(query)).all())
        return {bank_id: counts.get(bank_id, 0) for bank_id in bank_ids}

    async def version_columns(self, version_id: str) -> VersionColumns:
        """The calibrated items of a version as columns."""
        query = (
            select(
                VersionItemRow.item_id,
                ItemRow.key,
                ItemRow.group_key,
                ItemRow.tags,
                ItemRow.expected_tokens_in,
                ItemRow.expected_tokens_out,
                VersionItemRow.a,
                VersionItemRow.intercept,
                VersionItemRow.c,
                VersionItemRow.d,
                VersionItemRow.k,
                VersionItemRow.status,
                _HAS_CONTENT,
            )
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id, VersionItemRow.status != PRETEST)
            .order_by(VersionItemRow.position)
        )
        seen_tags: dict[tuple[str, ...], tuple[str, ...]] = {}
        rows = []
        for row in await self._db.execute(query):
            # Items share few sets of tags; keep each once.
            tags = tuple(row[3])
            rows.append((*row[:3], seen_tags.setdefault(tags, tags), *row[4:]))
        return VersionColumns(*zip(*rows, strict=True)) if rows else VersionColumns(*[()] * 13)

    async def own_scorers(self, version_id: str) -> list[ScorerSpec]:
        """The different scorers that items of a version name themselves."""
        query = (
            select(ItemRow.scorer)
            .join(VersionItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id, ItemRow.scorer.is_not(None))
            .distinct()
        )
        rows = (await self._db.execute(query)).scalars()
        return [spec for row in rows if (spec := read_scorer(row)) is not None]

    async def pretest_items(self, version_id: str) -> list[PretestItem]:
        """The items of a version that have no parameters, by position."""
        query = (
            select(VersionItemRow.position, VersionItemRow.item_id, ItemRow.key)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id, VersionItemRow.status == PRETEST)
            .order_by(VersionItemRow.position)
        )
        return [PretestItem(*row) for row in await self._db.execute(query)]

    async def draw_pretest(
        self,
        version_id: str,
        n_items: int,
        *,
        seed: int,
        barred: Collection[str],
        need_content: bool,
    ) -> list[int]:
        """Choose items in pretest for a session, those given to the fewest sessions first.

        The choice counts at once, so that sessions made together are given different items.

        Args:
            version_id: The version that the session is on.
            n_items: How many; fewer where there are fewer.
            seed: Decides among items that were given to equally many.
            barred: Ids of items that are not to be asked.
            need_content: Only items with text.

        Returns:
            Positions, those of the items most in need of answers first.
        """
        # Drawing one after the other keeps the counts even, and two draws out of a deadlock.
        bank = select(BankVersionRow.bank_id).where(BankVersionRow.id == version_id)
        await self._db.execute(
            select(BankRow.id)
            .where(BankRow.id == bank.scalar_subquery())
            .with_for_update(key_share=True)
        )
        query = (
            select(VersionItemRow.position, ItemRow.id)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(
                VersionItemRow.version_id == version_id,
                VersionItemRow.status == PRETEST,
                ItemRow.id.not_in(barred),
            )
            .order_by(ItemRow.pretest_sessions, func.md5(func.concat(ItemRow.id, ":", str(seed))))
            .limit(n_items)
        )
        if need_content:
            query = query.where(_HAS_CONTENT)
        drawn = (await self._db.execute(query)).all()
        await self._db.execute(
            update(ItemRow)
            .where(ItemRow.id.in_([row.id for row in drawn]))
            .values(pretest_sessions=ItemRow.pretest_sessions + 1)
        )
        return [row.position for row in drawn]

    async def version_items(
        self,
        version_id: str,
        request: PageRequest,
        *,
        status: str | None = None,
        flagged: bool = False,
    ) -> Page[VersionItem]:
        """One page of a version's items by position; `request.after` is an item's id.

        Args:
            version_id: The version.
            request: Which page.
            status: Only items in that state.
            flagged: Only items with findings.

        Raises:
            NotFoundError: The version does not hold the item `request.after`.
        """
        query = (
            select(VersionItemRow, ItemRow.key, ItemRow.pretest_sessions)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id)
        )
        position = VersionItemRow.position
        if request.after is not None:
            start = await self._db.scalar(
                select(position).where(
                    VersionItemRow.version_id == version_id,
                    VersionItemRow.item_id == request.after,
                )
            )
            if start is None:
                raise NotFoundError("item in this version:", request.after)
            query = query.where(position < start if request.descending else position > start)
        if status is not None:
            query = query.where(VersionItemRow.status == status)
        if flagged:
            query = query.where(_IS_FLAGGED)
        query = query.order_by(position.desc() if request.descending else position)
        rows = (await self._db.execute(query.limit(request.limit + 1))).all()
        items = tuple(read_version_item(*row) for row in rows[: request.limit])
        return Page(items, len(rows) > request.limit)

    async def version_contents(
        self, version_id: str, *, after: int, limit: int
    ) -> list[tuple[VersionItem, Item]]:
        """Items of a version with their text, those in the positions behind `after`."""
        query = (
            select(VersionItemRow, ItemRow)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id, VersionItemRow.position > after)
            .order_by(VersionItemRow.position)
            .limit(limit)
        )
        rows = await self._db.execute(query)
        return [
            (read_version_item(row, item.key, item.pretest_sessions), read_item(item))
            for row, item in rows
        ]

    async def flags(self, version_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Key and finding, for every finding of a version in order of position."""
        query = (
            select(ItemRow.key, VersionItemRow.flags)
            .join(VersionItemRow, VersionItemRow.item_id == ItemRow.id)
            .where(VersionItemRow.version_id == version_id, _IS_FLAGGED)
            .order_by(VersionItemRow.position)
        )
        rows = await self._db.execute(query)
        return [(key, flag) for key, flags in rows for flag in flags]

    async def items_at(self, version_id: str, positions: Sequence[int]) -> list[Item]:
        """The items at `positions` of a version, in that order.

        Raises:
            NotFoundError: The version has no item at one of them.
        """
        query = (
            select(VersionItemRow.position, ItemRow)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id)
            .where(VersionItemRow.position.in_(positions))
        )
        found = {position: read_item(row) for position, row in await self._db.execute(query)}
        missing = next((position for position in positions if position not in found), None)
        if missing is not None:
            raise NotFoundError(f"item at its position in version {version_id}:", str(missing))
        return [found[position] for position in positions]

    async def _changeable_item(self, bank_id: str, item_id: str, revision: int) -> None:
        item = await self.find_item(bank_id, item_id, for_update=True)
        holder = (
            select(BankVersionRow.number)
            .join(VersionItemRow, VersionItemRow.version_id == BankVersionRow.id)
            .where(VersionItemRow.item_id == item_id)
            .order_by(BankVersionRow.number)
            .limit(1)
        )
        number = await self._db.scalar(holder)
        if number is not None:
            raise InvalidStateError(
                f"Item {item.key!r} is frozen: version {number} of its bank holds it."
            )
        _check_revision(f"Item {item.key!r}", item.revision, revision)

    async def _insert_many(self, statement: TextClause, rows: Iterable[Mapping[str, Any]]) -> None:
        remaining = iter(rows)
        while batch := list(islice(remaining, _BATCH)):
            records = json.dumps(batch, ensure_ascii=False, allow_nan=False)
            await self._db.execute(statement, {"records": records})


def _check_revision(what: str, actual: int, expected: int) -> None:
    if actual != expected:
        raise PreconditionFailedError(
            f"{what} is at revision {actual}, If-Match names {expected}: read it again."
        )
