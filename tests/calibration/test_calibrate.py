import math
from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import app.calibration.logistic.calibrate as calibration
import app.calibration.logistic.em as em
from app.calibration.linking.linked import calibrate_onto
from app.calibration.logistic.calibrate import (
    Calibration,
    CalibrationSettings,
    calibrate,
    compare_families,
    finished,
)
from app.calibration.logistic.curves import Curves, Family
from app.calibration.logistic.em import Progress
from app.calibration.logistic.expectation import LatentDensity, expect
from app.calibration.logistic.priors import Normal, Priors, Steepness
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import ItemParameters
from app.errors import CalibrationError, InvalidInputError
from tests.calibration.simulated import answer, draw_items, simulate
from tests.values import not_none


def test_the_bank_carries_ids_scale_and_parameters() -> None:
    data = simulate(1, Family.TWO_PL, 300, 8)
    matrix = ScoreMatrix.of(data.matrix.scores.copy(), items=[f"q{j}" for j in range(8)])
    result = calibrate(matrix, CalibrationSettings(scale="spring"))
    bank = result.bank()
    assert bank.item_ids == matrix.items
    assert bank.scale == "spring"
    assert bank.a.tolist() == result.items.a.tolist()


def test_the_reported_log_likelihood_excludes_the_prior() -> None:
    data = simulate(2, Family.THREE_PL, 400, 10)
    result = calibrate(data.matrix, CalibrationSettings(family=Family.THREE_PL))
    again = expect(data.matrix, result.items, LatentDensity.normal()).log_likelihood
    assert result.log_likelihood == pytest.approx(again, rel=1e-12)
    assert result.aic == pytest.approx(60 - 2 * again)
    assert result.bic == pytest.approx(30 * np.log(400) - 2 * again)
    # An intercept for each item; the 1PL has one slope in common.
    assert [family.n_parameters(10) for family in Family] == [11, 20, 30, 40]


@pytest.mark.parametrize("negative_slopes", [False, True])
def test_more_items_than_examinees_do_not_change_the_scale(negative_slopes: bool) -> None:
    data = simulate(6, Family.TWO_PL, 400, 600)
    settings = CalibrationSettings(negative_slopes=negative_slopes, with_errors=False)
    result = calibrate(data.matrix, settings)
    assert len(result.density.nodes) > 61  # a long test needs a finer grid
    theta = result.thetas(data.matrix)
    assert theta.std() == pytest.approx(1, abs=0.02)
    ratio = np.median(result.items.a / (data.items.a * data.theta.std()))
    assert ratio == pytest.approx(1, abs=0.03)


def test_the_family_that_made_the_answers_has_the_lowest_bic() -> None:
    asked, matrix = CalibrationSettings(), simulate(7, Family.RASCH, 1000, 15).matrix
    families = (Family.RASCH, Family.TWO_PL, Family.THREE_PL)
    one = compare_families(matrix, families, asked)
    two = compare_families(simulate(7, Family.TWO_PL, 3000, 15).matrix, families, asked)
    assert one[0].family is Family.RASCH
    assert two[0].family is Family.TWO_PL
    plain = {fit.family: fit.log_likelihood for fit in one}[Family.TWO_PL]
    alone = calibrate(matrix, replace(asked, priors=Priors.none(), with_errors=False))
    assert plain == pytest.approx(alone.log_likelihood, rel=1e-12)


def test_cycles_are_the_e_steps_of_all_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Mock(side_effect=expect)
    monkeypatch.setattr(em, "expect", calls)
    matrix = simulate(9, Family.THREE_PL, 300, 10).matrix
    found = calibrate(matrix)
    assert found.cycles == calls.call_count > 5
    assert len(found.density.nodes) == 61
    for most in range(2, found.cycles + 1):  # a limit for all stages
        cut = calibrate(matrix, CalibrationSettings(max_cycles=most))
        assert cut.cycles <= most
        assert not cut.converged or cut.log_likelihood > found.log_likelihood - 0.01


@pytest.mark.parametrize("slope", [0.2, 8.0])
def test_a_common_slope_is_recovered_far_from_its_start(slope: float) -> None:
    rng = np.random.default_rng(1)
    items = draw_items(rng, Family.RASCH, 20)
    items = items._replace(a=np.full(20, slope), intercept=slope * items.intercept)
    matrix = answer(rng, items, rng.normal(size=1000))
    settings = CalibrationSettings(family=Family.RASCH, with_errors=False)
    result = calibrate(matrix, settings)
    assert result.converged
    assert result.items.a == pytest.approx(items.a, rel=0.15)
    assert result.b == pytest.approx(-items.intercept / slope, abs=0.1 + 0.2 / slope)


