"""Banks, items and versions in Postgres."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from app.errors import (
    AlreadyExistsError,
    InvalidStateError,
    NotFoundError,
    PreconditionFailedError,
)
from app.items import ItemContent, Message, ScorerSpec
from app.records.banks import Bank, BankVersion, NewItem, VersionItem
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import PageRequest

NOW = datetime(2026, 1, 2, tzinfo=UTC)
EXACT = ScorerSpec("exact")


def a_bank(name: str = "sums") -> Bank:
    return Bank(
        id=new_id("bnk"),
        name=name,
        default_scorer=ScorerSpec("numeric", {"tolerance": 0.5}),
        prompt={"system": "Be brief."},
        metadata={"team": "a"},
        revision=1,
        created_at=NOW,
        updated_at=NOW,
    )


def an_item(key: str, prompt: str | None = None) -> NewItem:
    return NewItem(
        id=new_id("itm"), key=key, content=ItemContent(prompt=prompt or key, target=("1",))
    )


def a_version(bank: Bank, number: int = 1, n_items: int = 2) -> BankVersion:
    return BankVersion(
        id=new_id("bkv"),
        bank_id=bank.id,
        number=number,
        response_model="2pl",
        scale="s",
        parameters_hash="0" * 64,
        provisional=True,
        notes="first",
        lint={"findings": {"negative_slope": 1}},
        n_items=n_items,
        n_calibrated=n_items,
        has_content=True,
        created_at=NOW,
    )


def members(items: Sequence[NewItem], status: str = "active") -> list[VersionItem]:
    return [
        VersionItem(
            position=position,
            item_id=item.id,
            key=item.key,
            a=0.1 + position / 3,
            intercept=-1e-17,
            c=0.0,
            d=1.0,
            k=None,
            status=status,
        )
        for position, item in enumerate(items)
    ]


async def stored_bank(database: Database, *items: NewItem, name: str = "sums") -> Bank:
    bank = a_bank(name)
    async with database.unit_of_work() as uow:
        await uow.banks.add(bank)
        await uow.items.add(bank.id, items)
    return bank


async def test_a_bank_is_found_by_id_and_by_name_with_all_its_fields(database: Database) -> None:
    bank = await stored_bank(database)
    async with database.unit_of_work() as uow:
        assert await uow.banks.find(bank.id) == bank
        assert await uow.banks.find("sums") == bank
        with pytest.raises(NotFoundError, match="'other'"):
            await uow.banks.find("other")


async def test_a_name_is_taken_until_its_bank_is_archived(database: Database) -> None:
    first = await stored_bank(database)
    with pytest.raises(AlreadyExistsError, match="sums"):
        await stored_bank(database)
    async with database.unit_of_work() as uow:
        await uow.banks.archive(first.id, 1)
    second = await stored_bank(database)
    async with database.unit_of_work() as uow:
        assert (await uow.banks.find("sums")).id == second.id
        assert [b.id for b in (await uow.banks.list_page(PageRequest())).items] == [second.id]


async def test_an_older_revision_changes_nothing(database: Database) -> None:
    bank = await stored_bank(database)
    async with database.unit_of_work() as uow:
        changed = await uow.banks.update(
            bank.id, 1, {"description": "new", "metadata": {"x": "y"}, "default_scorer": EXACT}
        )
        assert (changed.revision, changed.description) == (2, "new")
        assert (changed.metadata, changed.default_scorer) == ({"x": "y"}, EXACT)
        assert changed.updated_at > bank.updated_at
    async with database.unit_of_work() as uow:
        with pytest.raises(PreconditionFailedError, match="revision 2"):
            await uow.banks.update(bank.id, 1, {"description": "lost"})
        with pytest.raises(PreconditionFailedError, match="revision 2"):
            await uow.banks.archive(bank.id, 1)


async def test_an_item_comes_back_as_it_went_in(database: Database) -> None:
    full = NewItem(
        id=new_id("itm"),
        key="ключ",
        content=ItemContent(
            messages=(Message("user", "Hi \\ \n {}"),), choices=("a", "b"), target=("b",)
        ),
        scorer=ScorerSpec("choice", {"x": [1]}),
        tags=("t, {u}", 'v"'),
        group="g",
        expected_tokens_in=3,
        expected_tokens_out=4,
    )
    bare = NewItem(id=new_id("itm"), key="bare", content=ItemContent())
    bank = await stored_bank(database, full, bare)
    async with database.unit_of_work() as uow:
        found = await uow.items.find(bank.id, "ключ")
        assert {name: getattr(found, name) for name in full.__slots__} == {
            name: getattr(full, name) for name in full.__slots__
        }
        assert found.content_hash == full.content.content_hash
        assert (await uow.items.find(bank.id, bare.id)).content == ItemContent()
        outlines = {item.key: item for item in await uow.items.outlines(bank.id)}
    assert (outlines["ключ"].has_content, outlines["ключ"].has_target) == (True, True)
    assert (outlines["bare"].has_content, outlines["bare"].has_target) == (False, False)
    assert outlines["ключ"].scorer == full.scorer
    assert outlines["bare"].scorer is None


async def test_a_key_is_taken_once_in_a_bank(database: Database) -> None:
    await stored_bank(database, an_item("q1"), name="other")
    bank = await stored_bank(database, an_item("q1"))
    with pytest.raises(AlreadyExistsError, match="q1"):
        async with database.unit_of_work() as uow:
            await uow.items.add(bank.id, [an_item("q2"), an_item("q1")])
    async with database.unit_of_work() as uow:
        assert await uow.items.counts([bank.id]) == {bank.id: 1}


async def test_a_held_item_is_frozen_and_the_version_is_named(database: Database) -> None:
    held, free = an_item("held"), an_item("free")
    bank = await stored_bank(database, held, free)
    async with database.unit_of_work() as uow:
        await uow.versions.add(a_version(bank, n_items=1), members([held]))
    new = replace(held, content=ItemContent(prompt="changed"))
    with pytest.raises(InvalidStateError, match="'held' is frozen, for version 1"):
        async with database.unit_of_work() as uow:
            await uow.items.replace(bank.id, 1, new)
    with pytest.raises(InvalidStateError, match="version 1"):
        async with database.unit_of_work() as uow:
            await uow.items.delete(bank.id, held.id, 1)
    async with database.unit_of_work() as uow:
        moved = replace(free, key="moved", content=ItemContent(prompt="changed"))
        changed = await uow.items.replace(bank.id, 1, moved)
        assert (changed.key, changed.revision) == ("moved", 2)
        assert changed.content_hash == moved.content.content_hash
        with pytest.raises(PreconditionFailedError):
            await uow.items.delete(bank.id, free.id, 1)
        await uow.items.delete(bank.id, free.id, 2)
        with pytest.raises(NotFoundError):
            await uow.items.find(bank.id, free.id)


async def test_a_version_gives_its_numbers_back_bit_for_bit(database: Database) -> None:
    items = [an_item("q1"), an_item("q2")]
    bank = await stored_bank(database, *items)
    version = a_version(bank)
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, members(items))
    async with database.unit_of_work() as uow:
        assert await uow.versions.get(version.id) == version
        assert (await uow.banks.of_version(version.id)).id == bank.id
        columns = await uow.versions.columns(version.id)
    assert columns.keys == ("q1", "q2")
    assert columns.a == (0.1, 0.1 + 1 / 3)
    assert columns.intercept == (-1e-17, -1e-17)
    assert columns.has_content == (True, True)


async def test_pretest_items_have_no_parameters_and_are_not_loaded(database: Database) -> None:
    known, unknown = an_item("known"), an_item("unknown")
    bank = await stored_bank(database, known, unknown)
    pretest = VersionItem(
        position=1,
        item_id=unknown.id,
        key="unknown",
        a=None,
        intercept=None,
        c=None,
        d=None,
        k=None,
        status="pretest",
        flags=[{"code": "missing_key"}],
    )
    version = a_version(bank)
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, [*members([known]), pretest])
    async with database.unit_of_work() as uow:
        assert (await uow.versions.columns(version.id)).keys == ("known",)
        everything = PageRequest(limit=5, descending=False)
        first, stored = (await uow.versions.items(version.id, everything)).items
        assert stored == replace(pretest, flags=({"code": "missing_key"},))
        assert await uow.versions.flags(version.id) == [("unknown", {"code": "missing_key"})]
        flagged = await uow.versions.items(version.id, everything, flagged=True)
        assert flagged.items == (stored,)
        behind = PageRequest(limit=1, after=first.item_id, descending=False)
        assert (await uow.versions.items(version.id, behind)).items == (stored,)
        active = await uow.versions.items(version.id, everything, status="active")
        assert active.items == (first,)
        newest = await uow.versions.items(version.id, PageRequest(limit=1))
        assert (newest.items, newest.has_more) == ((stored,), True)
        with pytest.raises(NotFoundError, match="itm_x"):
            await uow.versions.items(version.id, PageRequest(after="itm_x"))


async def test_versions_are_found_by_number_id_or_as_the_latest(database: Database) -> None:
    item = an_item("q")
    bank = await stored_bank(database, item)
    other = await stored_bank(database, name="other")
    versions = [a_version(bank, number, 1) for number in (1, 2)]
    async with database.unit_of_work() as uow:
        for version in versions:
            assert await uow.versions.next_number(bank.id) == version.number
            await uow.versions.add(version, members([item]))
    async with database.unit_of_work() as uow:
        assert (await uow.versions.find(bank)).number == 2
        assert (await uow.versions.find(bank, "latest")).number == 2
        assert (await uow.versions.find(bank, 1)).id == versions[0].id
        assert (await uow.versions.find(bank, versions[0].id)).number == 1
        assert (await uow.versions.latest([bank.id, other.id]))[bank.id].number == 2
        for bad in (3, "99999999999999", "x", versions[0].id[:-1]):
            with pytest.raises(NotFoundError, match="version of bank 'sums'"):
                await uow.versions.find(bank, bad)
        with pytest.raises(NotFoundError):
            await uow.versions.find(other, versions[0].id)
        page = await uow.versions.list_page(bank.id, PageRequest(limit=1))
        assert ([v.number for v in page.items], page.has_more) == ([2], True)


async def test_items_are_fetched_by_position_in_the_order_asked(database: Database) -> None:
    items = [an_item(f"q{i}") for i in range(4)]
    bank = await stored_bank(database, *items)
    version = a_version(bank, n_items=4)
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, members(items))
        found = await uow.versions.items_at(version.id, [2, 0])
        assert [item.key for item in found] == ["q2", "q0"]
        with pytest.raises(NotFoundError, match="9"):
            await uow.versions.items_at(version.id, [1, 9])


async def test_a_version_outlives_its_archived_bank(database: Database) -> None:
    item = an_item("q")
    bank = await stored_bank(database, item)
    version = a_version(bank, n_items=1)
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, members([item]))
        await uow.banks.archive(bank.id, 1)
    async with database.unit_of_work() as uow:
        assert (await uow.banks.of_version(version.id)).name == "sums"
        with pytest.raises(NotFoundError):
            await uow.banks.find(bank.id)
