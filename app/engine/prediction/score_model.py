"""Scores as one normal vector: predicts the score on some items from answers to others.

With scores y of mean mu and covariance S = F' F + diag(noise), weights w and asked items A, the
best linear prediction of <w, y> is <w, mu> + S_wA S_AA^-1 (y_A - mu_A), with the variance
w' S w - S_wA S_AA^-1 S_Aw. The variance does not depend on the answers, so items in flight count
like answered ones. Item j lowers it by c_j^2 / d_j, where c is the covariance of every item with
the target and d the variance of every item, both given A: V-optimality, a rank-one update a step.

Source: Rasmussen & Williams (2006), Gaussian Processes for Machine Learning, section 2.2, for the
prediction; Krause, Singh & Guestrin (2008), Journal of Machine Learning Research 9, for greedy
choice.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.p_irt import (
    COMBINED,
    SCORE_MODEL,
    Certain,
    Prediction,
    Predictor,
    still_counted,
)
from app.engine.prediction.score_estimate import ScoreEstimator
from app.engine.state import Z_95, Belief, Response, answered
from app.errors import FieldProblem, InvalidInputError

# More factors would cost time in every step; the smallest ones are noise.
_MOST_FACTORS, _MOST_NUMBERS = 400, 2_000_000
_SURE = 1e-6  # least standard deviation of a blended prediction
#: Factor on the standard deviation of curves that no sampled question checks. In
#: `benchmarks/optimal_design.py` 95 to 100 % of such intervals hold but in one case of eighteen.
_UNCHECKED = 1.6
_REMEMBERED = 64  # sets of items: so many tests at once go on from their last step


@dataclass(frozen=True, slots=True, eq=False)
class Widths:
    """Calibrated widths of intervals, by the number of asked items.

    Attributes:
        counts: Numbers of items, rising.
        half: Half-widths of the 95 % interval at `counts`, in standard deviations of the model.
    """

    counts: tuple[int, ...] = (1,)
    half: tuple[float, ...] = (Z_95,)

    def at(self, count: int) -> float:
        """Half-width after `count` items, interpolated in the logarithm of the count."""
        return float(np.interp(np.log(max(count, 1)), np.log(self.counts), self.half))


@dataclass(frozen=True, slots=True, eq=False)
class ScoreModel:
    """Mean and covariance of the scores on the items of a bank.

    Attributes:
        mean: Mean score of each item, shape (n_items,).
        factors: Factor loadings F, shape (n_factors, n_items).
        noise: Specific variance of each item, above 0, shape (n_items,).

    Raises:
        InvalidInputError: Shapes that do not fit, or noise that is not above 0.
    """

    mean: FloatArray
    factors: FloatArray
    noise: FloatArray

    def __post_init__(self) -> None:
        n_items = self.mean.size
        if self.factors.ndim != 2 or self.factors.shape[1] != n_items:
            raise InvalidInputError(
                f"Factors need one column for each of {n_items} items, got shape "
                f"{self.factors.shape}."
            )
        if self.noise.shape != (n_items,) or not (self.noise > 0).all():
            raise InvalidInputError("Every item of a score model needs noise above 0.")
        # A step reads all loadings: three times as fast with each factor contiguous.
        object.__setattr__(self, "factors", np.ascontiguousarray(self.factors))

    @property
    def variance(self) -> FloatArray:
        """Variance of each item's score, shape (n_items,)."""
        total: FloatArray = np.einsum("rj,rj->j", self.factors, self.factors) + self.noise
        return total

    def with_target(self, weights: FloatArray) -> FloatArray:
        """Covariance of every item with the target, shape (n_items,)."""
        covariance: FloatArray = (self.factors @ weights) @ self.factors + self.noise * weights
        return covariance


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Covariances given some asked items.

    The scores are y = mu + F' z + noise with independent standard normal z; each asked item is one
    more observation of z.

    Attributes:
        asked: Asked items.
        covariance: Covariance of z, shape (n_factors, n_factors).
        towards: Covariance c of every item's score with the target, 0 if asked, shape (n_items,).
        variance: Variance d of every item's score, 0 if asked, shape (n_items,).
    """

    asked: tuple[int, ...]
    covariance: FloatArray
    towards: FloatArray
    variance: FloatArray

    def after(self, target: "Target", item: int) -> "Given":
        """The covariances given one more asked item, in one pass over the factors."""
        if item in self.asked:
            return self
        model, asked = target.model, (*self.asked, item)
        direction = self.covariance @ model.factors[:, item]
        total = float(self.variance[item])
        shared = direction @ model.factors  # covariance of the other items with the asked one
        towards = self.towards - shared * (float(self.towards[item]) / total)
        shared *= shared
        shared /= -total
        shared += self.variance
        variance = np.maximum(shared, model.noise, out=shared)
        variance[list(asked)] = towards[list(asked)] = 0.0
        return Given(
            asked=asked,
            covariance=self.covariance - np.outer(direction, direction) / total,
            towards=towards,
            variance=variance,
        )

    def gains(self) -> FloatArray:
        """Reduction of the target's variance by asking each item, shape (n_items,)."""
        gain = self.towards * self.towards
        return np.divide(gain, self.variance, out=gain, where=self.variance > 0.0)


