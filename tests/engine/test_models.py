from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.engine.models.base import ItemParameters, ResponseModel
from app.engine.models.logistic import LOGISTIC
from tests.engine.random_banks import ANY_ITEM, logistic_items, parameters, slope_of

thetas = st.floats(-50, 50)
items = logistic_items
OfModel = tuple[ResponseModel, ItemParameters]


@given(of=ANY_ITEM, theta=thetas, score=st.floats(0, 1))
def test_everything_is_finite_and_the_curve_between_its_asymptotes(
    of: OfModel, theta: float, score: float
) -> None:
    model, item = of
    everything: list[Any] = [
        model.expected_score(item, theta),
        model.score_moments(item, theta)[1],
        model.information(item, theta),
        model.log_likelihood(item, theta, score),
        *model.likelihood_slope(item, theta, score),
        *model.warm_terms(item, theta),
    ]
    assert np.isfinite(everything).all()
    assert item.c - 1e-15 <= model.expected_score(item, theta) <= item.d + 1e-15
    assert model.information(item, theta) >= 0
    assert model.score_moments(item, theta)[1] >= 0


@given(of=ANY_ITEM, score=st.floats(0, 1))
def test_one_item_gets_what_the_array_gives(of: OfModel, score: float) -> None:
    model, item = of
    bank = ItemParameters(*(np.array([7.0, column]) for column in item))
    nodes = np.linspace(-50.0, 50.0, 101)
    np.testing.assert_allclose(
        model.item_log_likelihood(bank, 1, nodes, score),
        model.log_likelihood(item, nodes, score),
        rtol=1e-12,
        atol=1e-12,
    )


@given(of=ANY_ITEM, theta=st.floats(-8, 8))
def test_information_is_squared_slope_over_variance(of: OfModel, theta: float) -> None:
    model, item = of
    variance = float(model.score_moments(item, theta)[1])
    assume(variance > 1e-4)
    slope = slope_of(lambda t: model.expected_score(item, t), theta)
    assert model.information(item, theta) == pytest.approx(slope**2 / variance, rel=1e-5, abs=1e-8)


@pytest.mark.parametrize("theta", [-50.0, 50.0])
@pytest.mark.parametrize("a", [40.0, -40.0])
def test_a_cliff_far_away_stays_finite_and_keeps_its_slope(theta: float, a: float) -> None:
    item = parameters(a, 0.0, 0.0, 1.0)
    against = 0.0 if a * theta > 0 else 1.0
    assert LOGISTIC.log_likelihood(item, theta, against) == pytest.approx(-2000.0)
    assert abs(LOGISTIC.likelihood_slope(item, theta, against).first) == pytest.approx(40.0)
    assert np.isfinite(LOGISTIC.information(item, theta))


@given(of=ANY_ITEM, theta=st.floats(-8, 8), score=st.sampled_from([0.0, 0.3, 1.0]))
def test_the_slopes_of_the_likelihood_match_numeric_ones(
    of: OfModel, theta: float, score: float
) -> None:
    model, item = of
    near = 1e-6 / float(item.k)
    exact = model.likelihood_slope(item, theta, score)
    assert exact.first == pytest.approx(
        slope_of(lambda t: model.log_likelihood(item, t, score), theta), rel=1e-6, abs=near
    )
    assert exact.second == pytest.approx(
        slope_of(lambda t: model.likelihood_slope(item, t, score).first, theta), rel=1e-6, abs=near
    )


@given(of=ANY_ITEM, theta=st.floats(-6, 6))
def test_warm_terms_match_numeric_derivatives(of: OfModel, theta: float) -> None:
    model, item = of
    near = 1e-6 / float(item.k)
    terms = model.warm_terms(item, theta)
    assert terms.information == pytest.approx(float(model.information(item, theta)))
    assert terms.information_slope == pytest.approx(
        slope_of(lambda t: model.information(item, t), theta), rel=1e-6, abs=near
    )
    assert terms.j_slope == pytest.approx(
        slope_of(lambda t: model.warm_terms(item, t).j, theta), rel=1e-6, abs=near
    )


@given(item=items(), theta=st.floats(-6, 6))
def test_warms_j_is_that_of_the_curve(item: ItemParameters, theta: float) -> None:
    variance = float(LOGISTIC.score_moments(item, theta)[1])
    assume(variance > 1e-3)

    def curve_slope(t: float) -> float:
        return slope_of(lambda u: LOGISTIC.expected_score(item, u), t)

    assert LOGISTIC.warm_terms(item, theta).j == pytest.approx(
        curve_slope(theta) * slope_of(curve_slope, theta) / variance, rel=1e-3, abs=1e-4
    )


def test_3pl_information_peaks_where_birnbaum_says() -> None:
    # Birnbaum (1968): theta_max = b + ln((1 + sqrt(1 + 8 c)) / 2) / a, and I_max = a^2 (1 - 20 c -
    # 8 c^2 + (1 + 8 c)^1.5) / (8 (1 - c)^2).
    a, b, c = 1.7, 0.4, 0.25
    peak = LOGISTIC.peak(parameters(a, -a * b, c, 1.0))
    assert peak.z / a + b == pytest.approx(b + np.log((1 + np.sqrt(1 + 8 * c)) / 2) / a, rel=1e-12)
    most = a * a * (1 - 20 * c - 8 * c * c + (1 + 8 * c) ** 1.5) / (8 * (1 - c) ** 2)
    assert peak.information == pytest.approx(most, rel=1e-12)


@given(of=ANY_ITEM)
def test_no_ability_has_more_information_than_the_peak(of: OfModel) -> None:
    model, item = of
    peak = model.peak(item)
    at = (peak.z - item.intercept) / item.a
    near = model.information(item, at + np.linspace(-4, 4, 801) / item.a)
    assert peak.information == pytest.approx(float(model.information(item, at)), rel=1e-9)
    assert near.argmax() == 400


@given(item=items(), theta=st.floats(-6, 6), score=st.floats(0, 1))
def test_a_score_between_weighs_right_and_wrong(
    item: ItemParameters, theta: float, score: float
) -> None:
    right = LOGISTIC.log_likelihood(item, theta, 1.0)
    wrong = LOGISTIC.log_likelihood(item, theta, 0.0)
    assert LOGISTIC.log_likelihood(item, theta, score) == pytest.approx(
        score * float(right) + (1 - score) * float(wrong), rel=1e-12, abs=1e-14
    )


def test_scores_of_many_items_may_be_mixed_and_missing() -> None:
    bank = ItemParameters(
        np.array([1.0, 2.0, -1.0]), np.zeros(3), np.array([0.0, 0.2, 0.0]), np.array([1, 1, 0.9])
    )
    nodes = np.linspace(-3, 3, 7)
    scores = np.array([[1.0, 0.0, np.nan], [0.5, np.nan, 1.0]])
    rows = LOGISTIC.row_log_likelihood(bank, nodes, scores)
    first = LOGISTIC.log_likelihood(bank.take(np.array([0, 1])), nodes[:, None], scores[0, :2])
    second = LOGISTIC.log_likelihood(
        bank.take(np.array([0, 2])), nodes[:, None], np.array([0.5, 1.0])
    )
    np.testing.assert_allclose(rows, [first.sum(axis=1), second.sum(axis=1)], rtol=1e-13)
