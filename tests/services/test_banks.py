"""Banks, from files to loaded versions."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.demo.bank import N_REFERENCE, REFERENCE_SOURCE, demo_bank
from app.engine.bank import ItemBank
from app.engine.design.design import Design
from app.errors import (
    BusyError,
    ConflictError,
    InvalidInputError,
    InvalidStateError,
    ItemBankError,
    NotFoundError,
    SextantError,
    UnknownNameError,
)
from app.exchange.item_record import ItemRecord
from app.exchange.parameters import WrittenParameters
from app.fair_semaphore import waited_s
from app.items import ItemContent, Message, ScorerSpec
from app.records.banks import BankSpec, BankVersion
from app.services.banks import spec
from app.services.banks.draft import parameters_hash, response_model_of
from app.services.banks.imports import BankImport, Renamed
from app.services.banks.service import BankService, ImportReport
from app.services.banks.versions import VersionService
from app.storage.database import Database
from app.storage.paging import PageRequest
from tests.services.banks import spread
from tests.values import not_none


@pytest.fixture
def banks(database: Database) -> BankService:
    return BankService(database)


@pytest.fixture
def versions(database: Database) -> VersionService:
    return VersionService(database)


def record(
    key: str,
    prompt: str | None = None,
    *,
    b: float | None = None,
    a: float = 1.0,
    target: Sequence[str] = ("1",),
    **fields: Any,
) -> ItemRecord:
    parameters = None if b is None else WrittenParameters(a, -a * b, 0.0, 1.0)
    content = ItemContent(prompt=prompt or f"What is {key}?", target=tuple(target))
    return ItemRecord(key=key, content=content, parameters=parameters, **fields)


table = partial(spread, lowest=-1.0)
SUMS = BankSpec(name="sums")


async def sent(banks: BankService, *items: ItemRecord, **more: Any) -> ImportReport:
    """Import into the bank of sums."""
    return await banks.import_bank(SUMS, BankImport(items=items, **more))


async def made(banks: BankService, *items: ItemRecord, **more: Any) -> BankVersion:
    return not_none((await sent(banks, *items, **more)).version)


async def test_items_and_parameters_make_a_version(
    banks: BankService, versions: VersionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.services.banks.versions._FETCHED_WHOLE", 0)  # as of a large bank
    items = [
        record("q1", tags=("easy",), group="g", expected_tokens_in=5, expected_tokens_out=2),
        record("q2", scorer=ScorerSpec("numeric", {"abs_tol": 0.1})),
        record("q3"),
    ]
    report = await sent(banks, *items, parameters=table("q2", "q1"))
    version = not_none(report.version)
    assert (report.items.rows_read, report.items.accepted) == (3, 3)
    assert (report.parameters.rows_read, report.parameters.accepted) == (2, 2)
    assert version.response_model == "1pl"
    assert version.lint["items"] == {"active": 2, "quarantined": 0, "pretest": 1}
    loaded = await versions.load(bank="sums")
    assert loaded.keys == ("q2", "q1")
    assert loaded.bank.scale == version.scale
    assert loaded.bank.b.tolist() == [-1.0, 1.0]
    assert loaded.active.tolist() == [True, True]
    assert loaded.tags == ((), ("easy",))
    assert loaded.groups == (None, "g")
    assert math.isnan(loaded.expected_tokens_in[0])
    assert loaded.expected_tokens_in[1] == 5
    assert loaded.position_of("q1") == 1
    assert loaded.position_of("q3") == 2
    assert loaded.is_pretest(2)
    assert loaded.position_of("q4") is None
    assert loaded.n_without_content == 0
    asked = await versions.items_at(loaded, [1, 0])
    assert asked[1].content == items[0].content
    assert asked[1].scorer == ScorerSpec("exact")
    assert asked[0].scorer == ScorerSpec("numeric", {"abs_tol": 0.1})
    with pytest.raises(NotFoundError, match="9"):
        await versions.items_at(loaded, [0, 9])
    test = await versions.adaptive_test(loaded, Design.from_dict({}))
    assert test is await versions.adaptive_test(loaded, Design.from_dict({}))
    assert loaded is await versions.load(loaded.id)


async def test_an_item_comes_back_as_it_went_in(banks: BankService, database: Database) -> None:
    turns = (Message("user", "Hi \\ \n {}"),)
    full = ItemRecord(
        key="ключ",
        content=ItemContent(messages=turns, choices=("a", "b"), target=("b",)),
        scorer=ScorerSpec("pattern", {"pattern": "[x]"}),
        tags=("t, {u}", 'v"'),
        group="g",
        expected_tokens_in=3,
        expected_tokens_out=4,
    )
    await sent(banks, full)
    async with database.unit_of_work() as uow:
        bank = await uow.banks.find("sums")
        found = await uow.items.find(bank.id, "ключ")
        (outline,) = await uow.items.outlines(bank.id)
    for name in ("key", "content", "scorer", "tags", "group", "expected_tokens_in"):
        assert getattr(found, name) == getattr(full, name), name
    assert (found.expected_tokens_out, found.content_hash) == (4, full.content.content_hash)
    assert (outline.has_content, outline.has_target, outline.scorer) == (True, True, full.scorer)


async def test_parameters_may_stand_beside_items(
    banks: BankService, versions: VersionService
) -> None:
    report = await sent(banks, record("q1", b=0.5, a=2.0))
    loaded = await versions.load((await versions.get("sums", 1)).id)
    assert (loaded.bank.a.tolist(), loaded.bank.b.tolist()) == ([2.0], [0.5])
    assert report.parameters.accepted == 1
    with pytest.raises(InvalidInputError, match="from one place"):
        await sent(banks, record("q2", b=0.5), parameters=table("q2"))


async def test_parameters_alone_have_no_content(
    banks: BankService, versions: VersionService
) -> None:
    report = await sent(banks, parameters=table("q1", "q2"))
    version = not_none(report.version)
    assert not version.has_content
    loaded = await versions.load(version.id)
    assert loaded.n_without_content
    assert loaded.n_without_content == 2
    assert report.findings == ()


async def test_items_alone_make_no_version(banks: BankService, versions: VersionService) -> None:
    assert (await sent(banks, record("q1"))).version is None
    assert (await banks.get_bank("sums")).n_items == 1
    with pytest.raises(InvalidStateError, match="no version yet"):
        await versions.load(bank="sums")


async def test_nothing_to_import_is_refused(banks: BankService) -> None:
    with pytest.raises(InvalidInputError, match="got neither"):
        await sent(banks)
    with pytest.raises(NotFoundError):
        await banks.get_bank("sums")


async def test_guesses_do_not_take_the_place_of_parameters(banks: BankService) -> None:
    await sent(banks, record("q1"), parameters=table("q1"))
    with pytest.raises(InvalidStateError, match="Bank sums has version 1 with parameters"):
        await sent(banks, provisional=True)
    # The version is provisional and still has reference models.
    demo = await banks.ensure_demo_bank()
    assert demo.provisional
    with pytest.raises(InvalidStateError, match="or curves that are not guesses"):
        await banks.import_bank(BankSpec(name="demo"), BankImport(provisional=True))


async def test_a_dry_run_writes_nothing(banks: BankService, versions: VersionService) -> None:
    request = BankImport(items=[record("q1"), record("q2")], parameters=table("q1"))
    dry = await banks.import_bank(SUMS, request, dry_run=True)
    with pytest.raises(NotFoundError):
        await banks.get_bank("sums")
    real = await banks.import_bank(SUMS, request)
    assert dry.items == real.items
    would_be, version = not_none(dry.version), not_none(real.version)
    assert (would_be.lint, would_be.parameters_hash) == (version.lint, version.parameters_hash)
    again = await banks.import_bank(SUMS, request, dry_run=True)
    assert not_none(again.version).id == version.id
    assert (await versions.get("sums")).number == 1


async def test_the_same_items_again_are_left_as_they_are(banks: BankService) -> None:
    await sent(banks, record("q1"))
    report = await sent(banks, record("q1"), record("q2"))
    assert report.items.accepted == 1
    (skipped,) = report.items.skipped
    assert (skipped.reason, skipped.count, skipped.keys) == ("unchanged", 1, ("q1",))


async def test_another_item_under_a_taken_key_stops_the_whole_import(banks: BankService) -> None:
    await sent(banks, record("q1"))
    with pytest.raises(ConflictError) as caught:
        await sent(banks, record("q2"), record("q1", "Something else?", row=7))
    assert [problem.pointer for problem in caught.value.problems] == ["items:7:key"]
    assert (await banks.get_bank("sums")).n_items == 1


@pytest.mark.parametrize("scorer", [ScorerSpec("exakt"), ScorerSpec("exact", {"nope": 1})])
async def test_an_unknown_scorer_stops_the_import(banks: BankService, scorer: ScorerSpec) -> None:
    with pytest.raises(InvalidInputError) as caught:
        await sent(banks, record("q", scorer=scorer, row=3))
    assert caught.value.problems[0].pointer == "items:3:scorer"
    with pytest.raises(SextantError):
        await banks.create_bank(replace(SUMS, default_scorer=scorer))


async def test_only_a_scorer_that_works_too_long_is_at_fault_not_one_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def check(_: ScorerSpec) -> None:
        waited_s.set(waited_s.get() + waits)
        raise TimeoutError

    monkeypatch.setattr("app.scorers.check", check)
    waits = 20.0
    with pytest.raises(BusyError, match="try again"):
        await spec.faults_of([ScorerSpec("exact")])
    waits = 10.0
    with pytest.raises(InvalidInputError, match="simpler"):
        await spec.faults_of([ScorerSpec("exact")])


async def test_names_changed_by_r_match_their_items_and_are_reported(
    banks: BankService, versions: VersionService
) -> None:
    items = [record(key) for key in ("1", "a-b", "X2", "2", "x y", "x-y")]
    report = await sent(banks, *items, parameters=table("X1", "a.b", "X2", "x.y", "zzz"))
    assert report.renamed == (Renamed("X1", "1"), Renamed("a.b", "a-b"))
    loaded = await versions.load(bank="sums")
    assert loaded.keys == ("1", "a-b", "X2")
    (skipped,) = report.parameters.skipped
    assert (skipped.reason, skipped.keys) == ("no_matching_item", ("x.y", "zzz"))
    lint = not_none(report.version).lint
    assert (lint.get("n_unmatched"), lint.get("unmatched")) == (2, ["x.y", "zzz"])


async def test_parameters_without_an_item_make_no_new_version(banks: BankService) -> None:
    item = record("q")
    for keys in (("q",), ("q", "lost"), ("q",)):
        report = await sent(banks, item, parameters=spread(*keys, lowest=0.0))
        assert not_none(report.version).number == 1


async def test_faulty_items_are_quarantined(banks: BankService, versions: VersionService) -> None:
    items = [record("ok"), record("twin", "What is ok?"), record("mute", target=()), record("neg")]
    parameters = table("ok", "twin", "mute", "neg")
    parameters = replace(parameters, a=np.array([1.0, 1.0, 1.0, -0.5]))
    report = await sent(banks, *items, parameters=parameters)
    assert {(f.code, f.item_id) for f in report.findings} == {
        ("duplicate_content", "twin"),
        ("missing_key", "mute"),
        ("negative_slope", "neg"),
    }
    loaded = await versions.load(bank="sums")
    assert loaded.active.tolist() == [True, False, False, False]
    assert loaded.bank.n_items == 4
    flagged = await versions.items("sums", "latest", PageRequest(descending=False), flagged=True)
    assert [(i.key, i.flags[0]["code"], i.flags[0]["value"]) for i in flagged.items] == [
        ("twin", "duplicate_content", "ok"),
        ("mute", "missing_key", None),
        ("neg", "negative_slope", -0.5),
    ]
    overridden = await made(
        banks, *items, parameters=parameters, allow={"duplicate_content"}, keep={"neg"}
    )
    loaded = await versions.load(overridden.id)
    assert loaded.active.tolist() == [True, True, False, True]
    assert overridden.lint["allow"] == ["duplicate_content"]
    what_if = await versions.validate("sums", "1", allow=["missing_key"])
    assert what_if.quarantined == ["neg", "twin"]
    assert {f.code for f in what_if.findings} == {f.code for f in report.findings}


@pytest.mark.parametrize("override", [{"allow": ["typo"]}, {"keep": ["nobody"]}])
async def test_an_unknown_override_is_refused(
    banks: BankService, override: dict[str, list[str]]
) -> None:
    with pytest.raises(InvalidInputError, match=r"typo|nobody") as refused:
        await sent(banks, parameters=table("q1"), **override)
    assert [f"/{name}" for name in override] == [one.pointer for one in refused.value.problems]


async def test_a_slope_that_gives_no_difficulty_is_refused_also_without_a_file(
    banks: BankService,
) -> None:
    flat = ItemBank.from_difficulties(a=[1.0, 1e-12], b=[0.0, 1.0], item_ids=["q1", "q2"])
    with pytest.raises(ItemBankError, match="item 'q2': expected a slope of 0, or of at least"):
        await sent(banks, record("q1"), record("q2"), parameters=flat)


async def test_a_version_without_any_active_item_is_refused(banks: BankService) -> None:
    with pytest.raises(InvalidInputError, match="all 2 items aside"):
        await sent(banks, parameters=table("q1", "q2", a=-1.0))


async def test_versions_count_up_and_name_scales(
    banks: BankService, versions: VersionService
) -> None:
    parameters = table("q1", "q2")
    first = await made(banks, parameters=parameters)
    second = await made(banks, parameters=parameters, scale="linked")
    assert [first.number, second.number] == [1, 2]
    assert first.scale.startswith("sums-v1-")
    assert second.scale == "linked"
    assert first.parameters_hash != second.parameters_hash
    assert (await versions.get("sums")).id == second.id
    assert (await versions.get("sums", 1)).id == first.id
    loaded = await versions.load(second.id)
    assert second.parameters_hash == parameters_hash(loaded.bank, "1pl", "linked")


@given(
    a=st.floats(-5, 5),
    other=st.floats(-5, 5),
    field=st.sampled_from(["a", "intercept", "item_ids", "scale"]),
)
def test_the_hash_changes_with_every_part_alone(a: float, other: float, field: str) -> None:
    def hashed(scale: str = "s", **part: Any) -> str:
        columns = {"a": [a], "intercept": [a], "item_ids": ["q"], **part}
        return parameters_hash(ItemBank.from_intercepts(**columns), "1pl", scale)

    changed: dict[str, Any] = {
        "a": {"a": [other]},
        "intercept": {"intercept": [other]},
        "item_ids": {"item_ids": [f"q{other}"]},
        "scale": {"scale": f"s{other}"},
    }
    same = field in ("a", "intercept") and np.float64(a).tobytes() == np.float64(other).tobytes()
    assert (hashed() == hashed(**changed[field])) == same


@pytest.mark.parametrize(
    ("columns", "smallest"),
    [
        ({"a": [1.0, 1.0]}, "1pl"),
        ({"a": [1.0, 2.0]}, "2pl"),
        ({"a": [1.0, 1.0], "c": [0.1, 0.0]}, "3pl"),
        ({"a": [1.0, 2.0], "d": [0.9, 1.0]}, "4pl"),
    ],
)
def test_the_response_model_is_the_smallest_that_fits_or_a_larger_one_on_request(
    columns: dict[str, list[float]], smallest: str
) -> None:
    bank = replace(table("q1", "q2"), **columns)  # type: ignore[arg-type]  # names of its fields
    order = ["1pl", "2pl", "3pl", "4pl"]
    assert response_model_of(bank, None) == smallest
    for wanted in order:
        if order.index(wanted) >= order.index(smallest):
            assert response_model_of(bank, wanted) == wanted
        else:
            with pytest.raises(ItemBankError, match=f"not of a {wanted} one") as caught:
                response_model_of(bank, wanted)
            assert caught.value.problems
    with pytest.raises(UnknownNameError):
        response_model_of(bank, "5pl")


async def test_information_sums_the_active_items(
    banks: BankService, versions: VersionService
) -> None:
    parameters = replace(table("q1", "q2", "q3"), a=np.array([1.0, 2.0, -1.0]))
    await sent(banks, parameters=parameters)
    theta = np.linspace(-2, 2, 5)
    curve = await versions.information("sums", "latest", theta)
    expected = parameters.information(theta, [0, 1]).sum(axis=-1)
    np.testing.assert_allclose(curve.information, expected, rtol=1e-12)
    np.testing.assert_allclose(curve.se, 1 / np.sqrt(expected), rtol=1e-12)


async def test_the_demo_bank_is_installed_once_by_many_at_the_same_time(
    banks: BankService, versions: VersionService
) -> None:
    version, *others = await asyncio.gather(*(banks.ensure_demo_bank() for _ in range(4)))
    others.append(await banks.ensure_demo_bank())
    assert {other.id for other in others} == {version.id}
    assert (version.number, version.provisional) == (1, True)
    assert version.has_content
    loaded = await versions.load(version.id)
    demo = demo_bank()
    assert loaded.keys == tuple(item.key for item in demo.items)
    assert loaded.active.all()
    assert loaded.n_reference == N_REFERENCE
    assert loaded.asked_when_calibrated == {"source": REFERENCE_SOURCE}
    for column in ("a", "intercept"):
        known, there = getattr(demo.item_bank(), column), getattr(loaded.bank, column)
        assert there.tobytes() == known.tobytes(), column
    assert (await versions.items_at(loaded, [7]))[7].content == demo.items[7].content


async def test_an_import_of_what_the_latest_version_says_makes_no_other(banks: BankService) -> None:
    request = BankImport(
        items=[record("q1"), record("q2"), record("trial")],
        parameters=table("q1", "q2"),
        knowledge={"reference_abilities": {"quantiles": (-1.0, 0.1)}},
        notes="from the paper",
    )
    first = not_none((await banks.import_bank(SUMS, request)).version)
    for same in (request, replace(request, items=(), notes=""), BankImport(from_version="latest")):
        again = await banks.import_bank(SUMS, same)
        assert not_none(again.version).id == first.id
        assert (again.parameters.accepted, again.parameters.skipped[0].reason) == (0, "unchanged")
    assert (await banks.create_version("sums", request)).id == first.id


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": table("q1", "q2", a=1.5)},
        {"parameters": table("q1")},
        {"items": [record("q3")]},
        {"allow": ["missing_key"]},
        {"keep": ["q1"]},
        {"knowledge": {"reference_abilities": {"quantiles": [0.0, 1.0]}}},
        {"provisional": True},
        {"notes": "said otherwise"},
        {"scale": "linked"},
    ],
)
async def test_whatever_differs_makes_a_version_and_equal_parameters_keep_their_scale(
    banks: BankService, change: dict[str, Any]
) -> None:
    request = BankImport(items=[record("q1"), record("q2")], parameters=table("q1", "q2"))
    first, second = [
        not_none((await banks.import_bank(SUMS, each)).version)
        for each in (request, replace(request, **change))
    ]
    assert second.number == 2
    assert (second.scale == first.scale) == ("parameters" not in change and "scale" not in change)


async def test_texts_for_some_items_make_a_version(banks: BankService) -> None:
    bare = table("q1", "q2")
    await sent(banks, parameters=bare)
    assert (await made(banks, record("q1"), parameters=bare)).number == 2


async def test_imports_at_the_same_time_do_not_mix(banks: BankService) -> None:
    tables = [table("q1", "q2", a=float(i)) for i in range(1, 4)]
    found = await asyncio.gather(*(made(banks, parameters=each) for each in tables))
    assert sorted(version.number for version in found) == [1, 2, 3]
    assert (await banks.get_bank("sums")).n_items == 2


async def test_the_names_of_scales_differ_when_a_bank_is_made_anew(banks: BankService) -> None:
    first = await made(banks, parameters=table("q1"))
    await banks.delete_bank("sums", 1)
    assert first.scale != (await made(banks, parameters=table("q1", a=2.0))).scale


async def test_a_version_follows_its_bank(banks: BankService, versions: VersionService) -> None:
    await sent(banks, record("q1", b=0.0))
    before = await versions.load(bank="sums")
    assert (await versions.items_at(before, [0]))[0].scorer == ScorerSpec("exact")
    changes = {"default_scorer": ScorerSpec("numeric"), "prompt": {"system": "Be brief."}}
    await banks.update_bank("sums", 1, changes)
    after = await versions.load(before.id)
    assert after.prompt_style.system == "Be brief."
    assert (await versions.items_at(after, [0]))[0].scorer == ScorerSpec("numeric")
    assert after.bank is before.bank


@pytest.mark.parametrize(
    ("own", "default", "choices", "expected"),
    [
        ("numeric", "includes", ("x",), "numeric"),
        (None, "includes", ("x",), "includes"),
        (None, "by_kind", ("x",), "choice"),
        (None, "by_kind", (), "exact"),
    ],
)
def test_an_item_without_scorer_takes_the_banks_or_the_one_of_its_kind(
    own: str | None, default: str, choices: tuple[str, ...], expected: str
) -> None:
    scorer = None if own is None else ScorerSpec(own)
    content = ItemContent(prompt="?", choices=choices)
    assert spec.item_scorer(scorer, ScorerSpec(default), content).name == expected
