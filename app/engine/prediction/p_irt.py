"""Predicted score on the whole bank, from the answers to a part of it.

p-IRT keeps the observed scores and adds the expected score of every unanswered item. Its interval
has two sources of error: theta, by a sum over its posterior, and the Bernoulli noise of the
unanswered items at that theta.

Source: Maia Polo et al. (2024), tinyBenchmarks, arXiv 2402.14992, section 3.2, for the estimate.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.prediction.mixtures import mixture_interval
from app.engine.state import Belief, CatState, Response
from app.errors import InvalidInputError

#: Names of the methods in designs and results.
P_IRT, P_IRT_C, SCORE_MODEL = "p-irt", "p-irt-c", "score-model"
COMBINED, DESIGN = "combined", "design"
#: Methods that predict from theta.
BY_THETA = (P_IRT, P_IRT_C)
#: Method of a result where every item was asked.
ALL_ITEMS = "all_items"
#: Methods whose intervals hold even where the curves are wrong.
BY_SAMPLE = (COMBINED, DESIGN, ALL_ITEMS)

_MAX_POINTS = 61  # posterior points of a prediction; their means keep the first moment


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Mean score over the whole bank, with the ends of its 95 % interval.

    Attributes:
        value: In [0, 1].
        method: Name of the predictor.
        raw: Ends of the interval before correction; None where it was not corrected.
        nonresponse: Share of the asked items without a score, for which `lo` was lowered; see
            `allowing_for_nonresponse`.
    """

    value: float
    lo: float
    hi: float
    method: str
    raw: tuple[float, float] | None = None
    nonresponse: float = 0.0

    @property
    def margin(self) -> float:
        """Half of the width of the interval."""
        return (self.hi - self.lo) / 2


class Predictor(Protocol):
    """Predicts the whole-bank score, from the bank's parameters or from more knowledge."""

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """Prediction after some answers.

        Args:
            bank: Bank whose items make up the score.
            responses: Scored answers.
            belief: Posterior of theta after those answers.
            exclude: Items that do not count, answered or not.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PIrt:
    """Observed answers plus expected score of the rest.

    Attributes:
        method: `p-irt` takes the model's probability for every item, averaged over the posterior.
            `p-irt-c` reproduces a published procedure: probability at the point theta, and c for
            every item with a <= 0.
    """

    method: str = P_IRT

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `Predictor`."""
        scores = np.full((1, bank.n_items), np.nan)
        for response in responses:
            scores[0, response.item] = response.score
        nodes, weights = _condensed(belief.nodes, belief.weights)
        theta = np.array([belief.theta])
        return self.predict_rows(bank, scores, theta, nodes, weights[None, :], exclude)[0]

    def predict_rows(
        self,
        bank: ItemBank,
        scores: FloatArray,
        theta: FloatArray,
        nodes: FloatArray,
        weights: FloatArray,
        exclude: Sequence[int] = (),
    ) -> list[Prediction]:
        """Predictions for many examinees whose posteriors share their nodes.

        Args:
            bank: Bank whose items make up the score.
            scores: Shape (n_rows, n_items), NaN where not answered.
            theta: Point estimates, shape (n_rows,).
            nodes: Shape (n_nodes,).
            weights: Posterior mass, shape (n_rows, n_nodes).
            exclude: Items that do not count, answered or not.
        """
        counted = still_counted(np.ones(bank.n_items), exclude) > 0.0
        n_counted = np.count_nonzero(counted)
        unseen = (np.isnan(scores) & counted).astype(np.float64)
        observed = np.nansum(scores[:, counted], axis=1)
        expected, variance = bank.model.score_moments(bank.parameters, nodes[:, None])
        mean = unseen @ self._by_rule(bank, expected).T
        noise = np.sqrt(unseen @ variance.T)
        value = np.einsum("ij,ij->i", weights, mean)
        if self.method == P_IRT_C:
            value = np.einsum("ij,ij->i", unseen, self._by_rule(bank, bank.expected_score(theta)))
        lo, hi = mixture_interval(weights, mean, noise)
        most = unseen.sum(axis=1)
        lo = np.minimum(np.maximum(lo, 0.0), value)
        hi = np.maximum(np.minimum(hi, most), value)
        return [
            Prediction(value=v, lo=low, hi=high, method=self.method)
            for v, low, high in zip(
                *(((observed + part) / n_counted).tolist() for part in (value, lo, hi)), strict=True
            )
        ]

    def _by_rule(self, bank: ItemBank, expected: FloatArray) -> FloatArray:
        """Expected scores by the rule of the method, in place."""
        if self.method == P_IRT_C:
            expected[:, bank.a <= 0] = bank.c[bank.a <= 0]
        return expected


@dataclass(frozen=True, slots=True)
class Certain:
    """Bounds of the score that the answers make certain.

    Attributes:
        least: Score if all other items are wrong.
        most: Score if all other items are right.
    """

    least: float
    most: float

    @classmethod
    def after(cls, weights: FloatArray, items: IntArray, scores: FloatArray) -> "Certain":
        """Bounds of the score with these item weights, after `scores` on `items`."""
        least = float(weights[items] @ scores)
        # Weights sum to 1 up to rounding.
        left = max(float(weights.sum() - weights[items].sum()), 0.0)
        return cls(min(least, 1.0), min(least + left, 1.0))

    def clip(self, value: float, lo: float, hi: float) -> tuple[float, float, float]:
        """A value and the ends of its interval, cut to the bounds, with the value inside."""
        value = self.of(value)
        return value, min(max(lo, self.least), value), max(min(hi, self.most), value)

    def of(self, value: float) -> float:
        """A value cut to the bounds."""
        return min(max(value, self.least), self.most)


def allowing_for_nonresponse(prediction: Prediction, state: CatState) -> Prediction:
    """The same score with an interval that allows for answers without a score.

    A share f of the asked items ended without a score. Their mean is assumed to lie between 0 and
    the prediction, and the same share of the other items to fail. So the lower end of the interval
    is multiplied by 1 - f. See docs/concepts.md, "Answers without a score".

    Source: Manski (2003), Partial Identification of Probability Distributions, chapter 1.

    Args:
        prediction: Prediction from the scored answers alone.
        state: The test, with its answers without a score in `unscored`.
    """
    n_unscored = len(state.unscored)
    if not n_unscored:
        return prediction
    share = n_unscored / (n_unscored + state.n_scored)
    return replace(prediction, lo=(1 - share) * prediction.lo, nonresponse=share)


def still_counted(weights: FloatArray, exclude: Sequence[int]) -> FloatArray:
    """Weights of a score without some items, with the same sum.

    Raises:
        InvalidInputError: No item that counts is left.
    """
    if not len(exclude):
        return weights
    kept = weights.copy()
    kept[np.asarray(exclude, dtype=np.intp)] = 0.0
    total = float(kept.sum())
    if not total > 0.0:
        raise InvalidInputError(
            "A prediction needs at least one item that counts; all were excluded."
        )
    rescaled: FloatArray = kept * (float(weights.sum()) / total)
    return rescaled


def _condensed(nodes: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The posterior on fewer points, each the weighted mean of neighbouring nodes."""
    carrying = weights > 1e-7
    nodes, weights = nodes[carrying], weights[carrying]
    starts = np.unique(np.linspace(0, len(nodes), _MAX_POINTS, endpoint=False).astype(np.intp))
    mass = np.add.reduceat(weights, starts)
    return np.add.reduceat(weights * nodes, starts) / mass, mass / mass.sum()
