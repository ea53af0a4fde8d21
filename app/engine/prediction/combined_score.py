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
| m, s^2 | score by the model, and its variance by the model |
| f | factor on s, by the distance from those calibrated: what was learned from held-out examinees |
| e = f s t | error of m, t with 8 degrees of freedom: normal of variance f^2 s^2 / l, l gamma |
| B, b^2 | estimate of the error by the draws, and its variance |

Given l, the model's own s^2 is beyond what draws can tell of this examinee's answers, and the rest,
c^2 = f^2 s^2 / l - s^2, is its bias: B is normal with variance c^2 + b^2, and the score with mean
m + B c^2 / (c^2 + b^2). Summed over l, and over one chance more: that the examinee is like no
other, and the bias anything. Answers that surprise the model by z standard deviations raise the
odds of that by exp(z^2 / 2).

What a version of before has learned goes with s by the slopes of the curves, and a t with 5 degrees
of freedom: it predicts as it always did.

Sources: O'Hagan (1979), Journal of the Royal Statistical Society B 41, for heavy tails and
conflict; Zrnic & Candes (2024), arXiv 2403.03208, for model and draws in one estimate.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaincinv, ndtr, stdtrit

from app.engine.bank import ItemBank
from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray
from app.engine.prediction.design_based import Discrepancy, discrepancy
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
_MOST_IGNORANT = 0.95
_POINTS = 32  # of the gamma distribution
_BISECTIONS = 40
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
        weights = still_counted(self.weights, exclude)
        items, scores = answered(responses)
        at = self.curves.locate(items, scores)
        certain = Certain.after(weights, items, scores)
        value, variance = self.by_model(at, weights, items, scores)
        frame = weights > 0.0 if self.askable is None else (weights > 0.0) & self.askable
        drawn = discrepancy(self.curves, at, weights, responses, frame)
        mixture = self._mixture(value, variance, at, drawn)
        middle = float(mixture[0] @ mixture[1])
        middle, lo, hi = certain.clip(middle, *_ends(*mixture))
        return Told(
            value=middle,
            lo=lo,
            hi=hi,
            by_model=certain.of(value),
            model_sd=variance**0.5,
            position=at.position,
            discrepancy=drawn,
            certain=certain,
        )

    def alone(
        self, responses: Sequence[Response], exclude: Sequence[int] = ()
    ) -> tuple[float, float, float]:
        """By the model alone: the score, its variance, and the position of the general ability."""
        weights = still_counted(self.weights, exclude)
        items, scores = answered(responses)
        at = self.curves.locate(items, scores)
        value, variance = self.by_model(at, weights, items, scores)
        certain = Certain.after(weights, items, scores)
        return certain.of(value), variance, at.position

    def by_model(
        self, at: Located, weights: FloatArray, items: IntArray, scores: FloatArray
    ) -> tuple[float, float]:
        """The score by the model alone, and its variance."""
        curves = self.curves
        expected = curves.expected(at)
        left = weights.copy()
        left[items] = 0.0
        value = float(weights[items] @ scores + left @ expected)
        noise = curves.dispersion * float(left**2 @ (expected * (1.0 - expected)))
        return value, curves.doubt(at, left, expected, curved=self.error.curved) + noise

    def _mixture(
        self, value: float, variance: float, at: Located, drawn: Discrepancy | None
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Mass, mean and standard deviation of the score's distribution, each (n_points,)."""
        scale = self.error.at(at.position) ** 2 * variance
        # Once all was asked there is nothing to be ignorant of.
        widest = scale + (IGNORANCE**2 if variance > _SURE**2 else 0.0)
        total = np.append(scale / _scales(self.error.degrees), widest)
        odds = IGNORANT / (1.0 - IGNORANT) * np.exp(0.5 * min(max(at.surprise, 0.0), 6.0) ** 2)
        ignorant = min(float(odds / (1.0 + odds)), _MOST_IGNORANT)
        prior = np.append(np.full(_POINTS, (1.0 - ignorant) / _POINTS), ignorant)
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


@lru_cache(maxsize=2)
def _scales(degrees: float) -> FloatArray:
    """Equally likely values of l, of which the mean is 1, shape (n_points,)."""
    middles = (np.arange(_POINTS) + 0.5) / _POINTS
    found = np.asarray(gammaincinv(degrees / 2.0, middles) * 2.0 / degrees, dtype=np.float64)
    found.flags.writeable = False
    return found


def _ends(mass: FloatArray, mean: FloatArray, sd: FloatArray) -> tuple[float, float]:
    """Central 95 % of a mixture of normals, by bisection of its distribution function."""
    sd = np.maximum(sd, 1e-12)
    target = np.array([0.025, 0.975])
    lo = np.full(2, float((mean - 10.0 * sd).min()))
    hi = np.full(2, float((mean + 10.0 * sd).max()))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (lo + hi)
        below = ndtr((middle[:, None] - mean) / sd) @ mass < target
        lo, hi = np.where(below, middle, lo), np.where(below, hi, middle)
    ends = 0.5 * (lo + hi)
    return float(ends[0]), float(ends[1])
