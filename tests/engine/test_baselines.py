import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.base import IntArray
from app.engine.simulation.baselines import (
    Baseline,
    _of_tasks,
    anchors_of,
    baselines,
    p_irt,
    ridge,
    shrunk,
)
from app.engine.simulation.simulate import draw_scores

RNG = np.random.default_rng(11)
N = 60
BANK = ItemBank.from_difficulties(a=RNG.lognormal(0.0, 0.3, N), b=RNG.normal(size=N))
OTHERS = np.array(list(draw_scores(BANK, RNG.normal(size=40), RNG)))
ROWS = np.array(list(draw_scores(BANK, RNG.normal(size=12), RNG)))
TRUTH = ROWS.mean(axis=1)
TASKS = ["law"] * 20 + ["maths"] * 40


def held(n: int, rows: FloatArray = ROWS, fixed: IntArray | None = None) -> dict[str, Baseline]:
    found = baselines(OTHERS, rows, n, bank=BANK, tasks=TASKS, fixed=fixed)
    return {one.name: one for one in found}


def test_asking_all_questions_gives_the_exact_score() -> None:
    every = held(N, fixed=np.arange(N))
    for name in ("random", "stratified", "anchors", "anchors-irt", "p-irt", "gp-irt", "fixed"):
        assert every[name].accuracy_mae == pytest.approx(0.0, abs=1e-9), name


def test_errors_of_a_fixed_list_by_mean_and_by_regression_line() -> None:
    listed = np.array([3, 17, 41, 55])
    found = held(10, fixed=listed)
    part = ROWS[:, listed].mean(axis=1)
    assert found["fixed"].items == 4
    assert found["fixed"].accuracy_mae == pytest.approx(np.abs(part - TRUTH).mean())
    slope, constant = np.polyfit(OTHERS[:, listed].mean(axis=1), OTHERS.mean(axis=1), 1)
    errors = np.abs(constant + slope * part - TRUTH)
    assert found["fixed, regressed"].accuracy_mae == pytest.approx(errors.mean())
    expected = errors.std(ddof=1) / np.sqrt(len(errors))
    assert found["fixed, regressed"].accuracy_mae_se == pytest.approx(expected)
    alike = np.where(np.isin(np.arange(N), listed), 1.0, OTHERS)  # nothing to regress on
    *_, last = baselines(alike, ROWS, 10, bank=BANK, tasks=TASKS, fixed=listed)
    assert last.accuracy_mae == pytest.approx(np.abs(alike.mean() - TRUTH).mean())
    assert [held(2, ROWS[:n])["tasks"].accuracy_mae_se is None for n in (1, 2)] == [True, False]


def test_error_of_random_questions_is_that_of_sampling_without_replacement() -> None:
    n = 12
    spread = ROWS.std(axis=1, ddof=1) * np.sqrt((1 - n / N) / n)
    mean = float(np.mean(spread * np.sqrt(2 / np.pi)))
    assert held(n)["random"].accuracy_mae == pytest.approx(mean, rel=0.25)


def test_strata_tasks_and_the_reference_mean_lower_the_error() -> None:
    easy = np.arange(N) % 2 == 0
    level = np.where(easy, 0.95, 0.05)
    others = (np.random.default_rng(1).random((40, N)) < level).astype(float)
    rows = (np.random.default_rng(2).random((30, N)) < level).astype(float)
    found = {
        one.name: one.accuracy_mae
        for one in baselines(others, rows, 10, bank=BANK, tasks=easy.tolist())
    }
    for name in ("stratified", "tasks", "beta-binomial", "ridge"):
        assert found[name] < 0.7 * found["random"], name


def test_means_of_tasks_are_those_of_eq_15_of_the_wild_study() -> None:
    items, row = np.array([2, 7, 25, 26, 40]), ROWS[0]
    by_hand = 0.0
    for task in ("law", "maths"):
        inside = [item for item in range(N) if TASKS[item] == task]
        asked = [item for item in items if TASKS[item] == task]
        mu = OTHERS[:, inside].mean()
        alpha, beta = 5 * mu, 5 * (1 - mu)
        mean = (alpha + row[asked].sum()) / (alpha + beta + len(asked))
        by_hand += len(inside) / N * mean
    assert shrunk(OTHERS, TASKS, items).of(row[None])[0] == pytest.approx(by_hand, abs=1e-9)


def test_the_ridge_penalty_is_the_one_with_the_least_error_on_models_left_out() -> None:
    items = np.arange(15)
    answers, scores = OTHERS[:, items], OTHERS.mean(axis=1)
    rule = ridge(OTHERS, scores, items)

    def fitted(rows: IntArray, penalty: float) -> tuple[FloatArray, float]:
        x, y = answers[rows], scores[rows]
        centred = x - x.mean(axis=0)
        left = centred.T @ centred + penalty * np.eye(len(items))
        weights = np.linalg.solve(left, centred.T @ (y - y.mean()))
        return weights, float(y.mean() - x.mean(axis=0) @ weights)

    everybody = np.arange(len(scores))
    errors = {}
    for penalty in 10.0 ** np.arange(-2.0, 4.0):
        missed = []
        for i in everybody:
            weights, constant = fitted(np.delete(everybody, i), penalty)
            missed.append(constant + answers[i] @ weights - scores[i])
        errors[penalty] = np.mean(np.square(missed))
    weights, constant = fitted(everybody, min(errors, key=lambda penalty: errors[penalty]))
    assert rule.weights == pytest.approx(weights)
    assert rule.constant == pytest.approx(constant)


