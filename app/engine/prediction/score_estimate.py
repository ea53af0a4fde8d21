"""The score of an examinee: two explanations of its answers, averaged by evidence and doubt.

The first explanation is that the curves hold: what the reference models taught about the items is
true of this examinee, too. The second is that the curves need not hold; then only the sampled
questions are evidence. docs/concepts.md, "Two explanations", has the formulas, assumptions and
figures. The names here are its symbols d, D, L, m, s, f, R, V and B.

The curves say little about an examinee far beyond all reference models. So no interval is much
wider than the interval that the sampled questions give by themselves.

A model may be good or bad at one task alone. So in a test of the whole bank the score of a task
has one more ability under either explanation: the level of its own items.

Sources: Hoeting, Madigan, Raftery & Volinsky (1999), Statistical Science 14, for averages over
models; Dawid (1984), Journal of the Royal Statistical Society A 147, for predictive likelihoods;
Sarndal, Swensson & Wretman (1992), Model Assisted Survey Sampling, for the difference estimator.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import expit

from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.extrapolation import growth
from app.engine.prediction.mixtures import StudentMixture
from app.engine.prediction.p_irt import (
    COMBINED,
    Certain,
    Prediction,
    still_counted,
)
from app.engine.prediction.sample_size import sample_interval
from app.engine.prediction.score_curves import Located, ScoreCurves, freed
from app.engine.state import Belief, Draw, Response, answered

#: Number of reference models that halves the prior doubt, and the least prior doubt: even many
#: reference models do not prove that a new model is like them.
REFERENCES, LEAST_DOUBT = 40.0, 0.4
#: Second explanation: prior variance of its bias, as a multiple of the variance of its estimate.
_BIAS = 1.5
#: Factors on the standard deviation of the first and of the second explanation, whose priors are
#: wider than most examinees need. They make coverage about 98 % on the matrices of
#: `benchmarks/transfer.py`, and at least 90 % where a random 30 % of the questions leaked.
_HELD_WIDTH, _FREE_WIDTH = 0.75, 0.8
#: Prior standard deviations of the level of a task's own items under either explanation, logits. In
#: simulated and real tests of three to twelve tasks, intervals of the tasks then hold for 96 to
#: 98 % of the examinees, and for about 90 % of those that are good at one task alone.
_HELD_LEVEL_SD, _FREE_LEVEL_SD = 0.3, 1.2
#: Degrees of freedom of the logit's error under either explanation. What is known of a score later,
#: an interval alone, takes fewer: see `app.services.results.measured`.
_DEGREES = 8.0
#: With fewer sampled questions their spread is unknown.
LEAST_SAMPLED = 3
#: Least sampled questions that bound the interval, and the bound: so many times their own interval.
LEAST_ALONE, _WIDEST = 5, 1.25
#: Weight of the reference models' variance beside the examinee's own, in answers.
_AS_REFERENCES = 8.0
_LEAST_UNSEEN = 0.2  # least share of a residual that remains after the fit saw its answer
_EDGE = 1e-4  # scores nearer to 0 or 1 are moved here before the logit is taken
_LEAST = 1e-9  # least distance of a score from 0 and 1
_SURE = 1e-6  # standard deviation below which the score counts as known
_LEVELS = np.array([0.5, 0.025, 0.975])
#: Number of answer sets that an estimator remembers: one for each member of a large ranking.
_REMEMBERED = 128


def prior_doubt(n_reference: int) -> float:
    """Prior probability d that an examinee does not follow curves of `n_reference` models."""
    return max(LEAST_DOUBT, REFERENCES / (REFERENCES + n_reference))


@dataclass(frozen=True, eq=False)
class Explanations:
    """Two explanations of answers, and the probability of the second one.

    Attributes:
        curves: Curves of the first explanation, under which they hold.
        free: Curves of the second explanation, which the examinee need not follow.
        prior: Prior probability d of the second explanation; 1 rules the first one out.
    """

    curves: ScoreCurves
    free: ScoreCurves
    prior: float

    @classmethod
    def of(cls, curves: ScoreCurves, prior: float) -> "Explanations":
        """Both explanations, from the curves of the first one."""
        return cls(curves, freed(curves), prior)

    def with_level(
        self, own: BoolArray, kept: IntArray, items: IntArray, scores: FloatArray
    ) -> "Explanations":
        """Explanations of some items with a level of their own; see `ScoreCurves.with_level`."""
        return Explanations(
            self.curves.with_level(own, _HELD_LEVEL_SD, kept, items, scores),
            self.free.with_level(own, _FREE_LEVEL_SD, kept, items, scores),
            self.prior,
        )

    def evidence(self, items: IntArray, scores: FloatArray) -> float:
        """Log likelihood ratio, ln(L' / L), of the second explanation to the first."""
        free, held = (curves.locate(items, scores) for curves in (self.free, self.curves))
        return (free.log_likelihood - held.log_likelihood) / self.overdispersion(items, scores)

    def overdispersion(self, items: IntArray, scores: FloatArray) -> float:
        """Ratio of this examinee's variance about the curves to that of the reference models.

        Mean scores of several runs vary less than scores of one run. The ratio comes from the
        explanation that fits better, and is at most that of scores of 0 and 1.
        """
        dispersion = self.curves.dispersion
        if dispersion == 1.0 or not items.size:
            return 1.0
        ratios = []
        for curves in (self.curves, self.free):
            logits = curves.locate(items, scores).mean @ curves.slopes[:, items]
            expected = expit(logits + curves.intercept[items])
            squares = float(((scores - expected) ** 2).sum())
            ratios.append(squares / float((expected * (1.0 - expected)).sum()) / dispersion)
        n = items.size
        ratio = (_AS_REFERENCES + n * min(ratios)) / (_AS_REFERENCES + n)
        return min(max(ratio, 1.0), 1.0 / dispersion)

    def doubt(self, evidence: float) -> float:
        """Posterior probability D that the curves do not hold, from the log likelihood ratio."""
        if self.prior >= 1.0:
            return 1.0
        return float(expit(math.log(self.prior / (1.0 - self.prior)) + evidence))


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """Estimate of one examinee's score, with the ends of its 95 % interval.

    Attributes:
        doubt: Posterior probability D that the curves do not hold.
        evidence: Log likelihood ratio, ln(L' / L).
        by_curves: Score if the curves hold.
        by_sample: Score if the curves need not hold.
        sampled: Number of scored questions that were sampled at random.
        position: General ability, in standard deviations of the reference models from their mean.
        by_sample_alone: Whether the sampled questions by themselves bound the interval.
    """

    value: float
    lo: float
    hi: float
    doubt: float
    evidence: float
    by_curves: float
    by_sample: float
    sampled: int
    position: float
    by_sample_alone: bool


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """The score under one explanation.

    Attributes:
        curves: Curves of the explanation.
        at: Abilities of the examinee on these curves.
        left: Weights of the items that were not asked, 0 for the others, shape (n_items,).
        expected: Expected score on every item, shape (n_items,).
        variance: Variance of the estimated score.
    """

    curves: ScoreCurves
    at: Located
    left: FloatArray
    expected: FloatArray
    value: float
    variance: float

    @classmethod
    def of(
        cls,
        curves: ScoreCurves,
        weights: FloatArray,
        items: IntArray,
        scores: FloatArray,
        overdispersion: float = 1.0,
    ) -> "Explained":
        """The score after the answers `scores` to `items`."""
        at = curves.locate(items, scores)
        left, expected = weights.copy(), curves.expected(at)
        left[items] = 0.0
        noise = curves.dispersion * float(left**2 @ (expected * (1.0 - expected)))
        value = float(weights[items] @ scores + left @ expected)
        variance = overdispersion * (curves.doubt(at, left, expected) + noise)
        return cls(curves, at, left, expected, value, variance)

    @property
    def extrapolation_factor(self) -> float:
        """Factor f: the farther curves extrapolate, the more they err."""
        return growth(self.at.position)

    def on_logits(self) -> tuple[float, float]:
        """Logit of the score, and the standard deviation of the logit."""
        inner = min(max(self.value, _EDGE), 1.0 - _EDGE)
        return logit_of(inner), self.variance**0.5 / (inner * (1.0 - inner))

    def corrected(self, some: IntArray, scores: FloatArray, counts: FloatArray) -> "Explained":
        """The score with its bias estimated from the sampled questions and taken off.

        Args:
            some: Sampled items, shape (n_sampled,).
            scores: Scores on these items, shape (n_sampled,).
            counts: Share of the unasked items that each sampled item stands for, summing to 1.
        """
        bias, n = _BIAS * self.variance, some.size
        if n < LEAST_SAMPLED:
            return replace(self, variance=self.variance + bias)
        across, expected = self.curves.slopes[:, some], self.expected[some]
        variance = self.curves.dispersion * expected * (1.0 - expected)
        seen = np.einsum("kn,kl,ln->n", across, self.at.covariance, across)
        seen *= expected * (1.0 - expected) / self.curves.dispersion
        residual = (scores - expected) / np.maximum(1.0 - seen, _LEAST_UNSEEN)
        left = float(self.left.sum())
        squares = max(float(counts**2 @ residual**2), float(counts**2 @ variance))
        of_mean = squares * n / (n - 1.0) * left
        seen_bias = float(counts @ residual) * left
        bias = max(bias, seen_bias**2 - of_mean)
        if not bias + of_mean > 0.0:
            return self
        share = bias / (bias + of_mean)
        return replace(
            self,
            value=self.value + share * seen_bias,
            variance=self.variance + bias * (1.0 - share),
        )


@dataclass(frozen=True, eq=False)
class ScoreEstimator:
    """Estimates a score by two explanations; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        explanations: The two explanations.
        weights: Weight of each item in the score, shape (n_items,), summing to 1.
        askable: Mask of the items that tests may ask, shape (n_items,); None means all.
        method: Name of the method of prediction.
        own_level: Whether the items of the score have a level of their own.
    """

    explanations: Explanations
    weights: FloatArray
    askable: BoolArray | None = field(default=None, repr=False)
    method: str = COMBINED
    own_level: bool = False
    _lately: dict[int, tuple[tuple[Response, ...], ScoreReading]] = field(
        init=False, repr=False, default_factory=dict
    )

    def predict(
        self,
        bank: ItemBank,  # noqa: ARG002  # part of the protocol; curves know their items
        responses: Iterable[Response],
        belief: Belief,  # noqa: ARG002  # part of the protocol; theta is not used
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        reading = self.estimate(tuple(responses), exclude)
        return Prediction(value=reading.value, lo=reading.lo, hi=reading.hi, method=self.method)

    def estimate(self, responses: Sequence[Response], exclude: Sequence[int] = ()) -> ScoreReading:
        """Estimate of the score; items in `exclude` do not count.

        Stopping rule, selector, session and comparison ask about the same answers, so the latest
        estimates are remembered by the identity of the tuple of answers.

        Raises:
            InvalidInputError: Every item is excluded.
        """
        if len(exclude):
            return self._estimate(responses, still_counted(self.weights, exclude))
        responses = tuple(responses)
        remembered = self._lately.get(id(responses))
        if remembered is not None and remembered[0] is responses:
            return remembered[1]
        reading = self._estimate(responses, self.weights)
        while len(self._lately) >= _REMEMBERED:
            self._lately.pop(next(iter(self._lately)), None)
        self._lately[id(responses)] = responses, reading
        return reading

    def by_curves(self, responses: Sequence[Response], exclude: Sequence[int] = ()) -> Explained:
        """The score if the curves hold."""
        weights = still_counted(self.weights, exclude)
        return Explained.of(self.explanations.curves, weights, *answered(responses))

    def _estimate(self, responses: Sequence[Response], weights: FloatArray) -> ScoreReading:
        items, scores = answered(responses)
        both, askable = self.explanations, self.askable
        if self.own_level:
            # Items that neither count nor were asked tell nothing.
            kept = np.union1d(np.flatnonzero(self.weights), items)
            both = both.with_level(self.weights > 0.0, kept, items, scores)
            items, weights = np.searchsorted(kept, items), weights[kept]
            askable = None if askable is None else askable[kept]
        certain = Certain.after(weights, items, scores)
        wider = both.overdispersion(items, scores)
        held = Explained.of(both.curves, weights, items, scores, wider)
        draws = [response.draw or Draw(step=1) for response in responses]
        is_sampled = np.array([draw.sampled for draw in draws], dtype=bool) & (weights[items] > 0.0)
        if askable is not None:
            is_sampled &= askable[items]
        sampled = np.array(
            sorted(np.flatnonzero(is_sampled), key=lambda i: draws[i].step), dtype=np.intp
        )
        chances = np.array([draws[i].probability for i in sampled])
        some, counts = items[sampled], _stands_for(weights[items[sampled]], chances)
        free = Explained.of(both.free, weights, items, scores, wider)
        free = free.corrected(some, scores[sampled], counts)
        evidence = both.evidence(items, scores)
        doubt = both.doubt(evidence)
        value, lo, hi = _quantiles(held, free, doubt, certain)
        is_alone = False
        if some.size >= LEAST_ALONE:
            first, last = _by_sample_alone(weights, items, scores, counts, scores[sampled])
            if is_alone := _WIDEST * (last - first) < hi - lo:
                middle, half = (first + last) / 2.0, _WIDEST * (last - first) / 2.0
                value, lo, hi = certain.clip(value, middle - half, middle + half)
        return ScoreReading(
            value=value,
            lo=lo,
            hi=hi,
            doubt=doubt,
            evidence=evidence,
            by_curves=certain.of(held.value),
            by_sample=certain.of(free.value),
            sampled=some.size,
            position=held.at.position,
            by_sample_alone=is_alone,
        )


def _quantiles(
    held: Explained, free: Explained, doubt: float, certain: Certain
) -> tuple[float, float, float]:
    """Median and central 95 % interval of the score's distribution."""
    if min(certain.most - certain.least, max(held.variance, free.variance) ** 0.5) <= _SURE:
        return certain.clip(held.value, held.value, held.value)
    (m, s), (m_free, s_free) = held.on_logits(), free.on_logits()
    middle = np.array([m, m_free])
    spread = np.array([_HELD_WIDTH * held.extrapolation_factor * s, _FREE_WIDTH * s_free])
    first = logit_of(max(certain.least, _LEAST))
    last = logit_of(min(certain.most, 1.0 - _LEAST))
    score = StudentMixture(
        middle[:, None],
        np.maximum(spread, _LEAST)[:, None],
        _DEGREES,
        np.array([1.0 - doubt, doubt]),
    )
    value, lo, hi = expit(np.array(score.quantiles(_LEVELS, first, last))).tolist()
    # Scores move in steps of one item: an end within half a step of a bound is the bound.
    half_item = 0.5 * (certain.most - certain.least) / max(_alike(held.left), 1.0)
    lo = certain.least if lo < certain.least + half_item else lo
    hi = certain.most if hi > certain.most - half_item else hi
    return certain.clip(value, lo, hi)


def _by_sample_alone(
    weights: FloatArray, items: IntArray, scores: FloatArray, counts: FloatArray, seen: FloatArray
) -> tuple[float, float]:
    """Ends of the interval that the sampled questions give without any curve.

    Every asked item counts with its own score. The sampled ones also estimate how many of the
    unasked items are right.

    Args:
        weights: Weight of each item in the score, shape (n_items,).
        items: Asked items, shape (n_asked,).
        scores: Scores on the asked items, shape (n_asked,).
        counts: Share of the unasked items that each sampled item stands for, summing to 1.
        seen: Scores on the sampled items, shape (n_sampled,).
    """
    left = weights.copy()
    left[items] = 0.0
    n_left, of_left = _alike(left), float(left.sum())
    asked = float(weights[items] @ scores)
    if not n_left:
        return asked, asked
    n, mean = 1.0 / float(counts @ counts), float(counts @ seen)
    ends = sample_interval(mean, n, n + n_left)
    lo, hi = ((n + n_left) * end - n * mean for end in ends)
    right = max(math.floor(lo), 0), min(math.ceil(hi), n_left)
    return asked + of_left * right[0] / n_left, asked + of_left * right[1] / n_left


def _stands_for(weights: FloatArray, chances: FloatArray) -> FloatArray:
    """Share of the unasked items that each sampled item stands for, summing to 1.

    An item of weight w that was sampled by now with probability p stands for w (1 / p - 1) of the
    others: an item that was nearly certain to be sampled stands for itself alone.

    Source: Sarndal, Swensson & Wretman (1992), sections 2.8 and 3.6.

    Args:
        weights: Weight of each sampled item, in the order of asking, shape (n_sampled,).
        chances: Probability with which its step chose the item among the open ones.
    """
    n = weights.size
    widths = chances * np.concatenate([[1.0], np.cumprod(1.0 - chances)])[:-1]
    wide = np.sort(widths)[::-1]
    # The m widest items are certain to be sampled; the others are in proportion to their widths.
    rates = (n - np.arange(n)) / np.maximum(1.0 - (np.cumsum(wide) - wide), _LEAST)
    fits = rates * wide <= 1.0
    rate = rates[fits.argmax()] if fits.any() else math.inf
    by_now = np.maximum(rate * widths, _LEAST)
    counts: FloatArray = weights * np.maximum(1.0 / by_now - 1.0, _LEAST)
    return counts / np.sum(counts)


def _alike(weights: FloatArray) -> float:
    """Effective number of items: (sum of weights)^2 / (sum of squared weights); 0 for none."""
    squares = float(weights @ weights)
    return round(float(weights.sum()) ** 2 / squares, 6) if squares > 0.0 else 0.0


def logit_of(score: float) -> float:
    """Log odds of a score between 0 and 1."""
    return math.log(score / (1.0 - score))
