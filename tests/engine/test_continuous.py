from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridEstimator
from app.engine.inference.diagnostics import person_fit
from app.engine.information_index import InformationIndex
from app.engine.lint import lint
from app.engine.models.base import ItemParameters
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.logistic import LOGISTIC
from app.engine.prediction.p_irt import PIrt
from app.engine.selection.base import Pool
from app.engine.simulation.simulate import draw_scores
from app.engine.state import CatState, Response
from app.engine.stopping import (
    DecisionByInterval,
    DecisionBySprt,
    LowInformation,
    Plateau,
    ScoreMargin,
    SeTarget,
    Situation,
    StoppingRule,
)
from app.errors import ItemBankError
from tests.engine.random_banks import clean_bank, random_bank

thetas = st.floats(-50, 50)


@st.composite
def items(draw: st.DrawFn) -> ItemParameters:
    a = draw(st.floats(-5, 5).filter(lambda a: abs(a) > 0.05))
    c, d = draw(st.floats(0.0, 0.4)), draw(st.floats(0.6, 1.0))
    return parameters(a, -a * draw(st.floats(-6, 6)), c, d, draw(st.floats(0.01, 1.5)))


def parameters(*values: float) -> ItemParameters:
    return ItemParameters(*(np.float64(value) for value in values))  # type: ignore[arg-type]  # scalars broadcast


def slope_of(function: Callable[[float], Any], theta: float) -> float:
    h = 1e-4
    return float(
        (8 * (function(theta + h) - function(theta - h)) - function(theta + 2 * h))
        + function(theta - 2 * h)
    ) / (12 * h)


@given(item=items(), theta=thetas, score=st.floats(0, 1))
def test_everything_is_finite_at_any_theta_and_score(
    item: ItemParameters, theta: float, score: float
) -> None:
    everything: list[Any] = [
        CONTINUOUS.expected_score(item, theta),
        CONTINUOUS.score_variance(item, theta),
        CONTINUOUS.information(item, theta),
        CONTINUOUS.log_likelihood(item, theta, score),
        *CONTINUOUS.likelihood_slope(item, theta, score),
        *CONTINUOUS.warm_terms(item, theta),
    ]
    assert np.isfinite(everything).all()
    assert item.c - 1e-15 <= CONTINUOUS.expected_score(item, theta) <= item.d + 1e-15
    assert CONTINUOUS.information(item, theta) >= 0


@given(item=items(), theta=st.floats(-8, 8))
def test_information_is_the_squared_slope_of_the_mean_over_the_variance(
    item: ItemParameters, theta: float
) -> None:
    variance = float(CONTINUOUS.score_variance(item, theta))
    assume(variance > 1e-5)
    slope = slope_of(lambda t: CONTINUOUS.expected_score(item, t), theta)
    assert CONTINUOUS.information(item, theta) == pytest.approx(
        slope**2 / variance, rel=1e-5, abs=1e-8
    )


def test_information_is_the_published_one() -> None:
    # Balkir et al. (2026), arXiv 2601.13885: mu (1 - mu) / k with mu = sigmoid(theta - b).
    item = parameters(1.0, -0.5, 0.0, 1.0, 0.08)
    mu = 1 / (1 + np.exp(-(1.2 - 0.5)))
    assert CONTINUOUS.information(item, 1.2) == pytest.approx(mu * (1 - mu) / 0.08)
    assert CONTINUOUS.score_variance(item, 1.2) == pytest.approx(0.08 * mu * (1 - mu))


@given(item=items(), theta=st.floats(-8, 8), score=st.floats(0, 1))
def test_the_slopes_of_the_likelihood_match_numeric_ones(
    item: ItemParameters, theta: float, score: float
) -> None:
    exact = CONTINUOUS.likelihood_slope(item, theta, score)
    assert exact.first == pytest.approx(
        slope_of(lambda t: CONTINUOUS.log_likelihood(item, t, score), theta), rel=1e-5, abs=1e-5
    )
    assert exact.second == pytest.approx(-float(CONTINUOUS.information(item, theta)))


@given(item=items(), theta=st.floats(-6, 6))
def test_warm_terms_match_numeric_derivatives(item: ItemParameters, theta: float) -> None:
    terms = CONTINUOUS.warm_terms(item, theta)
    assert terms.information == pytest.approx(float(CONTINUOUS.information(item, theta)))
    assert terms.j == pytest.approx(
        slope_of(lambda t: CONTINUOUS.information(item, t), theta), rel=1e-5, abs=1e-5
    )
    assert terms.information_slope == terms.j
    assert terms.j_slope == pytest.approx(
        slope_of(lambda t: CONTINUOUS.warm_terms(item, t).j, theta), rel=1e-5, abs=1e-5
    )


