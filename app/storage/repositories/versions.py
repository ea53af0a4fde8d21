"""Immutable versions of banks: their items and item parameters."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING

from sqlalchemy import func, literal_column, select, text, update
from sqlalchemy.dialects.postgresql import aggregate_order_by, distinct_on

from app.acting import owner
from app.errors import NotFoundError
from app.items import JsonValue, ScorerSpec
from app.records.banks import (
    ACTIVE,
    PRETEST,
    Bank,
    BankVersion,
    Item,
    PretestItem,
    VersionColumns,
    VersionItem,
)
from app.records.fields import shallow
from app.storage.auditing import note_change
from app.storage.paging import Page, PageRequest
from app.storage.repositories.banks import (
    VERSION_EXTRAS,
    read_item,
    read_scorer,
    read_version,
    read_version_item,
)
from app.storage.repositories.items import HAS_CONTENT
from app.storage.rows.banks import BankRow, BankVersionRow, ItemRow, VersionItemRow
from app.storage.scoping import FOR_USERS, STREAMED, Repository, given, of_opened

if TYPE_CHECKING:
    from app.engine.lint import Finding

_ADD_VERSION_ITEMS = text("""
    INSERT INTO version_items (version_id, position, item_id, a, intercept, c, d, k, status, flags)
    SELECT * FROM jsonb_to_recordset(CAST(:records AS jsonb)) AS r(
        version_id text, position int, item_id text, a float8, intercept float8, c float8,
        d float8, k float8, status text, flags jsonb)
""").execution_options(**of_opened("the bank, which is locked"))

_NOTE_JOIN = text("""
    UPDATE bank_versions SET extras = extras || jsonb_build_object(
        'joins', coalesce(extras -> 'joins', '{}') || CAST(:verdict AS jsonb)
    ) WHERE id = :id AND NOT coalesce(extras -> 'joins', '{}') @> CAST(:verdict AS jsonb)
