"""Forecasts of the length and cost of tests before anything is paid."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import TypeAdapter

from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.simulation.forecast import (
    Effort,
    Forecast,
    Range,
    calls_of,
    drawn,
    forecast,
    summary,
)
from app.engine.simulation.simulate import Calls, prior_thetas
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank, several
from tests.values import not_none

BANK = clean_bank(3, 120)
THETAS = np.random.default_rng(1).normal(size=60)


def forecast_of(stopping: object, *, calls: Calls | None = None, **design: object) -> Forecast:
    read = Design.from_dict({"preset": "ability", "concurrency": 1, "stopping": stopping, **design})
    return forecast(
        read.build(BANK),
        THETAS,
        seed=2,
        concurrency=read.concurrency,
        se_target=read.stopping.se,
        calls=calls or Calls(),
    )


def test_a_looser_target_is_reached_by_more_tests_with_fewer_items() -> None:
    loose = forecast_of({"se": 0.4, "min_items": 1, "max_items": 30})
    tight = forecast_of({"se": 0.25, "min_items": 1, "max_items": 30})
    assert loose.items.median < tight.items.median
    assert loose.reached == 1.0
    reached = not_none(tight.reached)
    assert reached < 1.0
    assert tight.stop_reasons == pytest.approx({"max_items": 1 - reached, "se_target": reached})
    assert tight.items.lo <= tight.items.median <= tight.items.hi <= 30
    assert loose.theta_rmse == pytest.approx(0.4, abs=0.1)
    assert loose.interval.median == pytest.approx(2 * 1.96 * loose.se.median, rel=0.1)


def test_cost_and_time_are_those_of_the_items() -> None:
    calls = calls_of(120, tokens_in=100, tokens_out=20, price_in=1.0, price_out=5.0, pace_s=0.5)
    found = forecast_of({"se": None, "max_items": 10}, calls=calls)
    tokens, usd, seconds = map(not_none, (found.tokens, found.usd, found.seconds))
    assert (found.items.median, tokens.median, seconds.median) == (10, 1200, 5)
    assert usd.median == pytest.approx(10 * (100 * 1.0 + 20 * 5.0) / 1e6)
    assert found.reached is None
    unpaid = forecast_of({"se": None, "max_items": 10})
    assert (unpaid.tokens, unpaid.usd, unpaid.seconds) == (None, None, None)


def test_budgets_end_simulated_tests_as_they_end_real_ones() -> None:
    calls = calls_of(120, tokens_in=100, tokens_out=0, pace_s=2.0)
    stopping = {"se": None, "max_items": 30}
    capped = forecast_of(stopping, calls=calls, budget={"tokens": 1000})
    assert capped.stop_reasons == {"budget_exhausted": 1.0}
    assert capped.items.hi == 10
    late = forecast_of(stopping, calls=calls, budget={"seconds": 30})
    assert late.stop_reasons == {"time_limit": 1.0}
    assert late.items.hi == 15


def test_regions_hold_every_examinee_once() -> None:
    found = forecast_of({"se": 0.3, "min_items": 1, "max_items": 40})
    edges = [-1.5, -0.5, 0.5, 1.5]
    counts, _ = np.histogram(THETAS, [-np.inf, *edges, np.inf])
    assert [region.n_examinees for region in found.regions] == counts.tolist()
    assert [region.theta_lo for region in found.regions] == [None, *edges]
    assert [region.theta_hi for region in found.regions] == [*edges, None]
    ends, middle = found.regions[0], found.regions[2]
    assert ends.items.median >= middle.items.median
    assert found.to_dict()["regions"][0]["items"]["median"] == ends.items.median


def test_unknown_tokens_of_one_item_leave_the_sum_unknown() -> None:
    tokens = np.full(3, 50.0)
    tokens[1] = np.nan
    calls = calls_of(3, tokens_in=tokens, tokens_out=10, price_in=1.0)
    assert (calls.tokens, calls.usd) == (None, None)
    assert (calls.usage(ItemIndex(0)).tokens, calls.usage(ItemIndex(0)).usd) == (0, 0.0)
    assert not_none(calls_of(3, tokens_out=10).tokens).tolist() == [10.0] * 3
    both = calls_of(3, tokens_in=np.arange(3.0), tokens_out=10, price_in=2.0, price_out=5e4)
    assert not_none(both.tokens).tolist() == [10.0, 11.0, 12.0]
    assert both.usd == pytest.approx([0.5, 0.500002, 0.500004], rel=1e-9)


def test_a_population_is_drawn_by_its_quantiles() -> None:
    quantiles = np.quantile(np.random.default_rng(1).normal(1.0, 0.5, 4000), np.linspace(0, 1, 101))
    thetas = drawn(quantiles.tolist(), 4000, np.random.default_rng(2))
    assert thetas.mean() == pytest.approx(1.0, abs=0.05)
    assert thetas.std() == pytest.approx(0.5, abs=0.05)


def test_a_forecast_for_nobody_is_refused() -> None:
    test = Design.from_dict({"preset": "ability"}).build(
        ItemBank.from_difficulties(a=[1.0] * 5, b=[0.0] * 5)
    )
    with pytest.raises(InvalidInputError, match="at least one examinee"):
        forecast(test, [], seed=1)


def test_forecasts_fix_the_main_ability_and_draw_the_others() -> None:
    known = not_none(several(1).abilities)
    population, main = known.population, known.composite
    rng = np.random.default_rng(3)
    drawn_given = np.array([population.draw(main, 0.7, rng) for _ in range(4000)])
    np.testing.assert_allclose(drawn_given @ main, 0.7)
    shared = population.covariance @ main / (main @ population.covariance @ main)
    expected = population.mean + shared * (0.7 - main @ population.mean)
    left = population.covariance - np.outer(shared, shared) * (main @ population.covariance @ main)
    np.testing.assert_allclose(drawn_given.mean(axis=0), expected, atol=0.08)
    np.testing.assert_allclose(np.cov(drawn_given.T), left, atol=0.12)


def test_tests_of_several_abilities_are_forecast_from_their_model() -> None:
    bank = several(1)
    design = Design.from_dict(
        {"selection": {"criterion": "d_optimal"}, "stopping": {"se": None, "max_items": 15}}
    )
    thetas = prior_thetas(bank, design.estimator, 80, np.random.default_rng(4))
    found = forecast(design.build(bank), thetas, seed=1)
    assert found.items.median == 15
    assert found.theta_rmse == pytest.approx(found.se.mean, rel=0.25)


def test_a_margin_is_forecast_in_questions_time_and_money() -> None:
    calls = calls_of(120, tokens_in=100, tokens_out=20, price_in=10.0, price_out=50.0, pace_s=3.0)
    short = forecast_of({"se": None, "min_items": 10, "max_items": 10}, calls=calls)
    assert short.for_all.items == 120
    assert short.for_all.usd == pytest.approx(120 * 0.002)
    assert short.for_3_points.seconds == 3.0 * short.for_3_points.items
    exact, told = summary(short)
    margin = f"±{100 * short.margin.median:.0f} points"
    assert exact == f"10 of 120 questions: {margin}; all 120 cost 12 times as much."
    assert told == ("±3 points take 106 of 120 questions: for that ask them all, 6 minutes, $0.24.")
    few_active = replace(short, for_all=replace(short.for_all, items=60))
    assert summary(few_active)[1] == "±3 points take more than the 60 questions that may be asked."
    few = calls_of(24, tokens_in=100, tokens_out=20, price_in=10.0, price_out=50.0, pace_s=3.0)
    design = Design.from_dict({"preset": "ability", "stopping": {"max_items": 8}})
    small = forecast(design.build(clean_bank(3, 24)), THETAS[:20], seed=1, calls=few)
    assert summary(small)[0].endswith("all 24 cost three times as much.")
    assert summary(small)[1] == (
        f"±3 points take {small.for_3_points.items} of 24 questions: for that ask them "
        "all, 72 seconds, $0.0480."
    )
    assert TypeAdapter(Forecast).validate_python(short.to_dict()) == short


@pytest.mark.parametrize(
    ("asked", "margin", "words"),
    [
        (120, 0.036, "All 120 questions are asked: ±3.6 points."),
        (119, 0.1, "119 of 120 questions: ±10 points; all 120 cost 1.0 times as much."),
        (69, 0.026, "69 of 120 questions: ±2.6 points; all 120 cost 1.7 times as much."),
        (68, 0.255, "68 of 120 questions: ±26 points; all 120 cost two times as much."),
        (12, 0.04, "12 of 120 questions: ±4 points; all 120 cost ten times as much."),
        (11, 0.04, "11 of 120 questions: ±4 points; all 120 cost 11 times as much."),
        (0, 0.04, "0 of 120 questions: ±4 points; all 120 cost 120 times as much."),
    ],
)
def test_the_precision_of_a_forecast_is_told(asked: int, margin: float, words: str) -> None:
    told = replace(
        forecast_of({"se": None, "max_items": 1}),
        items=Range(mean=0.0, median=asked, lo=0.0, hi=0.0),
        margin=Range(mean=0.0, median=margin, lo=0.0, hi=0.0),
    )
    assert summary(told)[0] == words


@pytest.mark.parametrize(
    ("items", "seconds", "usd", "tokens", "words"),
    [
        (95, 89.4, 0.1, None, "about 95 questions, 89 seconds, $0.10."),
        (95, 90.0, 0.0994, 9e4, "about 95 questions, 2 minutes, $0.0994."),
        (95, 5369.0, None, 12_345.6, "about 95 questions, 89 minutes, 12,346 tokens."),
        (95, 5400.0, 1234.5, None, "about 95 questions, 1.5 hours, $1,234.50."),
        (96, None, None, None, "96 of 120 questions: for that ask them all, 5 minutes."),
        (120, None, None, None, "120 of 120 questions: for that ask them all, 5 minutes."),
        (121, None, None, None, "more than the 120 questions that may be asked."),
    ],
)
def test_the_effort_for_three_points_is_told(
    items: int, seconds: float | None, usd: float | None, tokens: float | None, words: str
) -> None:
    told = replace(
        forecast_of({"se": None, "max_items": 1}),
        for_3_points=Effort(items=items, seconds=seconds, usd=usd, tokens=tokens),
        for_all=Effort(items=120, seconds=300.0, usd=None, tokens=None),
    )
    assert summary(told)[1] == f"±3 points take {words}"


def test_a_large_bank_reports_its_savings() -> None:
    design = Design.from_dict({"preset": "ability", "stopping": {"min_items": 50}})
    bank = clean_bank(3, 4000)
    found = forecast(design.build(bank), THETAS[:5], seed=1)
    exact, told = summary(found)
    assert exact.startswith("50 of 4,000 questions: ±")
    assert exact.endswith("all 4,000 cost 80 times as much.")
    assert told == f"±3 points take about {found.for_3_points.items:,} questions."
    assert 50 < found.for_3_points.items < 3000


def test_a_margin_is_reached_as_an_error_is() -> None:
    design = Design.from_dict({"preset": "ability", "stopping": {"score_margin": 0.1}})
    found = forecast(design.build(BANK), THETAS[:20], seed=1, margin_target=0.1)
    by_margin = found.stop_reasons.get("score_margin", 0.0)
    assert not_none(found.reached) == pytest.approx(by_margin, abs=0.2)


def test_the_first_of_two_goals_ends_a_test_that_may_miss_the_other() -> None:
    goals = {"se": 0.4, "score_margin": 0.05, "min_items": 1}
    design = Design.from_dict({"preset": "ability", "stopping": goals})
    found = forecast(design.build(BANK), THETAS[:20], seed=1, se_target=0.4, margin_target=0.05)
    assert found.stop_reasons["se_target"] > 0.5
    assert not_none(found.reached) < 0.5