def test_anchors_of_identical_questions_give_the_exact_score() -> None:
    kinds = np.repeat(np.arange(4), [5, 10, 15, 30])
    rng = np.random.default_rng(6)
    others, rows = (rng.integers(0, 2, (m, 4)).astype(float)[:, kinds] for m in (50, 9))
    found = baselines(others, rows, 8, bank=BANK, tasks=[""] * N)
    anchors = next(one for one in found if one.name == "anchors")
    assert anchors.accuracy_mae == pytest.approx(0.0, abs=1e-9)


def test_p_irt_adds_expected_scores_at_theta_to_the_answers() -> None:
    items = np.array([1, 5, 9, 30])
    asked = np.full(ROWS.shape, np.nan)
    asked[:, items] = ROWS[:, items]
    thetas, _ = whole_bank_abilities(BANK, asked)
    expected = 1 / (1 + np.exp(-BANK.a * (thetas[:, None] - BANK.b)))
    expected[:, items] = ROWS[:, items]
    assert p_irt(BANK, items, ROWS) == pytest.approx(expected.mean(axis=1))


def test_gp_irt_weighs_anchors_and_p_irt_by_their_errors() -> None:
    """lambda = b^2 / (b^2 + s^2 / 4n), b the error of p-IRT on the reference models."""
    n = 10
    anchors = anchors_of(OTHERS.T, n, np.random.default_rng(0))
    b = np.abs(p_irt(BANK, anchors.items, OTHERS) - OTHERS.mean(axis=1)).mean()
    weight = b**2 / (b**2 + OTHERS.var(axis=1).mean() / (4 * n))
    predicted = weight * anchors.of(ROWS) + (1 - weight) * p_irt(BANK, anchors.items, ROWS)
    assert 0.05 < weight < 0.95
    assert held(n)["gp-irt"].accuracy_mae == pytest.approx(np.abs(predicted - TRUTH).mean())


@pytest.mark.parametrize(("n", "counts"), [(3, (1, 1, 1)), (11, (4, 4, 3)), (13, (5, 4, 3))])
def test_tasks_get_equally_many_items_or_all_they_have(n: int, counts: tuple[int, ...]) -> None:
    tasks = ["law"] * 20 + ["maths"] * 37 + ["art"] * 3
    rule = _of_tasks(tasks, n, np.random.default_rng(1))
    asked = [tasks[item] for item in rule.items]
    assert tuple(asked.count(task) for task in ("law", "maths", "art")) == counts
    assert len(set(rule.items.tolist())) == len(asked)
    weights = [tasks.count(task) / 60 / asked.count(task) for task in asked]
    assert rule.weights == pytest.approx(weights)


def test_unanswered_items_are_neither_asked_nor_counted() -> None:
    at = np.arange(0, N, 2)
    holes = np.full(ROWS.shape, np.nan)
    holes[:, at] = ROWS[:, at]
    tasks = [TASKS[item] for item in at]
    alone = baselines(OTHERS[:, at], ROWS[:, at], 10, bank=BANK.take(at), tasks=tasks)
    assert held(10, holes) == {one.name: one for one in alone}


def test_a_missing_answer_of_a_reference_model_counts_as_the_mean_of_its_item() -> None:
    holes = np.where(np.random.default_rng(7).random(OTHERS.shape) < 0.3, np.nan, OTHERS)
    holes[:, 4] = np.nan  # nobody answered it: the mean of all answers
    means = [np.nanmean(holes if item == 4 else holes[:, item]) for item in range(N)]
    filled = np.where(np.isnan(holes), means, holes)
    found, expected = (baselines(of, ROWS, 10, bank=BANK, tasks=TASKS) for of in (holes, filled))
    for one, other in zip(found, expected, strict=True):
        assert one.accuracy_mae == pytest.approx(other.accuracy_mae), one.name


def test_examinees_with_different_answered_items_are_evaluated_separately() -> None:
    some = ROWS[:6].copy()
    some[3:, :20] = np.nan
    listed = np.array([2, 5, 30])
    found = held(10, some, fixed=listed)["fixed"].accuracy_mae
    first, last = ROWS[:3], ROWS[3:6]
    errors = [
        *np.abs(first[:, listed].mean(axis=1) - first.mean(axis=1)),
        *np.abs(last[:, 30] - last[:, 20:].mean(axis=1)),
    ]
    assert found == pytest.approx(np.mean(errors))
    nobody = held(10, some[3:], fixed=listed[:2])["fixed"].accuracy_mae
    assert nobody == pytest.approx(np.abs(OTHERS[:, 20:].mean() - last[:, 20:].mean(axis=1)).mean())