@dataclass(frozen=True, eq=False)
class Target:
    """A score to be predicted.

    Attributes:
        model: Model of the scores.
        weights: Weight w of each item in the target, summing to 1, shape (n_items,).
        widths: Calibrated widths of its intervals.
    """

    model: ScoreModel
    weights: FloatArray
    widths: Widths = field(default_factory=Widths)
    _known: dict[frozenset[int], Given] = field(init=False, repr=False, default_factory=dict)

    @cached_property
    def covariance(self) -> FloatArray:
        """Covariance of every item with the target before any answer, shape (n_items,)."""
        return self.model.with_target(self.weights)

    @cached_property
    def variance(self) -> float:
        """Variance of the target before any answer."""
        return float(self.weights @ self.covariance)

    def nothing_given(self) -> Given:
        """Covariances before the first item."""
        model = self.model
        return Given((), np.eye(len(model.factors)), self.covariance, model.variance)

    def given(self, items: Sequence[int]) -> Given:
        """Covariances given the asked `items`.

        The latest results are remembered, because tests grow by one item.
        """
        key = frozenset(items)
        found = self._known.pop(key, None)
        if found is None:
            shorter = (self._known.get(key - {last}) for last in reversed(items))
            known = next(
                ((k, last) for k, last in zip(shorter, reversed(items), strict=True) if k), None
            )
            if known is not None:
                found = known[0].after(self, known[1])
            else:
                found = self.nothing_given()
                for item in items:
                    found = found.after(self, item)
        self._known[key] = found
        for oldest in list(self._known)[:-_REMEMBERED]:
            self._known.pop(oldest, None)
        return found

    def without(self, items: Sequence[int]) -> "Target":
        """The same target over fewer items.

        Raises:
            InvalidInputError: No item of the target is left.
        """
        return Target(self.model, still_counted(self.weights, items), self.widths)

    def predict(
        self, items: IntArray | Sequence[int], scores: FloatArray
    ) -> tuple[FloatArray, float]:
        """Best linear prediction of the target.

        Args:
            items: Positions of the answered items, shape (n,).
            scores: Scores on these items, shape (n,) or (n_examinees, n).

        Returns:
            The predicted score of each examinee, and its standard deviation by the model.
        """
        asked = np.asarray(items, dtype=np.intp)
        model = self.model
        factors = model.factors[:, asked]
        covariance = factors.T @ factors + np.diag(model.noise[asked])
        gain = np.linalg.solve(covariance, self.covariance[asked])
        value = self.weights @ model.mean + (scores - model.mean[asked]) @ gain
        left = self.variance - float(gain @ self.covariance[asked])
        return value, float(np.sqrt(max(left, 0.0)))

    def interval(
        self, items: IntArray | Sequence[int], scores: FloatArray
    ) -> tuple[float, float, float]:
        """Predicted score of one examinee and its 95 % interval: value, lo, hi.

        The interval stays within the scores that the unasked items leave possible.
        """
        asked = np.asarray(items, dtype=np.intp)
        value, sd = self.predict(asked, scores)
        certain = Certain.after(self.weights, asked, scores)
        middle, half = certain.of(float(value)), self.widths.at(asked.size) * sd
        return certain.clip(middle, middle - half, middle + half)


def short_form(target: Target, count: int, costs: FloatArray | None = None) -> list[int]:
    """The `count` items that, asked of everybody, leave the smallest variance of the target.

    The greedy choice takes the item with the largest reduction (per cost) next. It reaches at least
    63 % of the best form's reduction where gains diminish (Krause et al. 2008).

    Args:
        target: Score to be predicted.
        count: Number of items.
        costs: Cost of each item, to maximise the gain per cost, shape (n_items,).
    """
    given = target.nothing_given()
    chosen: list[int] = []
    for _ in range(min(count, target.weights.size)):
        worth = given.gains() if costs is None else given.gains() / costs
        worth[chosen] = -1.0
        item = int(worth.argmax())
        chosen.append(item)
        given = given.after(target, item)
    return chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortForm:
    """A fixed form of the items that predict a score best, for use without adaptive tests.

    The predicted score of an examinee is the constant plus the sum of weight times score.

    Attributes:
        items: Positions of its items, the most informative first.
        weights: Weights of the scores on the items.
        constant: Predicted score of an examinee with no right answer.
        half_width: Half width of the predicted score's 95 % interval, calibrated on held-out
            records.
        cost: Sum of the items' costs; None without costs.
    """

    items: tuple[int, ...]
    weights: tuple[float, ...]
    constant: float
    half_width: float
    cost: float | None

    @property
    def expected_error(self) -> float:
        """Mean absolute error of the predicted score, for normal errors."""
        return self.half_width / Z_95 * math.sqrt(2.0 / math.pi)


