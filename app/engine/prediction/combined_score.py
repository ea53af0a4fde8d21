"""The predicted score that holds for examinees unlike those calibrated: model and draws combined.

The model, `app.engine.prediction.score_curves`, predicts the score with a variance of its own. How
wrong it is beyond that was measured on examinees held out of the calibration, the strongest among
them: its error is taken to be Student's t, whose scale grows with the distance from those
calibrated. Items drawn by lot tell of that error directly, `app.engine.prediction.design_based`,
with a variance that is known. By Bayes' rule each is weighed by what is left to know: draws that
agree with the model leave it nearly alone, and draws that are far from it take over, for the tails
of the t are heavy.

| symbol | meaning |
|---|---|
| m, s^2 | logit of the score by the model, and its variance by the model |
| f | factor on s, by the distance from those calibrated: what was learned from held-out examinees |
| e = f s t | error of m, t with 8 degrees of freedom, with fewer the less is known of f at that |
| | distance: normal of variance f^2 s^2 / l, l gamma |
| c^2 / (c^2 + s^2) | share of an error's variance that is bias: c^2 = f^2 s^2 / l - s^2 |
| B, b^2 | estimate of the bias by the draws, in scores, and its variance |

Errors are of logits: an examinee who was lucky is put where the score's curve is flat, and by the
slope there hardly anything is open, least of all how far down the truth may be. On the scale of
logits the curve is nearly straight, and errors are alike wherever an examinee stands. In scores an
interval is then the longer towards the middle, and never reaches beyond what is possible. Otherwise
a test that stops at a narrow interval stops for who was lucky.

The model's own s^2 is beyond what draws can tell of this examinee's answers, and the rest is bias:
given the score, and l, B is normal about its share of the error. Summed over l, and over one chance
more: that the examinee is like no other, and the bias anything. Answers that surprise the model by
z standard deviations raise the odds of that by exp(z^2 / 2). The score is the median of what then
is known of all scores that the answers leave possible.

A version of before has learned errors of the score itself, and predicts as it always did: by a
mixture of normals, cut to what is possible.

Sources: O'Hagan (1979), Journal of the Royal Statistical Society B 41, for heavy tails and
conflict; Zrnic & Candes (2024), arXiv 2403.03208, for model and draws in one estimate.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, gammaincinv, stdtrit

from app.engine.bank import ItemBank
from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray
from app.engine.prediction.densities import quantiles
from app.engine.prediction.design_based import Discrepancy, discrepancy
from app.engine.prediction.mixtures import mixture_interval
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.p_irt import (
    COMBINED,
    DESIGN,
    Certain,
    Prediction,
    answered,
    still_counted,
)
from app.engine.prediction.placing import Placing
from app.engine.prediction.score_curves import Located, ScoreCurves
from app.engine.state import Belief, Response

if TYPE_CHECKING:
    from typing_extensions import override
else:  # Python has it from 3.12 on, and the engine loads nothing but numpy and special functions.

    def override(method):
        """Leave the method as it is."""
        return method


#: Of examinees like no other, of whom the model knows nothing: their share, unless their answers
#: speak for more, and the standard deviation of its bias about them.
IGNORANT, IGNORANCE = 0.01, 0.2
#: No more than that in logits: so far apart they are where any score is as likely as another.
_ANYTHING = math.pi / math.sqrt(3.0)
_MOST_IGNORANT = 0.95
_POINTS = 32  # of the gamma distribution
_EDGE = 1e-4  # a score nearer to 0 or 1 has the logit of this
_LEAST = 1e-9  # of scores that are told apart from 0 and 1
_SURE = 1e-6  # standard deviation below which nothing is left to be wrong about


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedCurves:
    """What records taught about scores on a bank, for examinees like theirs and unlike them.

    Attributes:
        curves: Of the bank's items.
        errors: How wrong they are about each target, by its name; "all" is the whole bank.
        population: Quantiles of the general ability of those whom it was learned from, evenly
            spaced, in their standard deviations; empty where unknown.
    """

    curves: ScoreCurves
    errors: Mapping[str, ModelError]
    population: tuple[float, ...] = ()

    @property
    def placing(self) -> Placing | None:
        """Places examinees among those learned from; None where it is not known who they were."""
        if not self.population:
            return None
        return Placing(curves=self.curves, population=self.population)

    def error_of(self, target: str) -> ModelError:
        """How wrong the curves are about a target; of one not tried, as about the whole bank."""
        return self.errors.get(target) or self.errors.get("all") or ModelError()


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of the score of one examinee.

    Attributes:
        value: Predicted score.
        lo: Lower end of the 95 % interval.
        hi: Upper end.
        by_model: Score by the model alone.
        model_sd: Its standard deviation, by the model alone.
        position: Of the general ability, in standard deviations of those calibrated.
        discrepancy: What items drawn by lot say of the model; None where too few were.
        certain: What the answers leave possible.
    """

    value: float
    lo: float
    hi: float
    by_model: float
    model_sd: float
    position: float
    discrepancy: Discrepancy | None
    certain: Certain


