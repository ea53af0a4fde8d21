"""Score models and score curves learned from reference models, and their estimated errors."""

import numpy as np
import pytest

from app.calibration.multidimensional.score_curves import fit_curves, learn_curves
from app.calibration.multidimensional.score_model import (
    LeftOut,
    best_shrinkage,
    covariance_model,
    learn_scores,
)
from app.engine.bank import FloatArray, ItemBank
from app.engine.prediction.score_model import short_form
from app.engine.simulation.simulate import draw_scores

N_ITEMS, N_EXAMINEES = 80, 60
TARGET = {"all": np.full(N_ITEMS, 1.0 / N_ITEMS)}


def records() -> FloatArray:
    rng = np.random.default_rng(5)
    bank = ItemBank.from_difficulties(a=np.full(N_ITEMS, 1.2), b=rng.normal(size=N_ITEMS))
    return np.array(list(draw_scores(bank, rng.normal(size=N_EXAMINEES), rng)))


def test_widths_and_errors_are_learned_from_records_with_gaps() -> None:
    whole = records()
    gaps = whole.copy()
    gaps[np.random.default_rng(6).random(gaps.shape) < 0.15] = np.nan

    complete = learn_scores(whole, TARGET, np.random.default_rng(0))
    partial = learn_scores(gaps, TARGET, np.random.default_rng(0))

    for count in (8, 16, 32):
        error = complete.errors["all"][count]
        assert 0.7 * error < partial.errors["all"][count] < 2.0 * error
        width = complete.targets["all"].widths.at(count)
        assert 0.6 * width < partial.targets["all"].widths.at(count) < 2.0 * width


def test_an_unanswered_item_does_not_affect_the_others() -> None:
    scores = records()
    scores[:, 3] = np.nan
    errors = learn_scores(scores, TARGET, np.random.default_rng(0)).errors["all"]
    assert errors[32] < errors[8] < 0.2


def test_records_missing_most_of_the_target_give_possible_intervals() -> None:
    scores = records()
    scores[:, N_ITEMS // 3 :] = np.nan
    learned = learn_scores(scores, TARGET, np.random.default_rng(0))
    assert learned.errors["all"] == {}
    _, lo, hi = learned.targets["all"].interval([0, 1], np.array([1.0, 0.0]))
    assert (lo, hi) == pytest.approx((1 / N_ITEMS, 1 - 1 / N_ITEMS))


def test_intervals_from_records_with_many_gaps_hold_and_are_narrow() -> None:
    known, new = two_tasks(300, 1), two_tasks(300, 2)
    known[np.random.default_rng(3).random(known.shape) < 0.4] = np.nan
    targets = {"all": np.full(60, 1 / 60)}
    target = learn_scores(known, targets, np.random.default_rng(0)).targets["all"]
    for count in (8, 16, 30):
        form = short_form(target, count)
        ends = np.array([target.interval(form, row[form])[1:] for row in new])
        truth = new.mean(axis=1)
        assert np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) >= 0.92
        assert np.diff(ends, axis=1).mean() < 8 * np.abs(truth - ends.mean(axis=1)).mean()


def test_normal_errors_give_normal_half_widths() -> None:
    errors = 1.3 * np.random.default_rng(0).normal(size=(5, 4000))
    np.testing.assert_allclose(LeftOut(errors, errors).half_widths(), 1.3 * 1.96, rtol=0.05)


def test_a_model_has_the_shrunk_moments_of_the_records_with_gaps() -> None:
    scores = records()[:30, :6]
    scores[np.random.default_rng(2).random(scores.shape) < 0.3] = np.nan
    model = covariance_model(scores, 0.4)
    found = model.factors.T @ model.factors
    answers = [column[~np.isnan(column)] for column in scores.T]
    means = [(answered.sum() + 0.5) / (answered.size + 1.0) for answered in answers]
    assert model.mean == pytest.approx(means)
    about = np.nan_to_num(scores - means)
    for i, answered in enumerate(answers):
        size = answered.size
        own = float(((answered - means[i]) ** 2).sum()) / (size - 1)
        # The prior variance is that of five answers of a fair coin.
        variance = max((size * own + 5 * 0.25) / (size + 5), own)
        assert model.variance[i] == pytest.approx(variance)
        for j in range(i):
            full = np.sqrt(30 / size * 30 / answers[j].size)
            expected = 0.6 * full * float(about[:, i] @ about[:, j]) / 29
            assert found[i, j] == pytest.approx(expected)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_the_shrinkage_is_that_of_its_formula(gaps: float) -> None:
    """Schafer & Strimmer (2005), equation 8: pair of items by pair of items."""
    scores = records()[:25, :12]
    scores[np.random.default_rng(4).random(scores.shape) < gaps] = np.nan
    answered, n = ~np.isnan(scores), 25
    seen = answered.sum(axis=0)
    about = np.nan_to_num(scores - (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0))
    about *= np.sqrt(n / seen)
    variances = squares = 0.0
    kept = []
    for i in range(12):
        for j in set(range(12)) - {i}:
            products = about[:, i] * about[:, j]
            variances += n / (n - 1) ** 3 * float(((products - products.mean()) ** 2).sum())
            squares += (n / (n - 1) * float(products.mean())) ** 2
            kept.append((answered[:, i] & answered[:, j]).sum() / np.sqrt(seen[i] * seen[j]))
    # Gaps keep a share of the covariances already.
    expected = 1.0 - (1.0 - variances / squares) / np.mean(kept)
    assert best_shrinkage(scores) == pytest.approx(expected, rel=1e-12)


