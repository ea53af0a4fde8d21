"""Fits score curves to whole records.

An examinee's general ability is the logit of its mean score. Given this ability, penalised
likelihood gives each item a slope and an intercept. The residual of each answer becomes a deviation
of its logit: one Newton step from 0 under a normal prior. The other abilities are the principal
components of these deviations. The fit assumes no population distribution of the abilities, so it
holds beyond the reference models as much as among them; see `app.engine.prediction.score_curves`.
"""

import numpy as np
from scipy.special import expit

from app.calibration.matrix import evenly
from app.calibration.multidimensional.score_model import LEAST_EXAMINEES
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.learned_curves import LearnedCurves, ReferencePopulation
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_model import reduced

#: Abilities beside the general one: one for every 8 examinees, from 4 to 16. Large banks get fewer,
#: at most 50,000 / n_items but at least 4, because each step of a test reads every slope.
_EXAMINEES_EACH, _FEWEST_ABILITIES, _MOST_ABILITIES, _MOST_NUMBERS = 8, 4, 16, 50_000
_MAX_EXAMINEES = 2000  # more would hardly change the principal components
_SLOPE_SD, _INTERCEPT_SD = 0.5, 3.2  # normal priors; that of slopes is about 1: theta is a logit
_DEVIATION_VARIANCE = 4.0  # prior variance of a logit's deviation from the general curve
_SPREAD = 2.0  # ratio of the deviations' variance to what shrinkage leaves of it
_LEAST_SLOPE, _MOST_SLOPE = 0.1, 4.0
_STEPS, _LONGEST = 25, (0.5, 1.0)
_SETTLED = 1e-6  # the fit ends at steps below this
_LEAST_SPREAD = 0.1  # least standard deviation of the general ability (logits), for equal records


def fit_curves(scores: FloatArray, rng: np.random.Generator | None = None) -> ScoreCurves:
    """Fit score curves to records.

    Args:
        scores: Shape (n_examinees, n_items), in [0, 1], NaN where there is no answer.
        rng: Samples the examinees beyond 2,000 of them; None takes evenly spaced rows.
    """
    rows = evenly(np.arange(len(scores)), _MAX_EXAMINEES)
    if rng is not None and len(scores) > _MAX_EXAMINEES:
        rows = np.sort(rng.permutation(len(scores))[:_MAX_EXAMINEES])
    some = scores[rows]
    answered = ~np.isnan(some)
    known = np.where(answered, some, 0.0)
    theta = general_ability(some)
    slope, intercept = _general_curves(known, answered, theta)
    expected = expit(theta[:, None] * slope + intercept)
    variance = expected * (1.0 - expected)
    residual = np.where(answered, known - expected, 0.0)
    binary = bool(np.isin(known, (0.0, 1.0)).all())
    total = float(variance[answered].sum())
    dispersion = 1.0 if binary else min(max(float((residual**2).sum()) / total, 1e-3), 1.0)
    deviation = residual / (variance + dispersion / _DEVIATION_VARIANCE)
    seen = np.maximum(answered.sum(axis=0), 1)
    # The sign of a principal component is arbitrary: fix it, so that every machine agrees.
    factors = reduced(deviation * np.sqrt(_SPREAD / seen), _abilities(*some.shape))
    factors *= np.where(factors.sum(axis=1) < 0.0, -1.0, 1.0)[:, None]
    mean, sd = float(theta.mean()), max(float(theta.std()), _LEAST_SPREAD)
    return ScoreCurves(
        slopes=np.vstack([sd * slope, factors]),
        intercept=intercept + mean * slope,
        dispersion=dispersion,
    )


def general_ability(scores: FloatArray) -> FloatArray:
    """Logit of each examinee's mean score, shape (n_examinees,).

    The mean easiness of the items that an examinee answered, relative to all items, is subtracted.
    """
    answered = ~np.isnan(scores)
    known = np.where(answered, scores, 0.0)
    right = (known.sum(axis=0) + 0.5) / (answered.sum(axis=0) + 1.0)
    ease = np.log(right / (1.0 - right))
    count = answered.sum(axis=1)
    mean = (known.sum(axis=1) + 0.5) / (count + 1.0)
    easier = answered @ ease / np.maximum(count, 1) - ease.mean()
    theta: FloatArray = np.log(mean / (1.0 - mean)) - easier
    return theta


def strongest_first(scores: FloatArray) -> IntArray:
    """Row numbers of the examinees by general ability, the strongest first."""
    order: IntArray = np.argsort(-general_ability(scores), kind="stable")
    return order


def reference_population(scores: FloatArray) -> ReferencePopulation:
    """Distribution of the general ability of the examinees with these records."""
    theta = general_ability(scores)
    mean, sd = float(theta.mean()), max(float(theta.std()), _LEAST_SPREAD)
    quantiles = np.quantile((theta - mean) / sd, np.linspace(0.0, 1.0, 101))
    return ReferencePopulation(
        quantiles=tuple(quantiles.round(4).tolist()), mean=mean, sd=sd, n_items=scores.shape[1]
    )


def _general_curves(
    known: FloatArray, answered: BoolArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Slope and intercept of each item on the general ability, by Newton's method."""
    n_items = known.shape[1]
    slope, intercept = np.ones(n_items), np.zeros(n_items)
    for_slope, for_intercept = _SLOPE_SD**-2, _INTERCEPT_SD**-2
    counted = answered.astype(np.float64)
    for _ in range(_STEPS):
        expected = expit(theta[:, None] * slope + intercept)
        residual = (known - expected) * counted
        weight = expected * (1.0 - expected) * counted
        by_slope = theta @ residual - for_slope * (slope - 1.0)
        by_intercept = residual.sum(axis=0) - for_intercept * intercept
        aa = theta**2 @ weight + for_slope
        bb = weight.sum(axis=0) + for_intercept
        ab = theta @ weight
        determinant = aa * bb - ab**2
        turn = np.clip((bb * by_slope - ab * by_intercept) / determinant, -_LONGEST[0], _LONGEST[0])
        before, slope = slope, np.clip(slope + turn, _LEAST_SLOPE, _MOST_SLOPE)
        move = np.clip((aa * by_intercept - ab * by_slope) / determinant, -_LONGEST[1], _LONGEST[1])
        intercept = intercept + move
        if max(float(np.abs(slope - before).max()), float(np.abs(move).max())) < _SETTLED:
            break
    return slope, intercept


def _abilities(n_examinees: int, n_items: int) -> int:
    number = min(n_examinees // _EXAMINEES_EACH, _MOST_ABILITIES, _MOST_NUMBERS // n_items)
    return max(number, _FEWEST_ABILITIES)


def learn_curves(scores: FloatArray, rng: np.random.Generator) -> LearnedCurves:
    """Fit score curves, and describe the population; with fewer than 20 examinees it is unknown.

    Args:
        scores: Records in [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        rng: Random generator for the choice of examinees.
    """
    return LearnedCurves(
        curves=fit_curves(scores, rng),
        n_reference=len(scores),
        population=reference_population(scores) if len(scores) >= LEAST_EXAMINEES else None,
    )
