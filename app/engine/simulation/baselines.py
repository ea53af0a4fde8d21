"""Simpler predictors of a score from a few items, to compare a design with.

| name | items | prediction of the score |
|---|---|---|
| random | random | mean of the answers |
| stratified | one of each of n strata of difficulty | mean, weighted by the strata's sizes |
| tasks | equally many of each task | mean of the tasks' means, weighted by their sizes |
| beta-binomial | random | the same, shrunk towards the tasks' means of the reference models |
| ridge | random | regression of the reference models' scores on their answers |
| anchors | nearest to the centres of n clusters of answers | mean, weighted by cluster sizes |
| anchors-irt | the same for slopes and intercepts | mean, weighted by cluster sizes |
| p-irt | as for anchors | mean of the answers and of the expected scores of all other items |
| gp-irt | as for anchors | weighted mean of anchors and p-irt |
| fixed | a given list | mean of the answers |
| fixed, regressed | the same list | regression on that mean |

All but p-irt and gp-irt are linear in the answers. If the items are random, the error is a mean
over several draws. An item without an answer of the examinee is neither asked nor counted, as in
a test.

Source: Maia Polo et al. (2024), tinyBenchmarks, arXiv 2402.14992, for anchors, p-IRT and gp-IRT;
Kipnis et al. (2025), metabench, arXiv 2407.12844, for a regression on a fixed list; eq. 15 of the
WILD study for beta-binomial.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.spatial.distance import cdist

from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.base import IntArray

FIXED, REGRESSED = "fixed", "fixed, regressed"
_DRAWS = 20
_ROUNDS = 30
#: Number of answers that the reference models' mean of a task counts as, lambda of eq. 15.
_WORTH = 5.0
#: Candidate penalties of the ridge regression, compared by leave-one-out error.
_PENALTIES = 10.0 ** np.arange(-2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Error of one baseline.

    Attributes:
        name: Name in the table of the module.
        items: Number of items that each examinee is asked.
        accuracy_mae: Mean absolute error of the predicted score.
        accuracy_mae_se: Standard error of that mean over the examinees; None for one examinee.
    """

    name: str
    items: int
    accuracy_mae: float
    accuracy_mae_se: float | None


@dataclass(frozen=True, slots=True)
class Rule:
    """A prediction that is linear in the answers: `constant + weights @ answers`."""

    items: IntArray
    weights: FloatArray
    constant: float = 0.0

    def of(self, rows: FloatArray) -> FloatArray:
        """Predicted scores, shape (n_examinees,)."""
        return np.asarray(self.constant + rows[:, self.items] @ self.weights)


def baselines(
    others: FloatArray,
    rows: FloatArray,
    n_items: int,
    *,
    bank: ItemBank,
    tasks: Sequence[Hashable],
    fixed: IntArray | None = None,
    seed: int = 0,
) -> list[Baseline]:
    """Errors of all baselines with `n_items` items each; a fixed list keeps its own length.

    `others` are the scores of the reference models, shape (n_models, n_items of the bank); a
    missing score is NaN and is replaced by the mean of its item. The score to predict is the mean
    of an examinee's row. `fixed` are positions of a list of items; if an examinee answered none of
    them, the prediction is the mean of the reference models.
    """
    present = ~np.isnan(others)
    answers = present.sum(axis=0)
    sums = np.where(present, others, 0.0).sum(axis=0)
    overall = sums.sum() / max(answers.sum(), 1)  # for an item that no reference model answered
    others = np.where(present, others, np.where(answers, sums / np.maximum(answers, 1), overall))
    masks, pattern = np.unique(~np.isnan(rows), axis=0, return_inverse=True)
    errors: dict[str, FloatArray] = {}
    for nth, mask in enumerate(masks):
        at, who = np.flatnonzero(mask), np.flatnonzero(pattern.ravel() == nth)
        by_name = _errors(
            others[:, at],
            rows[np.ix_(who, at)],
            min(n_items, len(at)),
            bank=bank.take(at),
            tasks=[tasks[item] for item in at.tolist()],
            fixed=None if fixed is None else np.flatnonzero(np.isin(at, fixed)),
            seed=seed,
        )
        for name, loss in by_name.items():
            errors.setdefault(name, np.empty(len(rows)))[who] = loss
    sizes = {} if fixed is None else dict.fromkeys((FIXED, REGRESSED), len(fixed))
    return [
        Baseline(
            name=name,
            items=sizes.get(name, n_items),
            accuracy_mae=float(loss.mean()),
            accuracy_mae_se=float(loss.std(ddof=1) / len(loss) ** 0.5) if len(loss) > 1 else None,
        )
        for name, loss in errors.items()
    ]


