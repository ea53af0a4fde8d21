"""The contract of every estimator. Subclass it and provide the fixture `estimator`."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pytest

from app.engine.bank import ItemBank, ItemIndex
from app.engine.simulation.simulate import draw_scores
from app.engine.state import Belief, Estimate, Estimator, Response
from tests.engine.random_banks import KINDS, Kind, clean_bank, random_bank


def responses(scores: Iterable[float]) -> list[Response]:
    """Return answers with these scores to the first items."""
    return [Response(ItemIndex(i), float(score)) for i, score in enumerate(scores)]


def answers(bank: ItemBank, theta: float, seed: int) -> list[Response]:
    """Return one simulated answer to every item."""
    return responses(next(draw_scores(bank, [theta], np.random.default_rng(seed))))


def fold(estimator: Estimator[Any], bank: ItemBank, responses: Sequence[Response]) -> Belief:
    """Return the belief after all answers."""
    belief: Belief = estimator.start(bank)
    for response in responses:
        belief = estimator.update(bank, belief, response)
    return belief


def estimate_of(
    estimator: Estimator[Any], bank: ItemBank, responses: Sequence[Response]
) -> Estimate:
    """Return the estimate after all answers."""
    return fold(estimator, bank, responses).estimate()


class EstimatorContract:
    """Fixture `estimator`: the estimator with its defaults. All tests hold for every model."""

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        return request.param  # type: ignore[no-any-return]  # pytest types no parameters

    def test_results_are_plain_values(self, estimator: Estimator[Any], kind: Kind) -> None:
        bank = clean_bank(0, 30, kind=kind)
        belief = fold(estimator, bank, answers(bank, 0.5, 0))
        estimate = belief.estimate()
        for value in (belief.theta, belief.se, estimate.theta, estimate.se, estimate.lo):
            assert type(value) is float
        assert type(estimate.method) is str
        assert type(estimate.at_bound) is bool

    @pytest.mark.parametrize("score", [0.0, 1.0])
    def test_equal_answers_give_a_finite_theta_on_their_side(
        self, estimator: Estimator[Any], kind: Kind, score: float
    ) -> None:
        bank = clean_bank(1, 20, kind=kind)
        estimate = estimate_of(estimator, bank, [Response(ItemIndex(i), score) for i in range(20)])
        assert math.isfinite(estimate.theta)
        assert math.isfinite(estimate.se)
        assert estimate.theta > 0 if score else estimate.theta < 0
        assert estimate.se > 0.25

    def test_without_answers_it_is_the_prior(self, estimator: Estimator[Any], kind: Kind) -> None:
        estimate = estimator.start(clean_bank(2, 5, kind=kind)).estimate()
        assert estimate.theta == pytest.approx(0.0, abs=1e-9)
        assert estimate.se == pytest.approx(1.0, rel=1e-9)
        assert estimate.method in ("eap", "map")

    def test_an_update_does_not_change_its_input(
        self, estimator: Estimator[Any], kind: Kind
    ) -> None:
        bank = clean_bank(3, 10, kind=kind)
        before = fold(estimator, bank, answers(bank, 0.0, 3)[:9])
        seen = (before.theta, before.se, before.weights.tobytes())
        estimator.update(bank, before, Response(ItemIndex(9), 1.0))
        assert (before.theta, before.se, before.weights.tobytes()) == seen

    def test_a_joint_update_equals_single_updates(
        self, estimator: Estimator[Any], kind: Kind
    ) -> None:
        bank = random_bank(4, 40, kind=kind)
        responses = answers(bank, 1.0, 4)
        together = estimator.update(bank, fold(estimator, bank, responses[:10]), *responses[10:])
        one_by_one = fold(estimator, bank, responses)
        assert together.theta == pytest.approx(one_by_one.theta, abs=1e-6)
        assert together.se == pytest.approx(one_by_one.se, rel=1e-5)

    def test_expected_scores_are_those_of_the_bank_at_theta(
        self, estimator: Estimator[Any], kind: Kind
    ) -> None:
        bank = clean_bank(9, 20, kind=kind)
        belief = fold(estimator, bank, answers(bank, 0.4, 9)[:15])
        expected = estimator.expected_scores(bank, belief, [ItemIndex(17), ItemIndex(16)])
        np.testing.assert_allclose(expected, bank.expected_score(belief.theta)[[17, 16]])

    def test_the_posterior_is_a_distribution_on_ascending_nodes(
        self, estimator: Estimator[Any], kind: Kind
    ) -> None:
        bank = random_bank(5, 40, kind=kind)
        belief = fold(estimator, bank, answers(bank, -1.0, 5))
        assert (np.diff(belief.nodes) > 0).all()
        assert (belief.weights >= 0).all()
        assert belief.weights.sum() == pytest.approx(1.0)
        assert belief.weights.shape == belief.nodes.shape

    def test_the_interval_holds_theta_and_is_about_four_standard_errors_wide(
        self, estimator: Estimator[Any], kind: Kind
    ) -> None:
        bank = clean_bank(6, 60, kind=kind)
        estimate: Estimate = estimate_of(estimator, bank, answers(bank, 0.3, 6))
        assert estimate.lo < estimate.theta < estimate.hi
        assert estimate.hi - estimate.lo == pytest.approx(2 * 1.96 * estimate.se, rel=0.05)
