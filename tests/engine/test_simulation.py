from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import app.engine.simulation.simulate as module
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.inference.diagnostics import exposure_rates
from app.engine.simulation.simulate import (
    coverage,
    draw_scores,
    fit_acceptance,
    simulate,
    summarise,
    take,
)
from app.engine.stopping import StopReason
from app.errors import InvalidInputError
from tests.engine.random_banks import KINDS, Kind, clean_bank

DESIGN = Design.from_dict({"stopping": {"se": 0.25, "min_items": 5, "max_items": 40}})


def row_of(bank: ItemBank, seed: int, theta: float = 0.0) -> np.ndarray:
    (row,) = draw_scores(bank, [theta], np.random.default_rng(seed))
    return row


def test_only_items_with_an_answer_are_asked() -> None:
    bank = clean_bank(1, 60)
    scores = row_of(bank, 1)
    scores[::2] = np.nan
    test = Design.from_dict(
        {"preset": "ability", "stopping": {"se": None, "max_items": None}}
    ).build(bank)
    state, stop = take(test, scores, seed=[1])
    assert {response.item for response in state.responses} == set(range(1, 60, 2))
    assert all(response.score == scores[response.item] for response in state.responses)
    assert stop.reason is StopReason.BANK_EXHAUSTED


@pytest.mark.parametrize("concurrency", [1, 3, 8])
def test_a_test_with_items_in_flight_ends_with_none_pending(concurrency: int) -> None:
    bank = clean_bank(1, 60)
    state, stop = take(DESIGN.build(bank), row_of(bank, 2), seed=[1], concurrency=concurrency)
    assert state.pending == ()
    assert len({response.item for response in state.responses}) == state.n_asked
    assert stop.reason in (StopReason.SE_TARGET, StopReason.MAX_ITEMS)
    assert state.n_scored <= 40


def test_a_test_widens_with_its_answers() -> None:
    bank = clean_bank(1, 120)
    test = Design.from_dict({"stopping": {"se": None, "max_items": 120}}).build(bank)
    left: list[int] = []
    row = row_of(bank, 2)
    take(test, row, seed=[1], concurrency=20, watch=lambda told: left.append(len(told.pending)))
    # Each answer leaves one fewer pending item: 4, then 5 with one answered, up to 20.
    assert left[:20] == [*range(3, 20), 19, 19, 19]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_known_thetas_are_recovered_with_the_coverage_that_is_promised(kind: Kind) -> None:
    bank = clean_bank(4, 300, kind=kind)
    thetas = np.random.default_rng(5).normal(size=250)
    test = DESIGN.build(bank)
    rows = draw_scores(bank, thetas, np.random.default_rng(6))
    summary = summarise(simulate(test, rows, seed=1), thetas, test)
    assert abs(summary.theta_bias) < 0.05
    assert summary.theta_rmse < 0.3
    assert summary.theta_mae < summary.theta_rmse
    # Three standard errors of the coverage of 250 tests at 95 % are 4 %.
    assert summary.coverage95 == pytest.approx(0.95, abs=0.042)
    # The error of the bank's curves is unknown, so the score's intervals are wider.
    assert summary.accuracy_coverage95 >= 0.91
    assert summary.items_max <= 40


def test_a_summary_counts_what_the_tests_used() -> None:
    bank = clean_bank(4, 50)
    plan = {
        "preset": "ability",
        "stopping": {"se": None, "max_items": 10},
        "budget": {"seconds": 3},
    }
    test = Design.from_dict(plan).build(bank)  # answers of unknown pace take no time
    row = row_of(bank, 1)
    summary = summarise(simulate(test, [row, row], seed=1), [0.0, 0.0], test)
    assert (summary.n_examinees, summary.items_mean, summary.items_max) == (2, 10.0, 10)
    assert (summary.exposure_max, summary.overlap) == (1.0, 1.0)
    assert summary.exposure_mean == pytest.approx(10 / 50)
    rounded = 0.1 + 0.2  # above 0.3 by the last bit
    ends = [(0.3, 0.3), (rounded, 1.0), (0.0, 0.2), (0.4, 1.0)]
    assert coverage(ends, [rounded, 0.3, 0.3, 0.3]) == 0.5


