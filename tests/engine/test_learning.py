from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import IntervalCorrection, ReferenceThetas
from app.engine.simulation.learning import (
    Glimpse,
    glimpses,
    learn_correction,
)
from app.engine.simulation.simulate import Taken, draw_scores, simulate, summarise
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

Thirty = tuple[list[Glimpse], FloatArray]
BANK = clean_bank(1, 120)
DESIGN = Design.from_dict({"preset": "ability", "stopping": {"se": None, "max_items": 25}})


def two_skills(bank: ItemBank, n_examinees: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Draw answers where odd items also need a second skill that the bank's model lacks."""
    rng = np.random.default_rng(seed)
    theta, second = rng.normal(size=(2, n_examinees))
    odd = np.arange(bank.n_items) % 2
    z = bank.a * (theta[:, None] - bank.b) + 1.2 * odd * second[:, None]
    scores = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(np.float64)
    return scores, theta


def taught(
    scores: FloatArray, thetas: FloatArray, *, bank: ItemBank = BANK, n_items: int = 40
) -> IntervalCorrection:
    """Return the corrections learned from open-ended tests of these examinees."""
    test = DESIGN.open_ended(n_items).build(bank)
    seen = glimpses(test, scores, thetas, range(len(scores)), seed=1)
    return learn_correction(seen, known=thetas)


def coverage(taken: list[Taken], thetas: FloatArray) -> tuple[float, float]:
    pairs = list(zip(taken, thetas, strict=True))
    return (
        float(np.mean([one.estimate.lo <= theta <= one.estimate.hi for one, theta in pairs])),
        float(np.mean([t.prediction.lo <= t.accuracy <= t.prediction.hi for t in taken])),
    )


@pytest.fixture(scope="module")
def learned() -> IntervalCorrection:
    return taught(*two_skills(BANK, 150, seed=1))


@pytest.fixture(scope="module")
def thirty() -> Thirty:
    """Return tests of thirty examinees that the model fits, and their whole-bank thetas."""
    thetas = np.random.default_rng(3).normal(size=30)
    scores = np.array(list(draw_scores(BANK, thetas, np.random.default_rng(4))))
    references, _ = whole_bank_abilities(BANK, scores)
    seen = glimpses(DESIGN.open_ended(14).build(BANK), scores, references, range(30), seed=1)
    return seen, references


@pytest.mark.slow
@pytest.mark.parametrize(
    "stopping",
    [
        {"se": None, "max_items": 8},
        {"se": 0.4, "min_items": 1, "max_items": 40},
    ],
)
def test_wrong_intervals_hold_after_learning_at_any_test_length(
    learned: IntervalCorrection, stopping: dict[str, Any]
) -> None:
    design = Design.from_dict({"preset": "ability", "stopping": stopping})
    scores, thetas = two_skills(BANK, 150, seed=2)
    better = simulate(design.build(BANK, correction=learned), scores, seed=2)
    plain = simulate(design.build(BANK), scores, seed=2)
    summary = summarise(better, thetas, design.build(BANK))
    # The quantile and its test rest on 150 examinees each: 2.5 % standard error.
    assert coverage(better, thetas)[0] == pytest.approx(0.95, abs=0.065)
    assert (summary.coverage95, summary.accuracy_coverage95) == coverage(better, thetas)
    assert summary.coverage95_raw == coverage(plain, thetas)[0] < 0.93
    assert [t.estimate.theta for t in better] == [t.estimate.theta for t in plain]


def test_intervals_also_hold_where_random_items_leave_more_of_a_small_bank_open() -> None:
    bank, rng = clean_bank(3, 90), np.random.default_rng(5)
    scores = np.array(list(draw_scores(bank, rng.normal(size=220), rng)))
    thetas, _ = whole_bank_abilities(bank, scores)
    learned = taught(scores[:100], thetas[:100], bank=bank, n_items=90)
    design = {**DESIGN.to_dict(), "selection": {"criterion": "random"}}
    for n_items in (45, 60):
        stopping = {"se": None, "max_items": n_items}
        test = Design.from_dict({**design, "stopping": stopping}).build(bank, correction=learned)
        taken = simulate(test, scores[100:], seed=2)
        # 120 examinees have a standard error of 2 %.
        assert coverage(taken, thetas[100:])[0] >= 0.9


def test_intervals_with_too_much_coverage_become_narrower() -> None:
    # A test of half the bank shares so many answers with the whole record that its interval for
    # theta on the whole record is far too wide.
    bank = clean_bank(5, 30)
    thetas = np.random.default_rng(1).normal(size=120)
    scores = np.array(list(draw_scores(bank, thetas, np.random.default_rng(2))))
    references, _ = whole_bank_abilities(bank, scores)
    known = taught(scores, references, bank=bank, n_items=20)
    assert known.theta.factor[-1] < 0.8
    assert known.theta.answers == (5, 7, 10, 14, 20)


def test_a_test_that_asks_everything_is_learned_from_at_its_end() -> None:
    bank = clean_bank(5, 4)
    thetas = np.random.default_rng(1).normal(size=40)
    scores = np.array(list(draw_scores(bank, thetas, np.random.default_rng(2))))
    known = taught(scores, thetas, bank=bank)
    assert known.theta.answers == (4,)


def test_an_interval_needs_the_distance_on_the_side_where_the_truth_lies(thirty: Thirty) -> None:
    told = replace(thirty[0][0].estimate, theta=1.0, lo=0.8, hi=1.4)
    for theta, needed in ((1.6, 1.5), (0.5, 2.5), (1.0, 0.0)):
        one = replace(thirty[0][0], theta=theta, estimate=told)
        assert one.needed == pytest.approx(needed)
        assert one.half == pytest.approx(0.3)


@pytest.mark.parametrize("follows", [-0.5, 0.0, 0.6, 1.2])
def test_the_factor_follows_the_width_with_the_least_quantile_loss(
    follows: float, thirty: Thirty
) -> None:
    rng, seen = np.random.default_rng(5), []
    for row in range(120):
        half = float(np.exp(rng.normal(0.0, 0.6)))
        told = replace(thirty[0][0].estimate, theta=0.0, lo=-half, hi=half)
        theta = 0.6 * half ** (1 + follows) * rng.normal()
        seen.append(replace(thirty[0][0], row=row, estimate=told, theta=theta))
    found = learn_correction(seen).theta
    log_half = np.log([one.half for one in seen])
    wider = np.clip(log_half - np.median(log_half), -1.5, 1.5)
    sizes = np.abs([one.theta for one in seen]) / np.exp(log_half)
    needed = np.log(np.clip(sizes, 0.05, 50.0))
    losses, factors = {}, {}
    for power in (-0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5):
        rest = needed - np.where(wider < 0, power, max(power, 0.0)) * wider
        factors[power] = np.quantile(rest, 0.95, method="weibull")
        short = rest - factors[power]
        losses[power] = np.where(short > 0, 0.95 * short, -0.05 * short).mean()
    best = min(losses, key=lambda power: losses[power])
    assert found.power == best
    assert found.usual == pytest.approx((np.exp(np.median(log_half)),))
    assert found.factor == pytest.approx((np.exp(factors[best]),))


def test_twenty_examinees_teach_an_interval_and_fewer_do_not(thirty: Thirty) -> None:
    nineteen, twenty = ([one for one in thirty[0] if one.row < n] for n in (19, 20))
    assert learn_correction(twenty).theta.answers == (5, 7, 10, 14)
    with pytest.raises(InvalidInputError, match="at least 20 examinees, got 19"):
        learn_correction(nineteen)


def test_growth_leaves_95_of_100_examinees_like_the_reference_models_inside(
    thirty: Thirty,
) -> None:
    seen, references = thirty
    learned = learn_correction(seen, known=references).theta
    assert learned.reference == ReferenceThetas.of(references)
    factors = [learned.at(one.answers, one.half, one.estimate.theta, chosen=True) for one in seen]
    needed = np.log([max(one.needed, 0.05) for one in seen])
    exact = 1e-9 if learned.power >= 0.0 else 0.01
    left = np.quantile(needed - np.log(factors), 0.95, method="weibull")
    assert left == pytest.approx(0.0, abs=exact)