@dataclass(frozen=True, slots=True, eq=False)
class _ByModel:
    """What the curves alone say of an examinee's score.

    Attributes:
        curves: These.
        at: Abilities.
        weights: What each item counts in the score, shape (n_items,).
        left: The same of those not asked, 0 of the others.
        expected: Score of every item, shape (n_items,).
        value: The score.
        certain: What the answers leave possible.
    """

    curves: ScoreCurves
    at: Located
    weights: FloatArray
    left: FloatArray
    expected: FloatArray
    value: float
    certain: Certain

    @classmethod
    def of(
        cls, curves: ScoreCurves, weights: FloatArray, items: IntArray, scores: FloatArray
    ) -> "_ByModel":
        """Once `items` had `scores`."""
        at = curves.locate(items, scores)
        left, expected = weights.copy(), curves.expected(at)
        left[items] = 0.0
        value = float(weights[items] @ scores + left @ expected)
        certain = Certain.after(weights, items, scores)
        return cls(curves, at, weights, left, expected, value, certain)

    def variance(self, *, curved: bool) -> float:
        """Of the score; see `ScoreCurves.doubt`."""
        left, expected = self.left, self.expected
        noise = self.curves.dispersion * float(left**2 @ (expected * (1.0 - expected)))
        return self.curves.doubt(self.at, left, expected, curved=curved) + noise

    def on_logits(self) -> tuple[float, float]:
        """The score, with a logit, and the variance of that logit."""
        inner = min(max(self.value, _EDGE), 1.0 - _EDGE)
        return inner, self.variance(curved=False) / (inner * (1.0 - inner)) ** 2


