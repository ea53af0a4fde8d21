"""The score of an examinee by two explanations of its answers, weighed by the evidence.

One says that the curves hold: what reference models taught of the items is true of this examinee,
too. The other says that they need not; then only sampled questions are to be relied on. Formulas,
symbols, assumptions and figures are in docs/concepts.md, "Two explanations": names here are its d,
D, L, m, s, f, R, V and B.

Of examinees far beyond all reference models the curves know next to nothing: no interval is much
wider than that of the sampled questions by themselves.

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
from app.engine.prediction.mixtures import StudentMixture
from app.engine.prediction.model_error import SCORE, ModelError
from app.engine.prediction.p_irt import (
    COMBINED,
    Certain,
    Prediction,
    still_counted,
)
from app.engine.prediction.sample_size import sample_interval
from app.engine.prediction.score_curves import Located, ScoreCurves, freed
from app.engine.state import Belief, Draw, Response, answered

#: Reference models that are as much evidence for the curves as there is doubt beforehand, and the
#: least doubt: many models tell no more of a new one than that it may be like them.
REFERENCES, LEAST_DOUBT = 40.0, 0.4
#: Of the second explanation: variance of its bias, in those of its estimate, and what its standard
#: deviation is multiplied by, for its prior is wider than most examinees need.
_BIAS, _WIDTH = 1.5, 0.8
#: Sampled questions below which they tell nothing of their own spread.
LEAST_SAMPLED = 3
#: Sampled questions from which on they bound the interval, and how many times theirs it may be.
LEAST_ALONE, _WIDEST = 5, 1.25
#: Answers that the variance of the reference models is worth, beside an examinee's own.
_AS_REFERENCES = 8.0
_LEAST_UNSEEN = 0.2  # share of a residual that is left once the model has seen its answer
_EDGE = 1e-4  # a score nearer to 0 or 1 has the logit of this
_LEAST = 1e-9  # of scores that are told apart from 0 and 1
_SURE = 1e-6  # standard deviation below which nothing is left to be wrong about
_LEVELS = np.array([0.5, 0.025, 0.975])
#: Sets of answers that an estimator remembers: of each member of a large ranking one.
_REMEMBERED = 128


def prior_doubt(n_reference: int) -> float:
    """d: how likely an examinee departs from curves of so many reference models."""
    return max(LEAST_DOUBT, REFERENCES / (REFERENCES + n_reference))


@dataclass(frozen=True, slots=True, eq=False)
class Explanations:
    """Two explanations of answers, and how likely the second one is.

    Attributes:
        curves: The first: they hold.
        prior: d; 1 never believes them.
        free: The second: the examinee need not follow them.
    """

    curves: ScoreCurves
    prior: float
    free: ScoreCurves = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "free", freed(self.curves))

    def evidence(self, responses: Sequence[Response]) -> float:
        """Logarithm of L' / L: how much likelier the answers are if the curves do not hold."""
        items, scores = answered(responses)
        free, held = (each.locate(items, scores) for each in (self.free, self.curves))
        return (free.log_likelihood - held.log_likelihood) / self.overdispersion(items, scores)

    def overdispersion(self, items: IntArray, scores: FloatArray) -> float:
        """How many times the variance about the curves is that of the reference models' scores.

        Scores that are means of several runs vary less than those of one run. The better of both
        explanations tells, and no score varies more than one that is 0 or 1.
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

    def doubt(self, responses: Sequence[Response]) -> float:
        """D: how likely it is, after these answers, that the curves do not hold."""
        return self.weigh(self.evidence(responses))

    def weigh(self, evidence: float) -> float:
        """D, by the evidence."""
        if self.prior >= 1.0:
            return 1.0
        return float(expit(math.log(self.prior / (1.0 - self.prior)) + evidence))


@dataclass(frozen=True, slots=True)
class ScoreReading:
    """What is known of the score of one examinee.

    Attributes:
        value: The score.
        lo: Lower end of the 95 % interval.
        hi: Upper end.
        doubt: D, how likely it is that the curves do not hold.
        evidence: Logarithm of L' / L.
        by_curves: Score if they hold.
        by_sample: Score if they need not.
        sampled: Number of scored questions that were sampled.
        position: Of the general ability, in standard deviations of the reference models.
        by_sample_alone: The interval is bounded by that of the sampled questions by themselves.
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
class _Explained:
    """A score by one explanation.

    Attributes:
        curves: Of the explanation.
        at: Abilities.
        left: What each item counts that was not asked, shape (n_items,).
        expected: Score of every item, shape (n_items,).
        value: The score.
        variance: Of it, by the explanation.
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
    ) -> "_Explained":
        """Once `items` had `scores`."""
        at = curves.locate(items, scores)
        left, expected = weights.copy(), curves.expected(at)
        left[items] = 0.0
        noise = curves.dispersion * float(left**2 @ (expected * (1.0 - expected)))
        value = float(weights[items] @ scores + left @ expected)
        variance = overdispersion * (curves.doubt(at, left, expected) + noise)
        return cls(curves, at, left, expected, value, variance)

    def on_logits(self) -> tuple[float, float]:
        """Logit of the score, and its standard deviation."""
        inner = min(max(self.value, _EDGE), 1.0 - _EDGE)
        return logit_of(inner), self.variance**0.5 / (inner * (1.0 - inner))

    def corrected(self, some: IntArray, scores: FloatArray, counts: FloatArray) -> "_Explained":
        """The same with what the sampled questions say that it gets wrong; see the module.

        Args:
            some: Items that were sampled, shape (n_sampled,).
            scores: Theirs.
            counts: For how much of what is left each of them stands, summing to 1.
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
        explanations: Of the answers.
        weights: What each item counts in the score, shape (n_items,), summing to 1.
        error: How wrong the curves are of those they hold for.
        askable: Mask of the items that tests may ask, shape (n_items,); None means all.
    """

    explanations: Explanations
    weights: FloatArray
    error: ModelError
    askable: BoolArray | None = field(default=None, repr=False)
    _lately: dict[int, tuple[tuple[Response, ...], ScoreReading]] = field(
        init=False, repr=False, default_factory=dict
    )

    @property
    def name(self) -> str:
        """Name in results."""
        return COMBINED

    def predict(
        self,
        bank: ItemBank,  # noqa: ARG002  # the predictors' common face; curves know their items
        responses: Iterable[Response],
        belief: Belief,  # noqa: ARG002  # what answers say of theta is no part of this
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        told = self.estimate(tuple(responses), exclude)
        return Prediction(value=told.value, lo=told.lo, hi=told.hi, method=COMBINED)

    def estimate(self, responses: Sequence[Response], exclude: Sequence[int] = ()) -> ScoreReading:
        """All that the answers say of the score; items in `exclude` do not count.

        Stopping rule, selector, session and comparison ask after the same answers: what the same
        tuple of them said lately is remembered.

        Raises:
            InvalidInputError: Every item is excluded.
        """
        if len(exclude):
            return self._estimate(responses, still_counted(self.weights, exclude))
        responses = tuple(responses)
        known = self._lately.get(id(responses))
        if known is not None and known[0] is responses:
            return known[1]
        told = self._estimate(responses, self.weights)
        while len(self._lately) >= _REMEMBERED:
            self._lately.pop(next(iter(self._lately)), None)
        self._lately[id(responses)] = responses, told
        return told

    def by_curves(
        self, responses: Sequence[Response], exclude: Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """If the curves hold: the score, its variance, and the position."""
        weights = still_counted(self.weights, exclude)
        one = _Explained.of(self.explanations.curves, weights, *answered(responses))
        return one.value, one.variance, one.at.position

    def logit_by_curves(
        self, responses: Sequence[Response], exclude: Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """If the curves hold: the score's logit, its standard deviation, and the position."""
        weights = still_counted(self.weights, exclude)
        one = _Explained.of(self.explanations.curves, weights, *answered(responses))
        return *one.on_logits(), one.at.position

    def _estimate(self, responses: Sequence[Response], weights: FloatArray) -> ScoreReading:
        items, scores = answered(responses)
        certain = Certain.after(weights, items, scores)
        both = self.explanations
        wider = both.overdispersion(items, scores)
        held = _Explained.of(both.curves, weights, items, scores, wider)
        draws = [one.draw or Draw(step=1) for one in responses]
        is_sampled = np.array([draw.sampled for draw in draws], dtype=bool) & (weights[items] > 0.0)
        if self.askable is not None:
            is_sampled &= self.askable[items]
        sampled = np.array(
            sorted(np.flatnonzero(is_sampled), key=lambda i: draws[i].step), dtype=np.intp
        )
        chances = np.array([draws[i].probability for i in sampled])
        some, counts = items[sampled], _stands_for(weights[items[sampled]], chances)
        free = _Explained.of(both.free, weights, items, scores, wider)
        free = free.corrected(some, scores[sampled], counts)
        evidence = both.evidence(responses)
        doubt = both.weigh(evidence)
        value, lo, hi = self._quantiles(held, free, doubt, certain, wider)
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
        self, held: _Explained, free: _Explained, doubt: float, certain: Certain, wider: float
    ) -> tuple[float, float, float]:
        """Median of the score's distribution, and the ends of its central 95 %."""
        if min(certain.most - certain.least, max(held.variance, free.variance) ** 0.5) <= _SURE:
            return certain.clip(held.value, held.value, held.value)
        factor, degrees = self.error.spread_at(held.at.position)
        # That errors are smaller than stated was learned of scores that vary as little as theirs.
        factor = max(factor, 1.0 - (1.0 - factor) / wider)
        (m, s), (m_free, s_free) = held.on_logits(), free.on_logits()
        middle = np.array([m, m_free])[:, None]
        spread = np.maximum(np.array([factor * s, _WIDTH * s_free]), _LEAST)[:, None]
        mass = np.array([1.0 - doubt, doubt])

        first = logit_of(max(certain.least, _LEAST))
        last = logit_of(min(certain.most, 1.0 - _LEAST))
        score = StudentMixture(middle, spread, np.array([degrees, SCORE.degrees])[:, None], mass)
        value, lo, hi = expit(np.array(score.quantiles(_LEVELS, first, last))).tolist()
        # Scores go up by an item at a time: the nearest to an end may be what is just possible.
        half_item = 0.5 * (certain.most - certain.least) / max(_alike(held.left), 1.0)
        lo = certain.least if lo < certain.least + half_item else lo
        hi = certain.most if hi > certain.most - half_item else hi
        return certain.clip(value, lo, hi)


