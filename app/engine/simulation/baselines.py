"""Simpler ways to tell a score from a few questions, to hold a design against.

| name | questions | the score is told by |
|---|---|---|
| random | any | the mean of the answers |
| stratified | one of each of n strata of like difficulty | the mean of the answers |
| tasks | as many of each task | the tasks' means, each by its size |
| beta-binomial | any | the mean, drawn to that of the reference models |
| ridge | any | a regression of the reference models' scores on their answers |
| anchors | nearest to the centres of n clusters of answers | the answers, by the clusters' sizes |
| p-irt | the same | the answers, and what theta expects of all other items |
| gp-irt | the same | both of the last two, weighed |
| fixed | a list that is given | the mean of the answers |
| fixed, regressed | the same | a regression on that mean |

All but p-irt and gp-irt are linear in the answers. Where chance chooses the questions, errors are
means over several draws.

Source: Maia Polo et al. (2024), tinyBenchmarks, arXiv 2402.14992, for anchors, p-IRT and gp-IRT;
Kipnis et al. (2025), metabench, arXiv 2407.12844, for a regression on a fixed list.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.base import IntArray

_DRAWS = 20
_ROUNDS = 30
#: Penalties that the ridge regression chooses among by its error on each model left out.
_PENALTIES = 10.0 ** np.arange(-2.0, 4.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How one of them did.

    Attributes:
        name: See the module.
        items: Questions of each examinee.
        accuracy_mae: Mean absolute error of the score.
        accuracy_mae_se: Its standard error over the examinees; None of one.
    """

    name: str
    items: int
    accuracy_mae: float
    accuracy_mae_se: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A score that is linear in the answers: `constant + weights @ answers`."""

    items: IntArray
    weights: FloatArray
    constant: float = 0.0

    def of(self, rows: FloatArray) -> FloatArray:
        """The scores that are told, shape (n_examinees,)."""
        return np.asarray(self.constant + rows[:, self.items] @ self.weights)


def baselines(
    others: FloatArray,
    rows: FloatArray,
    truth: FloatArray,
    n_items: int,
    *,
    tasks: Sequence[Hashable],
    bank: ItemBank | None = None,
    fixed: IntArray | None = None,
    seed: int = 0,
) -> list[Baseline]:
    """All that can be had, by the same number of questions.

    A missing answer counts as the reference models' mean on its item.

    Args:
        others: Scores of the reference models, shape (n_models, n_items of the bank).
        rows: Of the examinees.
        truth: Their real scores, shape (n_examinees,).
        n_items: Questions of each examinee.
        tasks: Task of each item.
        bank: Parameters, for what goes by item response theory.
        fixed: Positions of a list of items.
        seed: Of all chance.
    """
    means = np.nan_to_num(_mean(others, 0), nan=0.5)
    others = np.where(np.isnan(others), means, others)
    rows = np.where(np.isnan(rows), means, rows)
    n = min(n_items, rows.shape[1])
    drawn: Mapping[str, Callable[[np.random.Generator], Rule]] = {
        "random": lambda rng: _mean_of(_any(others, n, rng)),
        "stratified": lambda rng: _stratified(means, n, rng),
        "tasks": lambda rng: _of_tasks(tasks, n, rng),
        "beta-binomial": lambda rng: _drawn_in(others, _any(others, n, rng)),
        "ridge": lambda rng: _ridge(others, _any(others, n, rng)),
    }
    found = []
    for name, make in drawn.items():
        if name != "tasks" or 1 < len(set(tasks)) <= n:
            rules = [make(np.random.default_rng([seed, draw])) for draw in range(_DRAWS)]
            errors = np.mean([np.abs(rule.of(rows) - truth) for rule in rules], axis=0)
            found.append(_told(name, n, errors))
    anchors = _anchors(others, n, np.random.default_rng(seed))
    told = {"anchors": anchors.of(rows)}
    if bank is not None:
        told["p-irt"] = p_irt(bank, anchors.items, rows)
        missed = np.abs(p_irt(bank, anchors.items, others) - others.mean(axis=1)).mean()
        share = missed**2 / (missed**2 + others.var(axis=1).mean() / (4 * n))
        told["gp-irt"] = share * told["anchors"] + (1 - share) * told["p-irt"]
    found += [_told(name, n, np.abs(score - truth)) for name, score in told.items()]
    if fixed is not None:
        plain = _mean_of(fixed)
        regressed = _on_mean(others, plain)
        found.append(_told("fixed", len(fixed), np.abs(plain.of(rows) - truth)))
        found.append(_told("fixed, regressed", len(fixed), np.abs(regressed.of(rows) - truth)))
    return found


def p_irt(bank: ItemBank, items: IntArray, rows: FloatArray) -> FloatArray:
    """Mean of the answers to some items and of what theta expects of all others."""
    asked = np.full(rows.shape, np.nan)
    asked[:, items] = rows[:, items]
    thetas, _ = whole_bank_abilities(bank, asked)
    return np.asarray(np.where(np.isnan(asked), bank.expected_score(thetas), asked).mean(axis=1))


def _told(name: str, items: int, errors: FloatArray) -> Baseline:
    several = len(errors) > 1
    return Baseline(
        name=name,
        items=items,
        accuracy_mae=float(errors.mean()),
        accuracy_mae_se=float(errors.std(ddof=1) / len(errors) ** 0.5) if several else None,
    )


def _mean(scores: FloatArray, axis: int) -> FloatArray:
    known = ~np.isnan(scores)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(known, scores, 0.0).sum(axis) / known.sum(axis))


def _mean_of(items: IntArray) -> Rule:
    return Rule(items=items, weights=np.full(len(items), 1.0 / len(items)))


def _any(others: FloatArray, n: int, rng: np.random.Generator) -> IntArray:
    return np.asarray(rng.choice(others.shape[1], n, replace=False))


def _stratified(means: FloatArray, n: int, rng: np.random.Generator) -> Rule:
    strata = np.array_split(np.argsort(means, kind="stable"), n)
    weights = np.array([len(stratum) for stratum in strata]) / len(means)
    return Rule(items=np.array([rng.choice(stratum) for stratum in strata]), weights=weights)


def _of_tasks(tasks: Sequence[Hashable], n: int, rng: np.random.Generator) -> Rule:
    members: dict[Hashable, list[int]] = {}
    for item, task in enumerate(tasks):
        members.setdefault(task, []).append(item)
    items, weights = [], []
    for nth, inside in enumerate(members.values()):
        count = min(n // len(members) + (nth < n % len(members)), len(inside))
        items.append(rng.choice(inside, count, replace=False))
        weights.append(np.full(count, len(inside) / len(tasks) / count))
    return Rule(items=np.concatenate(items), weights=np.concatenate(weights))


def _drawn_in(others: FloatArray, items: IntArray) -> Rule:
    """Posterior mean of a beta-binomial whose beta is that of the reference models' scores."""
    scores = others.mean(axis=1)
    centre, spread = scores.mean(), max(scores.var(), 1e-9)
    worth = max(centre * (1 - centre) / spread - 1.0, 0.0)  # answers that the prior counts for
    each = 1.0 / (len(items) + worth)
    return Rule(
        items=items, weights=np.full(len(items), each), constant=float(worth * centre * each)
    )