@given(item=items(), theta=thetas, score=st.floats(0, 1))
def test_one_item_gets_what_the_array_gives(
    item: ItemParameters, theta: float, score: float
) -> None:
    bank = ItemParameters(*(np.array([7.0, column]) for column in item))
    nodes = np.linspace(-50.0, 50.0, 101)
    assert CONTINUOUS.item_information(bank, 1, theta) == pytest.approx(
        float(CONTINUOUS.information(item, theta)), rel=1e-12, abs=1e-300
    )
    np.testing.assert_allclose(
        CONTINUOUS.item_log_likelihood(bank, 1, nodes, score),
        CONTINUOUS.log_likelihood(item, nodes, score),
        rtol=1e-12,
    )


def test_with_all_of_the_scatter_it_is_the_logistic_model() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.lognormal(0.0, 0.4, 30), rng.normal(size=30)
    plain = ItemBank.from_difficulties(a=a, b=b)
    scored = ItemBank.from_difficulties(a=a, b=b, k=np.ones(30))
    grid = np.linspace(-4, 4, 9)
    right = rng.integers(0, 2, 30)
    np.testing.assert_allclose(scored.information(grid), plain.information(grid))
    np.testing.assert_allclose(
        scored.log_likelihood(grid, range(30), right),
        plain.log_likelihood(grid, range(30), right),
    )
    for one, other in zip(
        CONTINUOUS.warm_terms(scored.parameters, 0.7),
        LOGISTIC.warm_terms(plain.parameters, 0.7),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_scores_of_many_items_may_be_missing() -> None:
    bank = random_bank(1, 20, kind="continuous")
    nodes = np.linspace(-3, 3, 7)
    scores = np.random.default_rng(2).random((3, 20))
    scores[1, 4:] = np.nan
    rows = CONTINUOUS.row_log_likelihood(bank.parameters, nodes, scores)
    np.testing.assert_allclose(rows[0], bank.log_likelihood(nodes, range(20), scores[0]))
    np.testing.assert_allclose(rows[1], bank.log_likelihood(nodes, range(4), scores[1, :4]))


def test_a_score_beyond_the_items_range_counts_as_at_its_end() -> None:
    item = parameters(1.3, 0.2, 0.2, 0.8, 0.1)
    for beyond, end in ((0.05, 0.2), (1.0, 0.8)):
        assert CONTINUOUS.log_likelihood(item, 0.4, beyond) == pytest.approx(
            float(CONTINUOUS.log_likelihood(item, 0.4, end))
        )


@pytest.mark.parametrize("k", [0.02, 0.3, 1.0, 1.5])
def test_drawn_scores_have_the_mean_and_variance_of_the_model(k: float) -> None:
    n = 40_000
    bank = ItemBank.from_difficulties(
        a=np.ones(n), b=np.full(n, -1.5), c=np.full(n, 0.1), d=np.full(n, 0.9), k=np.full(n, k)
    )
    (scores,) = draw_scores(bank, [0.7], np.random.default_rng(3))
    assert scores.min() >= 0.1
    assert scores.max() <= 0.9
    assert scores.mean() == pytest.approx(float(bank.expected_score(0.7)[0]), abs=0.008)
    variance = float(CONTINUOUS.score_variance(bank.parameters.take(0), 0.7)) * min(1.0, 1.0 / k)
    assert scores.var() == pytest.approx(variance, rel=0.06)


def beta(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    return np.array(list(draw_scores(bank, [theta] * n, rng)))


def graded(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Grades 0, 1/m, ..., 1: a judge's marks, with variance mu (1 - mu) / m."""
    grades = np.round(1 / bank.k).astype(int)
    right = rng.binomial(grades, bank.expected_score(theta), (n, bank.n_items))
    shares: FloatArray = right / grades
    return shares


def cut_normal(bank: ItemBank, theta: float, n: int, rng: np.random.Generator) -> FloatArray:
    sd = np.sqrt(CONTINUOUS.score_variance(bank.parameters, theta))
    return np.clip(rng.normal(bank.expected_score(theta), sd, (n, bank.n_items)), 0, 1)


def near_bank() -> ItemBank:
    """50 items as an adaptive test would choose them for theta 0.5, each with grades to give."""
    rng = np.random.default_rng(4)
    return ItemBank.from_difficulties(
        a=rng.lognormal(0.0, 0.3, 50),
        b=0.5 + rng.normal(0, 0.7, 50),
        k=1 / rng.integers(4, 12, 50),
    )


@pytest.mark.parametrize(
    ("draw", "method"),
    [
        (beta, EstimatorName.MLE),
        (beta, EstimatorName.WLE),
        (graded, EstimatorName.WLE),
        (cut_normal, EstimatorName.WLE),
    ],
)
def test_information_is_the_inverse_variance_of_the_estimator(
    draw: Callable[..., FloatArray], method: EstimatorName
) -> None:
    bank, theta, n = near_bank(), 0.5, 1_500
    scores = draw(bank, theta, n, np.random.default_rng(5))
    found = np.array(
        [
            belief.theta
            for block in estimate_many(bank, scores, GridEstimator(method=method))
            for belief in block.beliefs
        ]
    )
    information = float(bank.information(theta).sum())
    # 1,500 thetas: the standard error of their variance is 3.7 %, that of their mean 0.003.
    assert found.var() * information == pytest.approx(1.0, abs=0.11)
    assert found.mean() == pytest.approx(theta, abs=0.01)


@pytest.mark.parametrize(
    ("draw", "method"),
    [
        *((beta, method) for method in EstimatorName),
        (graded, EstimatorName.EAP),
        (cut_normal, EstimatorName.EAP),
    ],
)
def test_intervals_hold_as_often_as_they_say_whatever_the_shape_of_the_scores(
    draw: Callable[..., FloatArray], method: EstimatorName
) -> None:
    bank, n = near_bank(), 1_000
    rng = np.random.default_rng(6)
    thetas = 0.5 + rng.normal(0, 0.5, n)
    scores = np.concatenate([draw(bank, theta, 1, rng) for theta in thetas])
    held = 0
    for block in estimate_many(bank, scores, GridEstimator(method=method)):
        for row, belief in zip(block.rows, block.beliefs, strict=True):
            estimate = belief.estimate()
            held += estimate.lo <= thetas[row] <= estimate.hi
    # 1,000 intervals: three standard errors are 2.1 %.
    assert 0.93 <= held / n <= 0.97


@pytest.mark.parametrize("score", [0.0, 1.0])
def test_scores_at_the_very_ends_give_a_finite_theta(score: float) -> None:
    bank = near_bank()
    responses = [Response(ItemIndex(i), score) for i in range(10)]
    for method in EstimatorName:
        estimate = GridEstimator(method=method).estimate(bank, responses)
        assert 1.0 < abs(estimate.theta) < 8.0


def test_person_fit_of_fitting_answers_is_standard_normal_with_ranges_of_their_own() -> None:
    bank = random_bank(8, 80, kind="continuous")
    rng = np.random.default_rng(8)
    thetas = rng.normal(0, 1, 300)
    scores = np.array(list(draw_scores(bank, thetas, rng)))
    values = []
    for block in estimate_many(bank, scores, GridEstimator()):
        for row, belief in zip(block.rows, block.beliefs, strict=True):
            responses = [Response(ItemIndex(i), float(x)) for i, x in enumerate(scores[row])]
            values.append(person_fit(bank, responses, belief.theta).lz_star or np.nan)
    assert np.mean(values) == pytest.approx(0.0, abs=0.2)
    assert np.std(values) == pytest.approx(1.0, abs=0.13)


def situation(scores: list[float]) -> Situation:
    """A test with such answers to the first items."""
    bank, estimator = BANK, GridEstimator()
    state, belief = CatState(belief=estimator.start(bank)), estimator.start(bank)
    for position, score in enumerate(scores):
        response = Response(ItemIndex(position), score)
        belief = estimator.update(bank, belief, response)
        state = state.with_pending(response.item).with_response(response, belief)
    return Situation(state, Pool(InformationIndex(bank)))


BANK = clean_bank(9, 40, kind="continuous")


@pytest.mark.parametrize(
    ("rule", "over", "going_on"),
    [
        (SeTarget(se=0.2), [0.5] * 20, [0.5]),
        (DecisionByInterval(cut=0.0), [0.9] * 20, [0.5]),
        (DecisionBySprt(cut=0.0), [0.9] * 20, [0.5]),
        (ScoreMargin(margin=0.05, predictor=PIrt()), [0.5] * 30, [0.5]),
        (Plateau(theta_change=0.05, estimator=GridEstimator()), [0.5] * 35, [0.5, 0.9]),
        (LowInformation(information=0.05), [0.5] * 40, [0.5]),
    ],
)
def test_rules_end_a_test_of_continuous_scores(
    rule: StoppingRule, over: list[float], going_on: list[float]
) -> None:
    assert rule.check(situation(over)) is not None
    assert rule.check(situation(going_on)) is None


def test_lint_knows_ranges_from_guessing_and_finds_too_much_scatter() -> None:
    bank = ItemBank.from_difficulties(
        a=[1.0, 1.0], b=[0.0, 0.0], c=[0.6, 0.0], d=[0.9, 0.5], k=[0.1, 1.4]
    )
    assert [(f.item_id, f.code, f.value) for f in lint(bank)] == [("2", "high_dispersion", 1.4)]


@pytest.mark.parametrize("k", [0.0, -0.1, 1e-300])
def test_a_dispersion_that_is_none_is_refused_with_its_item(k: float) -> None:
    with pytest.raises(ItemBankError, match=r"item 'y': need k >= 1e-09, got k="):
        ItemBank.from_difficulties(a=[1, 1], b=[0, 0], k=[0.1, k], item_ids=["x", "y"])
