"""Calibrations linked to the scale of a bank version, and unlinked ones."""

from dataclasses import replace

import numpy as np
import pytest

from app.calibration.filters import FilterSettings
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.engine.models.base import ItemParameters
from app.errors import (
    CalibrationError,
    InvalidInputError,
    NotFoundError,
    ScaleMismatchError,
    UnknownNameError,
)
from app.records.calibrations import CalibrationRecord
from app.services.calibrations.publication import Publication
from app.services.container import Services
from tests.calibration.simulated import answer, draw_items
from tests.services.calibrations import answers, calibrated, completed, imported
from tests.values import not_none

pytestmark = pytest.mark.usefixtures("fits_here")

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
    lines = ["model," + ",".join(f"q{j}" for j in range(5, 17))]
    lines += [f"new-{i}," + ",".join(map(str, row)) for i, row in enumerate(scores)]
    await imported(services, "\n".join(lines) + "\n", "second")
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
    errors = await services.versions.difficulty_errors(new)
    assert errors[here] == (await services.versions.difficulty_errors(old))[there]
    arc = (await services.banks.get_bank("arc")).bank
    await services.banks.delete_bank(arc.id, arc.revision, erases=True)
    left = await services.versions.difficulty_errors(new)
    assert np.isnan(left[here]), "its calibration went with the bank"
    known = new.bank.index_of("q16")
    assert left[known] == errors[known]


async def test_an_impossible_link_is_refused_at_once(services: Services) -> None:
    _, version_id = await linked_set(services)
    for wrong, error, says in (
        ({"bank_version_id": "bkv_none"}, NotFoundError, "bkv_none"),
        ({"anchors": ("q1", "q5")}, UnknownNameError, "anchor 'q1'"),
        ({"anchors": ("q5",)}, CalibrationError, "at least 2 common items"),
    ):
        link = LinkPlan(**{"bank_version_id": version_id, **wrong})  # type: ignore[arg-type]
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
    bank = (await services.versions.load(second.id)).bank
    with pytest.raises(ScaleMismatchError, match="not linked"):
        bank.require_scale(first.scale)
