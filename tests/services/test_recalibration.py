"""Recalibration: calibrations linked to the scale of a version, new items, and drifted ones."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from app.calibration.filters import FilterSettings
from app.calibration.logistic.curves import Family
from app.calibration.matrix import MISSING, ScoreMatrix
from app.calibration.pipeline.plan import MODELS, CalibrationPlan, LinkPlan
from app.engine.bank import FloatArray, ItemBank
from app.engine.models.base import ItemParameters
from app.engine.responses import ResponseTable
from app.errors import (
    CalibrationError,
    InvalidInputError,
    NotFoundError,
    UnknownNameError,
)
from app.exchange.response_files import write_csv
from app.records.banks import BankVersion, VersionItem
from app.records.calibrations import CalibrationRecord
from app.services.calibrations.publication import Publication
from app.services.container import Services
from app.storage.paging import PageRequest
from tests.calibration.simulated import adaptive, answer, draw_items
from tests.services.banks import make_bank, question
from tests.services.calibrations import answers, calibrated, completed, imported
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("fits_here")

N_OLD, N_NEW = 80, 8
MOVED = ("q1", "q2", "q3", "q4", "q5", "q6")
#: Has parameters in the old version, and was never asked.
UNASKED = "unasked"


class World(NamedTuple):
    """An old version, and the answers of adaptive tests on it."""

    version: BankVersion
    true_b: FloatArray


async def world(services: Services, *, n: int = 1500, shift: float = -1.5) -> World:
    rng = np.random.default_rng(8)
    items = draw_items(rng, Family.TWO_PL, N_OLD + N_NEW)
    # Items that move lie near the examinees, so that they are asked often.
    b = -items.intercept / items.a
    b[: len(MOVED)] = np.linspace(-0.5, 1.5, len(MOVED))
    b[N_OLD:] = np.linspace(-1.2, 1.2, N_NEW)  # the new items pass the filters
    a = items.a.copy()
    a[: len(MOVED)] = 1.6
    believed = ItemParameters(a, -a * b, items.c, items.d).take(slice(N_OLD))
    b[: len(MOVED)] += shift
    true = ItemParameters(a, -a * b, items.c, items.d)
    theta = rng.normal(0.4, 1.0, n)
    matrix = adaptive(rng, believed, true, theta, n_asked=20, seeded=N_NEW, n_seeded=3)
    keys = [f"q{i + 1}" for i in range(N_OLD + N_NEW)]
    parameters = ItemBank.from_intercepts(
        a=[*believed.a, 1.0],
        intercept=[*believed.intercept, 0.25],
        item_ids=[*keys[:N_OLD], UNASKED],
    )
    records = map(question, [*keys, UNASKED, "rare"])
    version = await make_bank(
        services, "living", parameters, records, scale="old", response_model="2pl"
    )
    scores = np.where(matrix.scores == MISSING, np.nan, matrix.scores)
    rare = np.full(n, np.nan)
    rare[:9] = np.arange(9) % 2
    table = ResponseTable(
        tuple(f"m/{i}" for i in range(n)), (*keys, "rare"), np.column_stack([scores, rare])
    )
    await imported(services, b"".join(write_csv(table)).decode(), "live")
    return World(version, b)


async def recalibrated(services: Services, version: BankVersion) -> CalibrationRecord:
    link = LinkPlan(method="fixed_anchor", bank_version_id=version.id, check_drift=True)
    record = await calibrated(services, CalibrationPlan(model="2pl", link=link), "live")
    assert record.status == "completed", record.failure
    return record


def difficulty_of(item: VersionItem) -> float:
    return -not_none(item.intercept) / not_none(item.a)


async def items_of(services: Services, version: BankVersion) -> dict[str, VersionItem]:
    page = await services.versions.items("living", version.id, PageRequest(limit=200))
    return {item.key: item for item in page.items}


async def test_the_next_version_is_on_the_old_scale_with_drift_flagged(services: Services) -> None:
    old = await world(services)
    record = await recalibrated(services, old.version)
    version = await services.calibrations.publish(record.id, Publication(bank="living"))

    before = await items_of(services, old.version)
    after = await items_of(services, version)
    drifted = {key for key, item in after.items() if any(f["code"] == "drift" for f in item.flags)}
    assert version.scale == old.version.scale == "old"
    assert version.number == 2
    assert drifted <= set(MOVED)
    assert len(drifted) >= 4
    assert {key for key, item in after.items() if item.status == "quarantined"} == drifted
    for key, item in before.items():
        if item.status == "active" and key not in drifted:
            assert (after[key].a, after[key].intercept) == (item.a, item.intercept)
    assert after[UNASKED].status == "active"
    assert {key for key, item in after.items() if item.status == "pretest"} == {"rare"}
    for i in range(N_OLD, N_OLD + N_NEW):
        assert abs(difficulty_of(after[f"q{i + 1}"]) - old.true_b[i]) < 0.45
    facts = not_none(version.calibration)
    assert (facts["drift"]["easier"], facts["link"]["scale"]) == (len(drifted), "old")
    flag = next(f for f in after[min(drifted)].flags if f["code"] == "drift")
    assert flag["severity"] == "error"
    assert "has become easier" in flag["message"]
    (dropped,) = (record.result or {})["dropped"]["items"]
    assert (dropped["name"], dropped["reason"]) == ("rare", "few_answers")


async def test_a_drifted_item_that_is_kept_has_its_new_curve(services: Services) -> None:
    old = await world(services)
    record = await recalibrated(services, old.version)
    rows = {row["key"]: row for row in await services.calibrations.items(record.id)}
    moved = next(key for key in MOVED if rows[key]["drifted"])
    version = await services.calibrations.publish(
        record.id, Publication(bank="living", keep=[moved])
    )

    item = (await items_of(services, version))[moved]
    true_b = old.true_b[MOVED.index(moved)]
    assert item.status == "active"
    assert difficulty_of(item) == pytest.approx(true_b, abs=0.4)
    assert rows[moved]["drift_new_b"] == pytest.approx(true_b, abs=0.4)
    assert rows[moved]["drift_z"] > 3


@pytest.mark.slow
async def test_items_quarantined_for_drift_stay_quarantined(services: Services) -> None:
    old = await world(services)
    first = await recalibrated(services, old.version)
    second_version = await services.calibrations.publish(first.id, Publication(bank="living"))
    second = await recalibrated(services, second_version)
    third_version = await services.calibrations.publish(second.id, Publication(bank="living"))

    flagged = [
        {key for key, item in found.items() if item.status == "quarantined"}
        for found in [await items_of(services, each) for each in (second_version, third_version)]
    ]
    assert flagged[0]
    assert flagged[0] <= flagged[1]
    dropped = (second.result or {})["dropped"]["items"]
    assert {entry["name"] for entry in dropped if entry["reason"] == "quarantined"} == flagged[0]
    errors = await services.versions.curve_errors(await services.versions.load(third_version.id))
    # Errors of new items are known; those of imported parameters are unknown.
    assert np.isfinite(errors).sum() >= N_NEW
    assert np.isnan(errors).sum() >= N_OLD - len(MOVED)


async def test_a_drift_report_stores_nothing_and_has_plain_sentences(services: Services) -> None:
    old = await world(services)
    look = await services.drift.look("living", None, "live")

    first = [look.drift.keys[j] for j in look.order[: int(look.drift.drifted.sum())]]
    assert set(first) <= set(MOVED)
    assert len(first) >= 4
    assert look.version.id == old.version.id
    assert f"{len(first)} became easier" in look.verdict
    assert "leaked" in look.verdict
    assert UNASKED not in look.drift.keys
    assert (await services.versions.get("living")).id == old.version.id
    await services.response_sets.create("empty")
    with pytest.raises(InvalidInputError, match="collect sessions first"):
        await services.drift.look("living", "1", "empty")
    with pytest.raises(CalibrationError, match=r"at least 2 items whose slope .* is not 0, got 0"):
        await services.drift.look("demo", None, "live")


async def test_drift_is_not_judged_where_scores_are_continuous(services: Services) -> None:
    bank = ItemBank.from_intercepts(
        a=np.ones(3), intercept=np.zeros(3), k=np.full(3, 0.2), item_ids=["x1", "x2", "x3"]
    )
    await make_bank(services, "graded", bank)
    await services.response_sets.create("some")

    with pytest.raises(InvalidInputError, match="is continuous"):
        await services.drift.look("graded", None, "some")


def test_only_logistic_models_are_linked() -> None:
    for model in set(MODELS) - set(Family):
        with pytest.raises(InvalidInputError, match="model has no setting link"):
            CalibrationPlan(model=model, link=LinkPlan(method="fixed_anchor", check_drift=True))


KEEP_ALL = CalibrationPlan(filters=FilterSettings.none())


async def linked_set(services: Services) -> tuple[CalibrationRecord, str]:
    """Publish a calibration of items q1 to q12; return answers of abler examinees to q5 to q16."""
    record = await completed(services)
    version = await services.calibrations.publish(record.id, Publication(bank="arc"))
    rng = np.random.default_rng(5)
    items = answers().items
    more = draw_items(rng, Family.TWO_PL, 4)
    mixed = ItemParameters(
        *(np.concatenate([old[4:], new]) for old, new in zip(items[:4], more[:4], strict=True))
    )
    scores = answer(rng, mixed, rng.normal(0.5, 1.2, 800)).scores
    names = [[f"new-{i}" for i in range(800)], [str(j) for j in range(5, 17)]]
    matrix = ScoreMatrix.of(scores, examinees=names[0], items=names[1])
    await imported(services, matrix, "second")
    return record, version.id


async def test_a_later_calibration_lands_on_the_scale_of_a_version(services: Services) -> None:
    _, version_id = await linked_set(services)
    plan = CalibrationPlan(link=LinkPlan(bank_version_id=version_id))
    record = await calibrated(services, plan, "second")
    assert record.status == "completed", record.failure
    link = (record.result or {})["link"]
    assert set(link["anchors"]) <= {f"q{j}" for j in range(5, 13)}
    assert link["slope"] == pytest.approx(1.2, abs=0.25)
    assert link["intercept"] == pytest.approx(0.5, abs=0.25)
    version = await services.calibrations.publish(
        record.id, Publication(bank="second", carry_over=True)
    )
    old = await services.versions.load(version_id)
    new = await services.versions.load(version.id)
    assert new.bank.scale == old.bank.scale == link["scale"]
    assert not_none(version.calibration)["link"]["bank_version_id"] == version_id
    # Items of the first calibration alone are copied unchanged; the others move little.
    here, there = new.bank.index_of("q2"), old.bank.index_of("q2")
    assert (new.bank.a[here], new.bank.b[here]) == (old.bank.a[there], old.bank.b[there])
    shared = [f"q{j}" for j in range(5, 13)]
    moved = [new.bank.b[new.bank.index_of(k)] - old.bank.b[old.bank.index_of(k)] for k in shared]
    assert abs(np.median(moved)) < 0.25
    assert new.bank.n_items == 16
    errors = await services.versions.curve_errors(new)
    before = await services.versions.curve_errors(old)
    assert errors[here].tolist() == before[there].tolist()
    arc = (await services.banks.get_bank("arc")).bank
    await services.banks.delete_bank(arc.id, arc.revision, erases=True)
    left = await services.versions.curve_errors(new)
    assert np.isnan(left[here]).all(), "its calibration went with the bank"
    known = new.bank.index_of("q16")
    assert left[known].tolist() == errors[known].tolist()


async def test_an_impossible_link_is_refused_at_once(services: Services) -> None:
    _, version_id = await linked_set(services)
    for wrong, error, says in (
        ({"bank_version_id": "bkv_none"}, NotFoundError, "bkv_none"),
        ({"anchors": ("q1", "q5")}, UnknownNameError, "anchor 'q1'"),
        ({"anchors": ("q5",)}, CalibrationError, "at least 2 common items"),
    ):
        given: Any = {"bank_version_id": version_id, **wrong}
        link = LinkPlan(**given)
        with pytest.raises(error, match=says):
            await services.calibrations.create("second", CalibrationPlan(link=link))
    with pytest.raises(UnknownNameError, match="link method 'haebara'"):
        LinkPlan(method="haebara")
    with pytest.raises(InvalidInputError, match="leave out partition_size"):
        CalibrationPlan(link=LinkPlan(method="fixed_anchor"), partition_size=100)
    unlinked = await calibrated(services, KEEP_ALL)
    with pytest.raises(InvalidInputError, match="on a scale of its own"):
        await services.calibrations.publish(unlinked.id, Publication(bank="x", carry_over=True))


async def test_versions_that_are_not_linked_have_scales_of_their_own(services: Services) -> None:
    record = await completed(services)
    first = await services.calibrations.publish(record.id, Publication(bank="arc"))
    again = await calibrated(services, replace(KEEP_ALL, model=Family.RASCH))
    second = await services.calibrations.publish(again.id, Publication(bank="arc"))
    assert first.scale != second.scale
