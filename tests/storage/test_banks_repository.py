"""Banks, items and versions in Postgres."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

from app.engine.lint import Finding
from app.errors import NotFoundError
from app.items import ItemContent, Message, ScorerSpec
from app.records.banks import Bank, BankVersion, NewItem, VersionItem
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import PageRequest

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def a_bank() -> Bank:
    return Bank(
        id=new_id("bnk"),
        name="sums",
        default_scorer=ScorerSpec("numeric", {"tolerance": 0.5}),
        prompt={"system": "Be brief."},
        metadata={"team": "a"},
        revision=1,
        created_at=NOW,
        updated_at=NOW,
    )


def an_item(key: str) -> NewItem:
    return NewItem(id=new_id("itm"), key=key, content=ItemContent(prompt=key, target=("1",)))


def a_version(bank: Bank, n_items: int) -> BankVersion:
    return BankVersion(
        id=new_id("bkv"),
        bank_id=bank.id,
        number=1,
        response_model="2pl",
        scale="s",
        parameters_hash="0" * 64,
        provisional=True,
        notes="first",
        lint={"findings": {"negative_slope": 1}, "items": {}, "allow": [], "keep": []},
        n_items=n_items,
        n_calibrated=n_items,
        has_content=True,
        created_at=NOW,
    )


def members(items: Sequence[NewItem]) -> list[VersionItem]:
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
            status="active",
        )
        for position, item in enumerate(items)
    ]


async def stored_bank(database: Database, *items: NewItem) -> Bank:
    bank = a_bank()
    async with database.unit_of_work() as uow:
        await uow.banks.add(bank)
        await uow.items.add(bank.id, items)
    return bank


async def stored_version(database: Database, items: Sequence[NewItem]) -> BankVersion:
    """Store a bank with a version of all its items."""
    bank = await stored_bank(database, *items)
    version = a_version(bank, len(items))
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, members(items))
    return version


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


async def test_a_version_gives_its_numbers_back_bit_for_bit(database: Database) -> None:
    version = await stored_version(database, [an_item("q1"), an_item("q2")])
    async with database.unit_of_work() as uow:
        assert await uow.versions.get(version.id) == version
        assert (await uow.banks.of_version(version.id)).id == version.bank_id
        columns = await uow.versions.columns(version.id)
    assert columns.keys == ("q1", "q2")
    assert columns.a == (0.1, 0.1 + 1 / 3)
    assert columns.intercept == (-1e-17, -1e-17)
    assert columns.has_content == (True, True)


async def test_pretest_items_have_no_parameters_and_are_not_loaded(database: Database) -> None:
    known, unknown = an_item("known"), an_item("unknown")
    bank = await stored_bank(database, known, unknown)
    found = Finding(
        code="missing_key",
        severity="error",
        item_id="unknown",
        field="key",
        value="",
        message="It has no key.",
    )
    flag = asdict(found)
    del flag["item_id"]
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
        flags=[flag],
    )
    version = a_version(bank, 2)
    async with database.unit_of_work() as uow:
        await uow.versions.add(version, [*members([known]), pretest])
    async with database.unit_of_work() as uow:
        assert (await uow.versions.columns(version.id)).keys == ("known",)
        everything = PageRequest(limit=5, descending=False)
        first, stored = (await uow.versions.items(version.id, everything)).items
        assert stored == replace(pretest, flags=(flag,))
        assert await uow.versions.findings(version.id) == [found]
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


async def test_items_are_fetched_by_position_in_the_order_asked(database: Database) -> None:
    version = await stored_version(database, [an_item(f"q{i}") for i in range(4)])
    async with database.unit_of_work() as uow:
        found = await uow.versions.items_at(version.id, [2, 0])
        assert [item.key for item in found] == ["q2", "q0"]
        with pytest.raises(NotFoundError, match="9"):
            await uow.versions.items_at(version.id, [1, 9])


async def test_a_version_outlives_its_archived_bank(database: Database) -> None:
    version = await stored_version(database, [an_item("q")])
    async with database.unit_of_work() as uow:
        await uow.banks.archive(version.bank_id, 1)
    async with database.unit_of_work() as uow:
        assert (await uow.banks.of_version(version.id)).name == "sums"
        with pytest.raises(NotFoundError):
            await uow.banks.find(version.bank_id)