@pytest.mark.parametrize("negative_slopes", [False, True])
def test_warnings_and_parameters_are_counted(negative_slopes: bool) -> None:
    scores = np.ones((1001, 4))
    scores[:501] = 0.0
    scores[:2, 0] = scores[:1, 1] = np.nan  # 999 and 1000 answers
    a = np.array([50.0, 49.9, -0.1 if negative_slopes else 1.0, 1e-9])
    items = ItemParameters(a, np.zeros(4), np.full(4, 0.2), np.ones(4))
    asked = CalibrationSettings(
        family=Family.THREE_PL,
        negative_slopes=negative_slopes,
        estimate_density=True,
        with_errors=False,
    )

    def told(edge: float, fixed: tuple[int, ...] = (), converged: bool = True) -> Calibration:
        weights = np.array([edge / 2, 0.2, 0.8 - edge, 0.0, edge / 2])
        result = em.EmResult(
            curves=Curves.from_natural(items, log_slope=not negative_slopes),
            density=LatentDensity(np.linspace(-2, 2, 5), weights),
            log_likelihood=-900.0,
            converged=converged,
            cycles=7,
            gain=0.5,
            distance=0.25,
        )
        return finished(ScoreMatrix.of(scores), asked, asked.problem(fixed), result)

    found = told(edge=0.002)
    first, second, *others = found.warnings
    assert first.startswith("1 of 4 items have fewer than 1000 answers")
    assert second == "1 items ended at the largest slope, 50."
    falling = ["1 items have a negative slope."] if negative_slopes else []
    assert others == [*falling, "0.2 % of the population lies at the ends of the quadrature."]
    assert told(edge=0.001).warnings == found.warnings[:-1]
    late = told(edge=0.0, converged=False)
    assert late.warnings[0] == (
        "Not converged after 7 cycles: the last gained 0.5, and 0.25 standard errors are left."
    )
    # Slope, intercept and guessing of each item; weights of five nodes with three constraints.
    assert (found.n_parameters, found.free_density) == (4 * 3 + 2, True)
    fixed = told(edge=0.0, fixed=(0, 2))  # with anchors a mean and an sd instead
    assert (fixed.n_parameters, fixed.free_density) == (2 * 3 + 2, False)
    assert (found.n_examinees, found.n_answers) == (1001, 4 * 1001 - 3)


@pytest.mark.parametrize(
    ("family", "least"), [(Family.RASCH, 100), (Family.TWO_PL, 250), (Family.FOUR_PL, 2500)]
)
def test_larger_families_need_more_answers(family: Family, least: int) -> None:
    scores = np.ones((least, 2))
    scores[0, 0] = np.nan
    curves = Curves(np.array([[0.0, 0.0, -9.0, 9.0]] * 2), log_slope=True)
    result = em.EmResult(curves, LatentDensity.normal(), 0.0, True, 1, 0.0, 0.0)
    asked = CalibrationSettings(family=family)
    (told,) = calibration._warnings(ScoreMatrix.of(scores), asked, result)
    assert told.startswith(f"1 of 2 items have fewer than {least} answers")