def middle_ranks(values: FloatArray) -> FloatArray:
    """Return ranks directly: the number below, and half the number of ties."""
    below = (values[:, None] > values).sum(axis=1)
    alike = (values[:, None] == values).sum(axis=1)
    ranks: FloatArray = below + (alike - 1) / 2
    return ranks


def test_a_summary_has_rank_correlation_and_errors_of_its_errors() -> None:
    bank = clean_bank(4, 80)
    thetas = np.linspace(-1.0, 1.0, 60)
    test = Design.from_dict({"preset": "ability", "stopping": {"max_items": 6}}).build(bank)
    taken = simulate(test, draw_scores(bank, thetas, np.random.default_rng(6)), seed=1)
    summary = summarise(taken, thetas, test)
    told = np.array([one.estimate.theta for one in taken])
    score = np.array([one.accuracy for one in taken])
    missed = np.array([one.prediction.value for one in taken]) - score
    assert summary.theta_mae_se == pytest.approx(np.abs(told - thetas).std(ddof=1) / 60**0.5)
    assert summary.accuracy_mae_se == pytest.approx(np.abs(missed).std(ddof=1) / 60**0.5)
    errors = told - thetas
    assert summary.theta_bias == pytest.approx(errors.mean())
    assert summary.theta_mae == pytest.approx(np.abs(errors).mean())
    assert summary.theta_rmse == pytest.approx((errors @ errors / 60) ** 0.5)
    assert summary.accuracy_mae == pytest.approx(np.abs(missed).mean())
    pairs = [(set(one.items), set(other.items)) for one, other in combinations(taken, 2)]
    assert summary.overlap == pytest.approx(np.mean([len(a & b) / 6 for a, b in pairs]))
    of_unions = [len(a & b) / len(a | b) for a, b in pairs]
    assert summary.overlap_jaccard == pytest.approx(np.mean(of_unions))
    used = np.array([sum(item in one.items for one in taken) for item in range(80)]) / 60
    assert summary.exposure_mean == pytest.approx(used[test.pool.active].mean())
    assert summary.exposure_max == pytest.approx(used.max())
    # ATLAS, appendix E.1, with mid-ranks for ties.
    by_theta, by_score = middle_ranks(told), middle_ranks(score)
    assert summary.spearman == pytest.approx(np.corrcoef(by_theta, by_score)[0, 1])
    assert summary.moved_ranks == np.mean(np.abs(by_theta - by_score) > 10) > 0.0
    one, other = (np.sign(column[:, None] - column) for column in (told, score))
    expected = (one * other).sum() / ((one**2).sum() * (other**2).sum()) ** 0.5
    assert summary.kendall == pytest.approx(expected)
    alone = summarise(taken[:1], thetas[:1], test)
    assert (alone.spearman, alone.kendall, alone.theta_mae_se) == (None, None, None)
    alike = summarise([replace(one, accuracy=0.5) for one in taken], thetas, test)
    assert (alike.spearman, alike.kendall) == (None, None)


@pytest.mark.parametrize("row", [np.zeros(9), np.full(10, np.nan)])
def test_a_row_that_cannot_be_tested_is_refused(row: np.ndarray) -> None:
    with pytest.raises(InvalidInputError, match="row of 10 scores"):
        simulate(DESIGN.build(clean_bank(1, 10)), [row], seed=1)


def test_a_summary_needs_a_reference_for_each_test() -> None:
    bank = clean_bank(1, 10)
    test = DESIGN.build(bank)
    with pytest.raises(InvalidInputError, match="got 1 and 2"):
        summarise(simulate(test, [row_of(bank, 1)], seed=1), [0.0, 1.0], test)
    with pytest.raises(InvalidInputError, match="got 0 and 0"):
        summarise([], [], test)