def _by_sample_alone(
    weights: FloatArray, items: IntArray, scores: FloatArray, counts: FloatArray, seen: FloatArray
) -> tuple[float, float]:
    """Ends of the interval by the sampled questions, whatever the curves say.

    All that were asked stand for themselves; the sampled ones tell, too, how many of the rest are
    right.

    Args:
        weights: What each item counts in the score, shape (n_items,).
        items: Asked, shape (n_asked,).
        scores: Theirs.
        counts: For how much of the rest each sampled one stands, summing to 1.
        seen: Scores of the sampled ones.
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
    """For how much of what is left each sampled item stands, summing to 1.

    An item that counts w and was to be sampled by now with the probability p stands for
    w (1 / p - 1) of the others: what was all but certain to be sampled stands for itself alone.

    Source: Sarndal, Swensson & Wretman (1992), sections 2.8 and 3.6.

    Args:
        weights: What each sampled item counts, in the order of asking; shape (n_sampled,).
        chances: With which its step sampled it, of all that were open then.
    """
    n = weights.size
    widths = chances * np.concatenate([[1.0], np.cumprod(1.0 - chances)])[:-1]
    wide = np.sort(widths)[::-1]
    # With the m widest sure to be sampled, the others are in proportion to their widths.
    rates = (n - np.arange(n)) / np.maximum(1.0 - (np.cumsum(wide) - wide), _LEAST)
    fits = rates * wide <= 1.0
    rate = rates[fits.argmax()] if fits.any() else math.inf
    by_now = np.clip(rate * widths, _LEAST, 1.0)
    counts: FloatArray = weights * np.maximum(1.0 / by_now - 1.0, _LEAST)
    return counts / np.sum(counts)


def _alike(weights: FloatArray) -> float:
    """How many items that count alike would leave as much to luck as these; 0 without any."""
    squares = float(weights @ weights)
    return round(float(weights.sum()) ** 2 / squares, 6) if squares > 0.0 else 0.0


def logit_of(score: float) -> float:
    """Logarithm of the odds of a score between 0 and 1."""
    return math.log(score / (1.0 - score))