def _errors(
    others: FloatArray,
    rows: FloatArray,
    n: int,
    *,
    bank: ItemBank,
    tasks: Sequence[Hashable],
    fixed: IntArray | None,
    seed: int,
) -> dict[str, FloatArray]:
    """Absolute errors of each baseline for examinees who answered all of these items."""
    truth, means = rows.mean(axis=1), others.mean(axis=0)
    drawn: dict[str, Callable[[np.random.Generator], Rule]] = {
        "random": lambda rng: _mean_of(_any(others, n, rng)),
        "stratified": lambda rng: _stratified(means, n, rng),
        "beta-binomial": lambda rng: shrunk(others, tasks, _any(others, n, rng)),
        "ridge": lambda rng: ridge(others, others.mean(axis=1), _any(others, n, rng)),
    }
    if 1 < len(set(tasks)) <= n:
        drawn["tasks"] = lambda rng: _of_tasks(tasks, n, rng)
    errors = {}
    for name, make in drawn.items():
        rules = [make(np.random.default_rng([seed, draw])) for draw in range(_DRAWS)]
        errors[name] = np.mean([np.abs(rule.of(rows) - truth) for rule in rules], axis=0)
    anchors = anchors_of(others.T, n, np.random.default_rng(seed))
    curves = np.column_stack([bank.a, bank.intercept])
    by_anchors, by_theta = anchors.of(rows), p_irt(bank, anchors.items, rows)
    missed = np.abs(p_irt(bank, anchors.items, others) - others.mean(axis=1)).mean()
    share = missed**2 / (missed**2 + others.var(axis=1).mean() / (4 * n)) if missed else 0.0
    errors["anchors"] = np.abs(by_anchors - truth)
    by_curves = anchors_of(curves, n, np.random.default_rng(seed)).of(rows)
    errors["anchors-irt"] = np.abs(by_curves - truth)
    errors["p-irt"] = np.abs(by_theta - truth)
    errors["gp-irt"] = np.abs(share * by_anchors + (1 - share) * by_theta - truth)
    if fixed is not None:
        plain = _mean_of(fixed) if len(fixed) else Rule(fixed, np.zeros(0), float(others.mean()))
        errors[FIXED] = np.abs(plain.of(rows) - truth)
        errors[REGRESSED] = np.abs(_on_mean(others, plain).of(rows) - truth)
    return errors


def p_irt(bank: ItemBank, items: IntArray, rows: FloatArray) -> FloatArray:
    """Mean of the answers to some items and of the expected scores of all others at theta."""
    asked = np.full(rows.shape, np.nan)
    asked[:, items] = rows[:, items]
    thetas, _ = whole_bank_abilities(bank, asked)
    return np.asarray(np.where(np.isnan(asked), bank.expected_score(thetas), asked).mean(axis=1))


def _mean_of(items: IntArray) -> Rule:
    return Rule(items, np.full(len(items), 1.0 / len(items)))


def _any(others: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    return np.asarray(rng.choice(others.shape[1], n, replace=False))


def _stratified(means: FloatArray, n: int, rng: np.random.Generator) -> Rule:
    strata = np.array_split(np.argsort(means, kind="stable"), n)
    weights = np.array([len(stratum) for stratum in strata]) / len(means)
    return Rule(np.array([rng.choice(stratum) for stratum in strata]), weights)


def _of_tasks(tasks: Sequence[Hashable], n: int, rng: np.random.Generator) -> Rule:
    members: dict[Hashable, list[int]] = {}
    for item, task in enumerate(tasks):
        members.setdefault(task, []).append(item)
    items, weights = [], []
    for nth, inside in enumerate(members.values()):
        count = min(n // len(members) + (nth < n % len(members)), len(inside))
        items.append(rng.choice(inside, count, replace=False))
        weights.append(np.full(count, len(inside) / len(tasks) / count))
    return Rule(np.concatenate(items), np.concatenate(weights))


def shrunk(others: FloatArray, tasks: Sequence[Hashable], items: IntArray) -> Rule:
    """Beta-binomial posterior means of the tasks; the prior means are the reference models'."""
    _, task_of = np.unique(np.asarray([str(task) for task in tasks]), return_inverse=True)
    sizes = np.bincount(task_of)
    prior = np.bincount(task_of, others.mean(axis=0)) / sizes
    asked = np.bincount(task_of[items], minlength=len(sizes))
    share = sizes / len(task_of) / (_WORTH + asked)
    return Rule(items, share[task_of[items]], float(_WORTH * share @ prior))


def ridge(others: FloatArray, scores: FloatArray, items: IntArray) -> Rule:
    """Ridge regression of scores of the reference models on their answers."""
    answers = others[:, items]
    centre, middle = answers.mean(axis=0), scores.mean()
    u, s, vt = np.linalg.svd(answers - centre, full_matrices=False)
    projected = u.T @ (scores - middle)
    kept = s**2 / (s**2 + _PENALTIES[:, None])
    leverage = 1.0 / len(scores) + kept @ (u**2).T
    residuals = (scores - middle - (kept * projected) @ u.T) / np.maximum(1.0 - leverage, 1e-9)
    penalty = _PENALTIES[np.argmin((residuals**2).mean(axis=1))]
    weights = vt.T @ (s / (s**2 + penalty) * projected)
    return Rule(items, weights, float(middle - centre @ weights))


def _on_mean(others: FloatArray, plain: Rule) -> Rule:
    part, scores = plain.of(others), others.mean(axis=1)
    spread = part.var()
    slope = 0.0 if spread == 0 else float(np.mean((part - part.mean()) * scores) / spread)
    constant = float(scores.mean() - slope * part.mean())
    return Rule(plain.items, slope * plain.weights, constant)


def anchors_of(points: FloatArray, n: int, rng: np.random.Generator) -> Rule:
    """Items nearest to the centres of n clusters (k-means) of points, shape (n_items, n_axes)."""
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # a cluster without items has no anchor
        centres, nearest = kmeans2(points, n, iter=_ROUNDS, minit="points", rng=rng)
    sizes = np.bincount(nearest, minlength=n)
    kept = np.flatnonzero(sizes)
    return Rule(cdist(centres[kept], points).argmin(axis=1), sizes[kept] / len(points))