def test_acceptance_moves_by_the_ratio_of_cap_and_rate_until_a_round_keeps_the_cap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_FIT_EXAMINEES", 30)
    bank = ItemBank.from_difficulties(a=[3.0, 2.9, *[0.5] * 6], b=np.zeros(8))
    tried: list[FloatArray] = []
    seen: list[FloatArray] = []

    def build(self: Design, bank: ItemBank, **given: Any) -> AdaptiveTest:
        tried.append(given["exposure"])
        return plain(self, bank, **given)

    def rates(items: list[list[int]], n_items: int) -> FloatArray:
        assert len(items) == 30
        seen.append(exposure_rates(items, n_items))
        return seen[-1]

    plain = Design.build
    monkeypatch.setattr(Design, "build", build)
    monkeypatch.setattr(module, "exposure_rates", rates)
    for cap, ends in ((0.7, True), (0.6, False)):
        tried.clear()
        seen.clear()
        design = Design.from_dict(
            {
                "preset": "ability",
                "selection": {"exposure": {"max_rate": cap}},
                "stopping": {"se": None, "max_items": 2},
                "concurrency": 1,
            }
        )
        found = fit_acceptance(design, bank, seed=1)
        most = [float(rate.max()) for rate in seen]
        assert (found == tried[int(np.argmin(most))]).all()
        assert min(most[:-1]) > cap + 0.02  # a rate of 0.02 above the cap is noise
        assert (most[-1] <= cap + 0.02) == ends == (len(tried) < 15)
        for now, then, rate in zip(tried, tried[1:], seen, strict=False):
            times = np.array([min(cap / r, 2.0) if r else 2.0 for r in rate])
            assert then == pytest.approx(np.minimum(now * times, 1.0))


def test_acceptance_at_most_doubles_from_round_to_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIT_EXAMINEES", 1)
    told = iter(([0.8, 0.0, 0.0], [0.8, 0.0, 0.0], [0.01, 0.5, 0.0], [0.3, 0.3, 0.0]))
    monkeypatch.setattr(module, "exposure_rates", lambda *_: np.array(next(told)))
    plan = {"selection": {"exposure": {"max_rate": 0.4}}, "stopping": {"max_items": 1}}
    found = fit_acceptance(Design.from_dict(plan), clean_bank(1, 3), seed=1)
    assert found == pytest.approx([0.4 / 0.8 * 0.4 / 0.8 * 2, 0.4 / 0.5, 1.0])


def test_acceptance_needs_a_cap() -> None:
    with pytest.raises(InvalidInputError, match="/selection/exposure"):
        fit_acceptance(Design.from_dict({"preset": "ability"}), clean_bank(1, 10), seed=1)


def test_a_cap_below_the_average_use_is_refused() -> None:
    """Tests of ten of thirty items use a third on average, whatever is accepted."""
    plan = {"selection": {"exposure": {"max_rate": 0.2}}, "stopping": {"max_items": 10}}
    with pytest.raises(InvalidInputError, match=r"in 33\.3 % of them on average") as told:
        fit_acceptance(Design.from_dict(plan), clean_bank(1, 30), seed=1)
    assert [problem.pointer for problem in told.value.problems] == ["/selection/exposure/max_rate"]


@pytest.mark.slow
def test_items_in_flight_hardly_lengthen_a_test() -> None:
    """No further item is asked once those in flight are expected to suffice."""
    rng = np.random.default_rng(5)
    bank = ItemBank.from_difficulties(a=rng.lognormal(0.3, 0.2, 400), b=rng.normal(size=400))
    rows = list(draw_scores(bank, rng.normal(size=40), rng))
    stopping = {"se": 0.2, "min_items": 5, "max_items": 200}
    test = Design.from_dict({"stopping": stopping}).build(bank)
    mean = {
        concurrency: np.mean(
            [len(one.items) for one in simulate(test, rows, seed=1, concurrency=concurrency)]
        )
        for concurrency in (1, 8)
    }
    assert mean[8] <= 1.1 * mean[1]