def test_unrelated_items_are_shrunk_to_the_diagonal_and_many_records_hardly_at_all() -> None:
    rng = np.random.default_rng(1)
    assert best_shrinkage((rng.random((40, 60)) < 0.5).astype(np.float64)) > 0.8
    assert best_shrinkage(two_tasks(2000, 1)) < 0.05
    assert best_shrinkage(np.full((20, 10), 0.5)) == 0.95
    assert best_shrinkage(np.ones((20, 10))) == 0.02


def test_few_errors_give_wider_intervals_than_many() -> None:
    standard = np.random.default_rng(0).normal(size=(1, 4000))
    few = np.mean([one_of(standard[:, i : i + 25]) for i in range(0, 4000, 25)])
    assert few > 1.02 * one_of(standard)


def one_of(standard: FloatArray) -> float:
    return float(LeftOut(standard, standard).half_widths()[0])


def two_tasks(n_examinees: int, seed: int) -> FloatArray:
    """Return a long and a short task, each with its own ability beside the general one."""
    items = np.random.default_rng(8)
    difficulty, short = items.normal(size=60), np.arange(60) >= 45
    rng = np.random.default_rng(seed)
    ability = rng.normal(size=(n_examinees, 1)) + 0.7 * rng.normal(size=(n_examinees, 2))
    chance = 1 / (1 + np.exp(-1.3 * (ability[:, short.astype(int)] - difficulty)))
    return (rng.random(chance.shape) < chance).astype(np.float64)


def test_task_intervals_hold_when_items_were_chosen_for_the_whole_bank() -> None:
    of_short = np.r_[np.zeros(45), np.full(15, 1 / 15)]
    targets = {"all": np.full(60, 1 / 60), "short": of_short}
    learned = learn_scores(two_tasks(150, 1), targets, np.random.default_rng(0))
    known, new = learned.targets, two_tasks(100, 2)

    for count in (8, 20, 40):  # more items than the short task has, but not all from it
        form = short_form(known["all"], count)
        assert set(form) != set(range(45, 60))
        intervals = [known["short"].interval(form, row[form]) for row in new]
        held = [lo <= row @ of_short <= hi for row, (_, lo, hi) in zip(new, intervals, strict=True)]
        assert np.mean(held) >= 0.9


def drawn(n: int, n_items: int = 60, seed: int = 0) -> FloatArray:
    """Draw answers by a 2PL."""
    rng = np.random.default_rng(seed)
    theta, b = rng.normal(size=n), rng.normal(size=n_items)
    chance = 1 / (1 + np.exp(-(theta[:, None] - b)))
    return (rng.random(chance.shape) < chance).astype(np.float64)


def test_answers_left_out_at_random_move_the_curves_little() -> None:
    scores = drawn(300)
    gaps = np.where(np.random.default_rng(1).random(scores.shape) < 0.2, np.nan, scores)
    whole, part = fit_curves(scores), fit_curves(gaps)
    assert np.corrcoef(whole.intercept, part.intercept)[0, 1] > 0.98
    assert whole.dispersion == part.dispersion == 1.0


def test_scores_between_0_and_1_have_less_variance_than_right_and_wrong() -> None:
    scores = drawn(80)
    smooth = 0.25 + 0.5 * scores
    assert fit_curves(smooth).dispersion < 0.5


@pytest.mark.parametrize("count", [1, 2, 5, 19])
def test_curves_are_learned_from_the_first_model_on(count: int) -> None:
    learned = learn_curves(drawn(count), np.random.default_rng(0))
    assert learned.n_reference == count
    assert learned.population is None  # too few to say where another model is among them
    assert np.isfinite(learned.curves.slopes).all()