""").execution_options(**of_opened("the version, whose sessions were read"))

_IS_FLAGGED = VersionItemRow.flags != literal_column("'[]'::jsonb")


class VersionRepository(Repository):
    """Queries of bank versions, and creation of new ones, within one transaction."""

    async def add(self, version: BankVersion, items: Iterable[VersionItem]) -> None:
        """Store a version with its items."""
        values = shallow(version)
        extras = {name: values.pop(name) for name in VERSION_EXTRAS}
        note_change(self._db, version.bank_id)
        self._db.add(BankVersionRow(**values, extras=extras))
        await self._db.flush()
        # The columns need numbers: a slope of 0 means no information, as fits a pretest item.
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

    async def get(self, version_id: str) -> BankVersion:
        """A version by its id, even if its bank is archived."""
        return read_version(await self._by_id(BankVersionRow, version_id, "bank version"))

    async def find(self, bank: Bank, reference: str | int | None = None) -> BankVersion:
        """A version of a bank by its number or id; the latest by default."""
        query = select(BankVersionRow).where(BankVersionRow.bank_id == bank.id)
        wanted = "latest" if reference is None else str(reference)
        if wanted == "latest":
            query = query.order_by(BankVersionRow.number.desc()).limit(1)
        elif wanted.isascii() and wanted.isdigit() and len(wanted) < 10:  # int4
            query = query.where(BankVersionRow.number == int(wanted))
        else:
            query = query.where(BankVersionRow.id == wanted)
        return read_version(await self._one(query, f"version of bank {bank.name!r}:", wanted))

    async def note_join(self, version_id: str, verdict: str) -> None:
        """Keep the verdict of a project's sessions on a version's join; see `SessionRecord.join`.

        Users of a shared bank have verdicts of their own, as their answers may be wrong, too.
        """
        told = json.dumps({owner(): verdict})
        await self._db.execute(_NOTE_JOIN, {"id": version_id, "verdict": told})

    async def list_page(self, bank_id: str, request: PageRequest) -> Page[BankVersion]:
        """One page of a bank's versions."""
        query = select(BankVersionRow).where(BankVersionRow.bank_id == bank_id)
        return await self._page(query, request, BankVersionRow.id, "bank version", read_version)

    async def latest(self, bank_ids: Sequence[str]) -> dict[str, BankVersion]:
        """Bank id to its latest version, for the banks that have one."""
        query = (
            select(BankVersionRow)
            .ext(distinct_on(BankVersionRow.bank_id))
            .where(BankVersionRow.bank_id.in_(bank_ids))
            .order_by(BankVersionRow.bank_id, BankVersionRow.number.desc())
        )
        return {row.bank_id: read_version(row) for row in (await self._db.execute(query)).scalars()}

    async def learned(self, version_ids: Collection[str]) -> dict[str, dict[str, JsonValue]]:
        """Version id to the part of its knowledge that `correction_in` reads."""
        query = select(BankVersionRow.id, BankVersionRow.knowledge["interval_correction"]).where(
            BankVersionRow.id.in_(version_ids)
        )
        return {key: {"interval_correction": part} for key, part in await self._db.execute(query)}

    async def question_digests(self, version_ids: Collection[str]) -> dict[str, str]:
        """Version id to a digest of its calibrated items, in any order, which scores cover."""
        items = func.string_agg(
            VersionItemRow.item_id,
            aggregate_order_by(literal_column("','"), VersionItemRow.item_id),
        )
        query = (
            select(VersionItemRow.version_id, func.md5(items).label("digest"))
            .where(VersionItemRow.version_id.in_(version_ids), VersionItemRow.status != PRETEST)
            .group_by(VersionItemRow.version_id)
        )
        return {row.version_id: row.digest for row in await self._db.execute(query)}

    async def columns(self, version_id: str) -> VersionColumns:
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
                HAS_CONTENT,
            )
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(VersionItemRow.version_id == version_id, VersionItemRow.status != PRETEST)
            .order_by(VersionItemRow.position)
            .execution_options(yield_per=STREAMED)
        )
        seen_tags: dict[tuple[str, ...], tuple[str, ...]] = {}
        parts = []
        # Rows are read in parts and not kept: the garbage collector would walk through fifty
        # thousand rows again and again, and delay all other tasks.
        async for part in (await self._db.stream(query)).partitions():
            first, keys, groups, tags, *rest = zip(*part, strict=True)
            # Items share few different sets of tags, so each set is kept only once.
            told = tuple(seen_tags.setdefault(one, one) for one in map(tuple, tags))
            parts.append((first, keys, groups, told, *rest))
        if not parts:
            return VersionColumns(*[()] * len(fields(VersionColumns)))
        return VersionColumns(*(tuple(chain(*column)) for column in zip(*parts, strict=True)))

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

    async def items(
        self,
        version_id: str,
        request: PageRequest,
        *,
        status: str | None = None,
        flagged: bool = False,
    ) -> Page[VersionItem]:
        """One page of a version's items by position; `request.after` is an item's id."""
        query = (
            select(VersionItemRow, ItemRow.key, ItemRow.pretest_sessions)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(*given((VersionItemRow.version_id, version_id), (VersionItemRow.status, status)))
        )
        position = VersionItemRow.position
        if request.after is not None:
            start = await self._db.scalar(
                select(position).where(
                    VersionItemRow.version_id == version_id, VersionItemRow.item_id == request.after
                )
            )
            if start is None:
                raise NotFoundError("item in this version:", request.after)
            query = query.where(position < start if request.descending else position > start)
        if flagged:
            query = query.where(_IS_FLAGGED)
        query = query.order_by(position.desc() if request.descending else position)
        rows = (await self._db.execute(query.limit(request.limit + 1))).all()
        items = tuple(read_version_item(*row) for row in rows[: request.limit])
        return Page(items, len(rows) > request.limit)

    async def contents(
        self, version_id: str, *, after: int, limit: int
    ) -> list[tuple[VersionItem, Item]]:
        """Items of a version with their texts, for positions after `after`."""
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

    async def items_at(self, version_id: str, positions: Sequence[int]) -> list[Item]:
        """The items at `positions` of a version, in that order."""
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

    async def without_options(self, version_id: str) -> list[str]:
        """Keys of the active items that are not multiple choice, in order of position."""
        choices = ItemRow.content["choices"]
        query = (
            select(ItemRow.key)
            .join(VersionItemRow, VersionItemRow.item_id == ItemRow.id)
            .where(
                VersionItemRow.version_id == version_id,
                VersionItemRow.status == ACTIVE,
                func.coalesce(func.jsonb_array_length(choices), 0) < 2,
            )
            .order_by(VersionItemRow.position)
        )
        return list(await self._db.scalars(query))

    async def findings(self, version_id: str) -> "list[Finding]":
        """Findings about the items of a version, with item keys, in order of position."""
        from app.engine.lint import Finding  # imports the engine, which lists of banks do not need

        query = (
            select(ItemRow.key, VersionItemRow.flags)
            .join(VersionItemRow, VersionItemRow.item_id == ItemRow.id)
            .where(VersionItemRow.version_id == version_id, _IS_FLAGGED)
            .order_by(VersionItemRow.position)
            .execution_options(yield_per=STREAMED)
        )
        rows = await self._db.stream(query)
        return [Finding(item_id=key, **flag) async for key, flags in rows for flag in flags]

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
        """Choose pretest items for a session, preferring those given to the fewest sessions.

        The choice is counted at once, so that sessions made together are given different items.
        `seed` decides among items given to equally many sessions; `barred` are ids of items that
        must not be asked.

        Returns:
            Positions, starting with the items given to the fewest sessions.
        """
        # Draws run one after the other, which keeps the counts even and prevents deadlocks.
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
            query = query.where(HAS_CONTENT)
        drawn = (await self._db.execute(query)).all()
        await self._db.execute(
            update(ItemRow)
            .where(ItemRow.id.in_([row.id for row in drawn]))
            .values(pretest_sessions=ItemRow.pretest_sessions + 1)
            .execution_options(**FOR_USERS)
        )
        return [row.position for row in drawn]