def compose(
    target: Target,
    count: int,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
) -> ShortForm:
    """The best form of `count` items.

    Args:
        target: Score that the form predicts.
        count: Number of its items.
        askable: Mask of the items that it may have, shape (n_items,); all by default.
        costs: Costs of the items, to choose by gain per cost, shape (n_items,).

    Raises:
        InvalidInputError: `count` is below 1 or above the number of items that may be asked.
    """
    usable = np.ones(target.weights.size, np.bool_) if askable is None else askable
    n_usable = int(np.count_nonzero(usable))
    if not 1 <= count <= n_usable:
        detail = f"expected 1 to {n_usable} items, as many as may be asked, got {count}"
        raise InvalidInputError(
            f"A form of {count} items cannot be built: {detail}.",
            problems=[FieldProblem("/items", detail)],
        )
    price = np.where(usable, 1.0 if costs is None else costs, np.inf)
    form = short_form(target, count, price)
    constant, sd = target.predict(form, np.zeros(count))
    alone, _ = target.predict(form, np.eye(count))
    return ShortForm(
        items=tuple(form),
        weights=tuple((alone - constant).tolist()),
        constant=float(constant),
        half_width=target.widths.at(count) * sd,
        cost=None if costs is None else float(costs[form].sum()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ScorePredictor:
    """Predicts the target of a score model; see `app.engine.prediction.p_irt.Predictor`."""

    target: Target

    def predict(
        self,
        bank: ItemBank,  # noqa: ARG002  # part of the protocol; a score model knows its bank
        responses: Iterable[Response],
        belief: Belief,  # noqa: ARG002  # part of the protocol; abilities are not used
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """Best linear prediction, with an interval calibrated on held-out records."""
        target = self.target.without(exclude) if len(exclude) else self.target
        value, lo, hi = target.interval(*answered(list(responses)))
        return Prediction(value=value, lo=lo, hi=hi, method=SCORE_MODEL)


@dataclass(frozen=True, slots=True, eq=False)
class BlendedScore:
    """Predicts the score of a task that is never asked, by score curves and a linear model.

    No sampled questions are of such a task. The linear model predicts m with variance (f s)^2: its
    error grows with the distance from the reference models, as that of curves does. The score
    curves predict m_1 for an examinee like the reference models and m_2 for any other: together
    (m_1 + m_2) / 2, with the mean of both variances plus (m_1 - m_2)^2 / 4. The two predictions are
    weighted by their precisions, and their difference widens the interval.

    Attributes:
        curves: Score curves with each of two priors of the general ability.
        own: Linear model with calibrated intervals.

    Source: Hoeting, Madigan, Raftery & Volinsky (1999), Statistical Science 14, for averages of
        models.
    """

    curves: tuple[ScoreEstimator, ScoreEstimator]
    own: Predictor

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        answers = list(responses)
        own = self.own.predict(bank, answers, belief, exclude)
        one, other = (curves.by_curves(answers, exclude) for curves in self.curves)
        within = [(_UNCHECKED * by.extrapolation_factor) ** 2 * by.variance for by in (one, other)]
        of_curves = max(sum(within) / 2.0 + (one.value - other.value) ** 2 / 4.0, _SURE**2)
        by_curves = (one.value + other.value) / 2.0
        # The longer half: the answers may have cut the other one off.
        half = max(own.hi - own.value, own.value - own.lo)
        variance = max(other.extrapolation_factor * half / Z_95, _SURE) ** 2
        share = variance / (variance + of_curves)
        apart = by_curves - own.value
        value = own.value + share * apart
        total = share * of_curves + (1.0 - share) * (variance + share * apart**2)
        half = Z_95 * total**0.5
        weights = still_counted(self.curves[0].weights, exclude)
        certain = Certain.after(weights, *answered(answers))
        value, lo, hi = certain.clip(value, value - half, value + half)
        return Prediction(value=value, lo=lo, hi=hi, method=COMBINED)


def most_factors(n_items: int) -> int:
    """Largest number of factors of a bank: a step reads all loadings, and versions store them.

    Models are learned with no more, so their intervals are calibrated for the stored ones.
    """
    return max(min(_MOST_FACTORS, _MOST_NUMBERS // max(n_items, 1)), 1)


def reduced(factors: FloatArray, most: int) -> FloatArray:
    """The `most` largest factors of the same covariance, shape (<= most, n_items)."""
    n_factors, n_items = factors.shape
    if n_factors <= most:
        return factors
    if n_factors < n_items:
        values, vectors = np.linalg.eigh(factors @ factors.T)
        turned: FloatArray = vectors[:, np.argsort(values)[::-1][:most]].T @ factors
        return turned
    values, vectors = np.linalg.eigh(factors.T @ factors)
    order = np.argsort(values)[::-1][:most]
    kept: FloatArray = (vectors[:, order] * np.sqrt(np.maximum(values[order], 0.0))).T
    return kept
