import numpy as np
import pytest
from scipy.stats import norm

from app.engine import ItemBank
from app.engine.inference.contrasts import of_answers, of_scores
from app.engine.prediction.score_model import ScoreModel, Target
from tests.values import not_none

N_TASKS, N_EACH = 3, 20
TASK = np.arange(N_TASKS * N_EACH) % N_TASKS


def model() -> ScoreModel:
    """Return a score model with a general component and one component per task."""
    own = np.where(np.arange(N_TASKS)[:, None] == TASK, 0.15, 0.0)
    factors = np.concatenate([np.full((1, TASK.size), 0.25), own])
    return ScoreModel(np.linspace(0.3, 0.7, TASK.size), factors, np.full(TASK.size, 0.1))


def targets() -> tuple[Target, list[Target]]:
    known = model()
    whole = Target(known, np.full(TASK.size, 1 / TASK.size))
    return whole, [Target(known, np.where(t == TASK, 1 / N_EACH, 0.0)) for t in range(N_TASKS)]


def test_intervals_of_contrasts_hold_for_examinees_of_the_population() -> None:
    whole, tasks = targets()
    known, rng = model(), np.random.default_rng(3)
    held, n = 0, 1500
    for _ in range(n):
        scores = known.mean + rng.normal(size=N_TASKS + 1) @ known.factors
        scores += rng.normal(size=TASK.size) * np.sqrt(known.noise)
        items = rng.choice(TASK.size, 12, replace=False)
        beta = (tasks[0].weights @ whole.covariance) / whole.variance
        apart = scores - known.mean
        true = tasks[0].weights @ apart - beta * (whole.weights @ apart)
        contrast = not_none(of_scores(tasks[0], whole, items.tolist(), scores[items]))
        held += bool(contrast.lo <= true <= contrast.hi)
    assert held / n == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / n))


def test_only_uneven_answers_make_a_contrast() -> None:
    whole, tasks = targets()
    items = list(range(TASK.size))
    means = model().mean
    none = not_none(of_scores(tasks[0], whole, items, means))
    assert none.value == pytest.approx(0.0)
    assert none.sign == 0
    uneven = np.where(TASK == 0, means + 0.3, means - 0.15)
    found = (not_none(of_scores(tasks[t], whole, items, uneven)) for t in (0, 1))
    assert [one.sign for one in found] == [1, -1]


def test_a_task_that_is_the_whole_bank_has_no_contrast() -> None:
    whole, _ = targets()
    assert of_scores(whole, whole, [0, 1], np.array([1.0, 0.0])) is None


def test_more_contrasts_widen_each_interval() -> None:
    whole, tasks = targets()
    items, scores = [0, 1, 2, 3], np.array([1.0, 0.0, 1.0, 0.0])
    alone = not_none(of_scores(tasks[0], whole, items, scores))
    among = not_none(of_scores(tasks[0], whole, items, scores, among=10))
    assert among.value == alone.value
    # Quantiles of the normal distribution at 0.9975 and 0.975.
    assert (among.hi - among.lo) / (alone.hi - alone.lo) == pytest.approx(2.807034 / 1.959964)


def test_a_contrast_of_answers_matches_direct_sums() -> None:
    bank = ItemBank.from_difficulties(a=np.linspace(0.5, 2, 12), b=np.linspace(-1, 2, 12))
    items, theta = [1, 4, 5, 9, 11], 0.4
    p = 1 / (1 + np.exp(-bank.a[items] * (theta - bank.b[items])))
    right, graded = np.array([1.0, 1, 0, 1, 1]), np.array([1.0, 0.5, 0, 0.75, 1])
    for scores, continuity, among in ((right, 0.5, 1), (right, 0.5, 3), (graded, 0.0, 3)):
        told = of_answers(bank, theta, items, scores, among=among)
        level = norm.ppf(1 - 0.025 / among)
        half = (level * np.sqrt(np.sum(p * (1 - p))) + continuity) / 5
        value = np.mean(scores - p)
        expected = (value, value - half, value + half)
        assert (told.value, told.lo, told.hi) == pytest.approx(expected)