@dataclass(frozen=True, eq=False)
class CombinedScore:
    """Predicts a score by curves and draws; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        curves: The model.
        weights: What each item counts in the score, shape (n_items,), summing to 1.
        error: How wrong the model is.
        askable: Mask of the items that tests may ask, shape (n_items,); None means all.
    """

    curves: ScoreCurves
    weights: FloatArray
    error: ModelError
    askable: BoolArray | None = field(default=None, repr=False)

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
        told = self.told(list(responses), exclude)
        return Prediction(value=told.value, lo=told.lo, hi=told.hi, method=self.name)

    def told(self, responses: Sequence[Response], exclude: Sequence[int] = ()) -> Told:
        """All that the answers say of the score; items in `exclude` do not count.

        Raises:
            InvalidInputError: Every item is excluded.
        """
        model = self._by_model(responses, exclude)
        at, weights, certain = model.at, model.weights, model.certain
        variance = model.variance(curved=self.error.curved)
        frame = weights > 0.0 if self.askable is None else (weights > 0.0) & self.askable
        drawn = discrepancy(self.curves, at, weights, responses, frame)
        if self.error.of_logits:
            middle, lo, hi = self._by_logits(model, drawn)
        else:
            mixture = self._mixture(model.value, variance, at, drawn)
            middle = float(mixture[0] @ mixture[1])
            (below,), (above,) = mixture_interval(*(part[None, :] for part in mixture))
            middle, lo, hi = certain.clip(middle, float(below), float(above))
        return Told(
            value=middle,
            lo=lo,
            hi=hi,
            by_model=certain.of(model.value),
            model_sd=variance**0.5,
            position=at.position,
            discrepancy=drawn,
            certain=certain,
        )

    def alone(
        self, responses: Sequence[Response], exclude: Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """By the model alone: the score, its variance, and the position of the general ability."""
        model = self._by_model(responses, exclude)
        variance = model.variance(curved=self.error.curved)
        return model.certain.of(model.value), variance, model.at.position

    def logit_alone(
        self, responses: Sequence[Response], exclude: Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """By the model alone: the score's logit, its standard deviation, and the position."""
        model = self._by_model(responses, exclude)
        inner, variance = model.on_logits()
        return logit_of(inner), variance**0.5, model.at.position

    def _by_model(self, responses: Sequence[Response], exclude: Sequence[int]) -> "_ByModel":
        weights = still_counted(self.weights, exclude)
        items, scores = answered(responses)
        return _ByModel.of(self.curves, weights, items, scores)

    def _by_logits(
        self, model: "_ByModel", drawn: Discrepancy | None
    ) -> tuple[float, float, float]:
        """Median of the score's distribution, and the ends of its central 95 %."""
        certain, (inner, variance) = model.certain, model.on_logits()
        slope, middle = inner * (1.0 - inner), logit_of(inner)
        if min(certain.most - certain.least, variance**0.5 * slope) <= _SURE:
            return certain.clip(model.value, model.value, model.value)
        total, mass = self._totals(model.at, variance, min(IGNORANCE / slope, _ANYTHING))
        log_prior = np.log(mass / np.sqrt(total))[:, None]
        total = total[:, None]
        bias = np.maximum(1.0 - variance / total, 0.0)

        def log_density(logits: FloatArray) -> FloatArray:
            """Of each part, shape (n_parts, n_logits), but for a constant."""
            found: FloatArray = log_prior - 0.5 * (logits - middle) ** 2 / total
            if drawn is not None and drawn.variance > 0.0:
                spread = bias * (1.0 - bias) * total * slope**2 + drawn.variance
                off = drawn.value - bias * (expit(logits) - inner)
                found -= 0.5 * (off**2 / spread + np.log(spread))
            return found

        possible = logit_of(max(certain.least, _LEAST)), logit_of(min(certain.most, 1.0 - _LEAST))
        found = quantiles(
            log_density, possible, about=middle, sd=float(total[_POINTS // 2, 0]) ** 0.5
        )
        lo, value, hi = (float(expit(one)) for one in found)
        # Scores go up by an item at a time: the nearest to an end may be what is just possible.
        n_open = int(np.count_nonzero(model.left))
        half = 0.5 * (certain.most - certain.least) / max(n_open, 1)
        lo = certain.least if lo < certain.least + half else lo
        hi = certain.most if hi > certain.most - half else hi
        return certain.clip(value, lo, hi)

    def _totals(
        self, at: Located, variance: float, ignorance: float
    ) -> tuple[FloatArray, FloatArray]:
        """Variances that the error may have, and the mass of each; the last is ignorance."""
        factor, degrees = self.error.spread_at(at.position)
        scale = factor**2 * variance
        # Once all was asked there is nothing to be ignorant of.
        widest = scale + (ignorance**2 if variance > _SURE**2 else 0.0)
        odds = IGNORANT / (1.0 - IGNORANT) * np.exp(0.5 * min(max(at.surprise, 0.0), 6.0) ** 2)
        ignorant = min(float(odds / (1.0 + odds)), _MOST_IGNORANT)
        mass = np.append(np.full(_POINTS, (1.0 - ignorant) / _POINTS), ignorant)
        return np.append(scale / _scales(degrees), widest), mass

    def _mixture(
        self, value: float, variance: float, at: Located, drawn: Discrepancy | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mass, mean and standard deviation of the score's distribution, each (n_points,)."""
        total, prior = self._totals(at, variance, IGNORANCE)
        if drawn is None or drawn.variance <= 0.0:
            return prior, np.full(total.size, value), np.sqrt(total)
        bias = np.maximum(total - variance, 0.0)
        both = bias + drawn.variance
        log_mass = np.log(prior) - 0.5 * (np.log(both) + drawn.value**2 / both)
        mass = np.exp(log_mass - log_mass.max())
        share = bias / both
        left = np.minimum(total, variance) + share * drawn.variance
        return mass / mass.sum(), value + share * drawn.value, np.sqrt(left)


@dataclass(frozen=True, eq=False)
class DesignScore(CombinedScore):
    """Predicts by the draws alone: the model's score plus what they say it gets wrong.

    It assumes nothing of the model; in return its intervals are as wide as those of so many random
    items, or somewhat narrower. Where too few items were drawn by lot the interval is all that the
    answers leave possible.
    """

    @property
    @override
    def name(self) -> str:
        """Name in results."""
        return DESIGN

    @override
    def told(self, responses: Sequence[Response], exclude: Sequence[int] = ()) -> Told:
        """See `CombinedScore.told`."""
        told = super().told(responses, exclude)
        drawn = told.discrepancy
        if drawn is None:
            value, half = told.by_model, 1.0
        else:
            value = told.by_model + drawn.value
            half = float(stdtrit(drawn.draws - 1, 0.975)) * drawn.variance**0.5
        middle, lo, hi = told.certain.clip(value, value - half, value + half)
        return replace(told, value=middle, lo=lo, hi=hi)


@lru_cache(maxsize=64)
def _scales(degrees: float) -> FloatArray:
    """Equally likely values of l, of which the mean is 1, shape (n_points,)."""
    middles = (np.arange(_POINTS) + 0.5) / _POINTS
    found = np.asarray(gammaincinv(degrees / 2.0, middles) * 2.0 / degrees, dtype=np.float64)
    found.flags.writeable = False
    return found


def logit_of(score: float) -> float:
    """Logarithm of the odds of a score between 0 and 1."""
    return math.log(score / (1.0 - score))
