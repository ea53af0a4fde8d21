"""Linking: a second calibration of other examinees lands on the scale of the first."""

import numpy as np
import pytest

from app.calibration.linking.linked import LinkMethod, anchors_of, calibrate_linked, linked
from app.calibration.logistic.calibrate import CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import ItemParameters
from app.errors import CalibrationError, InvalidInputError, UnknownNameError
from tests.calibration.simulated import answer, draw_items

SETTINGS = CalibrationSettings(family=Family.TWO_PL, with_errors=False)


def _shifted(
    n_examinees: int = 2000, n_items: int = 30
) -> tuple[ItemParameters, ItemBank, ScoreMatrix]:
    """Return items, the bank of the first half on scale `old`, and answers of abler examinees."""
    rng = np.random.default_rng(21)
    items = draw_items(rng, Family.TWO_PL, n_items)
    known = items.take(np.arange(n_items // 2))
    bank = ItemBank.from_intercepts(a=known.a, intercept=known.intercept, scale="old")
    return items, bank, answer(rng, items, rng.normal(0.4, 1.5, n_examinees))


@pytest.mark.parametrize("method", LinkMethod)
def test_every_method_recovers_the_scale_of_the_first_calibration(method: LinkMethod) -> None:
    items, bank, matrix = _shifted()
    found = calibrate_linked(matrix, bank, method, SETTINGS)
    assert found.anchors == bank.item_ids
    assert found.linking.slope == pytest.approx(1.5, abs=0.1)
    assert found.linking.intercept == pytest.approx(0.4, abs=0.1)
    assert found.calibration.scale == found.linking.target == "old"
    b = -items.intercept / items.a
    assert found.calibration.b[15:] == pytest.approx(b[15:], abs=0.35)
    assert found.calibration.items.a[15:] == pytest.approx(items.a[15:], rel=0.3)
    theta = found.calibration.score(matrix).theta
    assert (theta.mean(), theta.std()) == (pytest.approx(0.4, abs=0.1), pytest.approx(1.4, abs=0.1))


def test_a_linked_calibration_is_the_same_model_on_another_scale() -> None:
    _, bank, matrix = _shifted(500)
    own = calibrate(matrix, CalibrationSettings(scale="own"))
    moved = linked(own, bank, LinkMethod.STOCKING_LORD)
    A, B = moved.linking.slope, moved.linking.intercept  # noqa: N806 (the constants' usual names)
    assert moved.calibration.score(matrix).theta == pytest.approx(A * own.score(matrix).theta + B)
    assert moved.calibration.b == pytest.approx(A * own.b + B)
    assert own.errors is not None
    assert moved.calibration.errors is not None
    assert moved.calibration.errors.b == pytest.approx(A * own.errors.b)
    assert moved.calibration.errors.a == pytest.approx(own.errors.a / A)
    assert moved.calibration.log_likelihood == own.log_likelihood


def test_falling_items_and_items_of_one_bank_do_not_link() -> None:
    bank = ItemBank.from_difficulties(
        a=[1.0, -1.0, 1.2, 0.8], b=[0.0, 0.0, 1.0, 2.0], item_ids=["a", "falls", "c", "d"]
    )
    assert anchors_of(bank, ["a", "c", "falls", "new"]).item_ids == ("a", "c")
    assert anchors_of(bank, bank.item_ids, only=["c", "d"]).item_ids == ("c", "d")
    with pytest.raises(UnknownNameError, match="anchor 'new'"):
        anchors_of(bank, ["a", "c", "new"], only=["a", "new"])
    with pytest.raises(
        CalibrationError, match="at least 2 common items with a positive slope, got 1"
    ):
        anchors_of(bank, ["a", "falls", "new"])


def test_an_item_beyond_the_examinees_does_not_bend_mean_sigma() -> None:
    _, bank, matrix = _shifted()
    far = ItemBank.from_intercepts(
        a=np.append(bank.a[:-1], 0.02),
        intercept=np.append(bank.intercept[:-1], 1.0),
        item_ids=bank.item_ids,
        scale="old",
    )
    found = calibrate_linked(matrix, far, LinkMethod.MEAN_SIGMA, SETTINGS)
    assert found.anchors == bank.item_ids[:-1]
    assert found.linking.slope == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("family", [Family.TWO_PL, Family.THREE_PL, Family.FOUR_PL])
def test_with_all_items_fixed_only_the_population_is_estimated(family: Family) -> None:
    _, bank, matrix = _shifted(600)
    settings = CalibrationSettings(family=family, with_errors=False)
    known = matrix.select(items=np.arange(bank.n_items))
    found = calibrate_linked(known, bank, LinkMethod.FIXED_ANCHOR, settings)
    assert found.calibration.items.a == pytest.approx(bank.a)
    assert found.calibration.b == pytest.approx(bank.b)
    assert found.calibration.n_parameters == 2  # mean and sd of the examinees
    assert found.linking.slope == pytest.approx(1.5, abs=0.15)
    assert found.linking.intercept == pytest.approx(0.4, abs=0.15)


def test_fixed_anchors_cannot_be_used_afterwards() -> None:
    _, bank, matrix = _shifted(200)
    with pytest.raises(InvalidInputError, match="only during a calibration"):
        linked(calibrate(matrix, SETTINGS), bank, LinkMethod.FIXED_ANCHOR)