def test_the_grid_is_as_fine_as_the_posteriors_need() -> None:
    """At most 1.3 posterior standard deviations between nodes, unless 1.2 times as many suffice."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)

    def nodes_for(n_items: int, n_nodes: int | None = None) -> int | None:
        zeros = np.zeros(n_items)
        items = ItemParameters(zeros + 1.5, zeros, zeros, zeros + 1)
        curves = Curves.from_natural(items, log_slope=True)
        result = em.EmResult(curves, LatentDensity.normal(), 0.0, True, 1, 0.0, 0.0)
        found = calibration._fine_enough(result, CalibrationSettings(n_nodes=n_nodes))
        return None if found is None else len(found.nodes)

    for n_items in (20, 80, 100, 120, 200, 900, 40_000):
        p = expit(1.5 * nodes)
        information = 1 + n_items * 1.5**2 * (weights @ (p * (1 - p))) / weights.sum()
        needed = math.ceil(12 / 1.3 * information**0.5) + 1
        assert nodes_for(n_items) == (min(needed, 401) if needed > 1.2 * 61 else None)
    assert nodes_for(900, n_nodes=61) is None


def test_progress_is_reported_and_may_stop_the_run() -> None:
    class CancelledError(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.cycle >= 3:
            raise CancelledError

    with pytest.raises(CancelledError):
        calibrate(simulate(10, Family.THREE_PL, 300, 10).matrix, watch=stop)


def test_new_items_may_have_guessing_where_anchors_have_none() -> None:
    rng = np.random.default_rng(15)
    items = draw_items(rng, Family.THREE_PL, 30)
    items.c[:15] = 0.0
    matrix = answer(rng, items, rng.normal(size=3000))
    known = items.take(np.arange(15))
    anchors = ItemBank.from_intercepts(a=known.a, intercept=known.intercept)
    result = calibrate_onto(matrix, anchors, CalibrationSettings(family=Family.THREE_PL))
    assert result.converged
    assert result.items.a[:15] == pytest.approx(known.a)
    assert (result.items.c[:15] == 0).all()
    assert result.items.c[15:] == pytest.approx(items.c[15:], abs=0.2)
    assert result.items.c[15:].mean() == pytest.approx(items.c[15:].mean(), abs=0.06)


def test_anchors_of_unequal_slopes_do_not_hold_a_1pl() -> None:
    matrix = simulate(12, Family.RASCH, 100, 5).matrix
    anchors = ItemBank.from_difficulties(a=[1.0, 1.2], b=[0.0, 0.0])
    with pytest.raises(InvalidInputError, match="1PL anchors need one common slope"):
        calibrate_onto(matrix, anchors, CalibrationSettings(family=Family.RASCH))


def test_priors_of_positive_slopes_exclude_negative_ones() -> None:
    with pytest.raises(InvalidInputError, match="need positive slopes"):
        CalibrationSettings(priors=Priors(log_slope=Normal(0, 1)), negative_slopes=True)
    with pytest.raises(InvalidInputError, match="may be negative"):
        CalibrationSettings(priors=Priors(slope=Steepness()))
    with pytest.raises(InvalidInputError, match="common slope takes no prior"):
        CalibrationSettings(family=Family.RASCH, priors=Priors(log_slope=Normal(0, 1)))
    with pytest.raises(InvalidInputError, match="one common, positive slope"):
        CalibrationSettings(family=Family.RASCH, negative_slopes=True)
    with pytest.raises(InvalidInputError, match="max_cycles must be at least 1, got 0"):
        CalibrationSettings(max_cycles=0)
    assert CalibrationSettings(max_cycles=1).max_cycles == 1


@pytest.mark.parametrize(
    ("guessing", "low", "high"),
    [([0.2, 0.2], 0.5, 0.8), ([0.02, 0.6], 1.0, 4.0)],
    ids=["alike", "of two kinds"],
)
def test_the_prior_of_guessing_is_as_wide_as_the_items_differ(
    guessing: list[float], low: float, high: float
) -> None:
    rng = np.random.default_rng(17)
    items = draw_items(rng, Family.THREE_PL, 40)
    items = items._replace(c=np.tile(guessing, 20))
    matrix = answer(rng, items, rng.normal(size=1500))
    settings = CalibrationSettings(family=Family.THREE_PL, with_errors=False)
    assert low <= not_none(calibrate(matrix, settings).guessing_sd) <= high


def test_slopes_of_either_sign_stay_finite_where_answers_are_few() -> None:
    data = simulate(18, Family.TWO_PL, 40, 12)
    result = calibrate(data.matrix, CalibrationSettings(negative_slopes=True))
    assert result.converged
    assert np.abs(result.items.a).max() < 15


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n_examinees=st.integers(2, 25),
    n_items=st.integers(2, 8),
    missing=st.sampled_from([0.0, 0.5]),
    family=st.sampled_from(Family),
    priors=st.sampled_from([None, Priors.none()]),
)
def test_a_bank_of_few_answers_is_finite_or_refused(
    seed: int, n_examinees: int, n_items: int, missing: float, family: Family, priors: Priors | None
) -> None:
    matrix = simulate(seed, family, n_examinees, n_items, missing).matrix
    try:
        result = calibrate(
            matrix, CalibrationSettings(family=family, priors=priors, max_cycles=150)
        )
    except CalibrationError:
        return
    bank = result.bank()
    assert np.isfinite(bank.b).all()
    assert np.isfinite(result.log_likelihood)
    assert np.isfinite(result.thetas(matrix)).all()