def _ridge(others: FloatArray, items: IntArray) -> Rule:
    answers, scores = others[:, items], others.mean(axis=1)
    centre, middle = answers.mean(axis=0), scores.mean()
    u, s, vt = np.linalg.svd(answers - centre, full_matrices=False)
    projected = u.T @ (scores - middle)
    best: tuple[float, FloatArray] | None = None
    for penalty in _PENALTIES:
        kept = s**2 / (s**2 + penalty)
        own = 1.0 / len(scores) + (u**2 @ kept)
        left_out = (scores - middle - u @ (kept * projected)) / np.maximum(1.0 - own, 1e-9)
        error = float(np.mean(left_out**2))
        if best is None or error < best[0]:
            best = error, vt.T @ (s / (s**2 + penalty) * projected)
    weights = np.zeros(len(items)) if best is None else best[1]
    return Rule(items=items, weights=weights, constant=float(middle - centre @ weights))


def _on_mean(others: FloatArray, plain: Rule) -> Rule:
    part, scores = plain.of(others), others.mean(axis=1)
    spread = part.var()
    slope = 0.0 if spread == 0 else float(np.mean((part - part.mean()) * scores) / spread)
    constant = float(scores.mean() - slope * part.mean())
    return Rule(items=plain.items, weights=slope * plain.weights, constant=constant)


def _anchors(others: FloatArray, n: int, rng: np.random.Generator) -> Rule:
    """Items nearest to the centres of n clusters (k-means) of the reference models' answers."""
    points = others.T
    centres = points[rng.choice(len(points), n, replace=False)]
    squares = (points**2).sum(axis=1)[:, None]
    nearest = np.zeros(len(points), dtype=np.intp)
    for _ in range(_ROUNDS):
        distances = squares - 2.0 * points @ centres.T + (centres**2).sum(axis=1)
        moved = distances.argmin(axis=1)
        if (moved == nearest).all():
            break
        nearest = moved
        sizes = np.bincount(nearest, minlength=n)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        filled = sizes > 0
        centres = np.where(filled[:, None], sums / np.maximum(sizes, 1)[:, None], centres)
    distances = squares - 2.0 * points @ centres.T + (centres**2).sum(axis=1)
    sizes = np.bincount(distances.argmin(axis=1), minlength=n)
    kept = np.flatnonzero(sizes)
    return Rule(items=distances.argmin(axis=0)[kept], weights=sizes[kept] / len(points))
