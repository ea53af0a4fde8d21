"""Learns a score model from whole records.

With few examinees and many items, the covariance R of the records is shrunk towards its diagonal:
S = (1 - s) R + s diag(R). Cross-validation chooses s, and the widths that make 95 % intervals hold;
see `score_intervals`.

Source: Ledoit & Wolf (2004), Journal of Multivariate Analysis 88, for the shrinkage.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from app.calibration.multidimensional.score_intervals import (
    errors_left_out,
    filled,
    recorded_score,
    require_enough,
    widths,
)
from app.engine.models.base import BoolArray, FloatArray
from app.engine.prediction.score_model import (
    ScoreModel,
    Target,
    most_factors,
    reduced,
    short_form,
)

SHRINKAGES = (0.05, 0.1, 0.2, 0.35, 0.6, 0.9)
_CHOOSING_FOLDS = 5
_RANDOM_FORMS, _RANDOM_SHARE = 5, 0.2  # all random forms together weigh as much as the model's own
_CHOOSING_ASKED = (8, 16, 32, 64)
_MAX_EXAMINEES = 1000  # records in the cross-validation; more would hardly change a quantile
_MAX_ASKED = 128
_PSEUDO_ANSWERS, _IGNORANCE = 5.0, 0.25  # weight of the prior variance, which is a fair coin's


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedScores:
    """A score model and its targets.

    Attributes:
        model: Mean and covariance of the item scores.
        shrinkage: The shrinkage s of the covariance.
        targets: Targets by name, each with calibrated interval widths.
        errors: Mean absolute error of the predicted score in cross-validation, by target and
            number of items asked.
    """

    model: ScoreModel
    shrinkage: float
    targets: Mapping[str, Target]
    errors: Mapping[str, Mapping[int, float]]


def covariance_model(scores: FloatArray, shrinkage: float) -> ScoreModel:
    """Mean and shrunk covariance of records.

    Args:
        scores: Shape (n_examinees, n_items), NaN where there is no answer.
        shrinkage: s in (0, 1]; 1 leaves no covariance between items.
    """
    answered = ~np.isnan(scores)
    seen = answered.sum(axis=0)
    # One extra answer of 0.5 keeps the mean off 0 and 1 where all answers are alike.
    mean = (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0)
    about = np.where(answered, scores - mean, 0.0)
    raw = np.einsum("ij,ij->j", about, about) / np.maximum(seen - 1, 1)
    # Where nearly all of a few records are right, the next examinee is less certain to be right.
    variance = (seen * raw + _PSEUDO_ANSWERS * _IGNORANCE) / (seen + _PSEUDO_ANSWERS)
    # Where answers are missing, fewer pairs enter the covariance: scale it up.
    full = np.sqrt(len(scores) / np.maximum(seen, 1))
    factors = about * full * np.sqrt((1.0 - shrinkage) / max(len(scores) - 1, 1))
    factors = reduced(factors, most_factors(factors.shape[1]))
    noise = np.maximum(variance, raw) - np.einsum("rj,rj->j", factors, factors)
    return ScoreModel(mean=mean, factors=factors, noise=np.maximum(noise, 0.02 * variance))


def learn_scores(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    rng: np.random.Generator,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
) -> LearnedScores:
    """Fit a score model, and calibrate the widths of its targets' intervals.

    Args:
        scores: Records, shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights w by name, each of shape (n_items,).
        rng: Random generator for folds and random forms.
        askable: Mask of the items that tests may ask, shape (n_items,); all by default.
        costs: Cost of each item where tests choose by gain per cost, shape (n_items,).

    Raises:
        CalibrationError: Fewer than 20 examinees.
    """
    require_enough(scores)
    usable = np.ones(scores.shape[1], np.bool_) if askable is None else askable
    price = np.where(usable, 1.0 if costs is None else costs, np.inf)
    counts = _counts(int(usable.sum()))
    order = rng.permutation(len(scores))[:_MAX_EXAMINEES]
    some = scores[order]
    shrinkage = _best_shrinkage(some, targets, price, rng)
    model = covariance_model(scores, shrinkage)
    learned: dict[str, Target] = {}
    errors: dict[str, Mapping[int, float]] = {}
    left_out = errors_left_out(
        some, targets, price, counts, lambda known: covariance_model(known, shrinkage)
    )
    for name, forms in left_out.items():
        learned[name] = Target(model, targets[name], widths(counts, forms))
        errors[name] = forms[0].mean_error(counts)
    return LearnedScores(model=model, shrinkage=shrinkage, targets=learned, errors=errors)


def _best_shrinkage(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    price: FloatArray,
    rng: np.random.Generator,
) -> float:
    """The shrinkage that best predicts the scores of left-out records.

    Tests use the form that the model itself chooses, but this form changes abruptly with the
    shrinkage. Random forms, which are the same for all shrinkages, make the comparison stable.
    """
    positions = np.flatnonzero(np.isfinite(price))
    most = min(_CHOOSING_ASKED[-1], positions.size)
    random_forms = [rng.permutation(positions)[:most] for _ in range(_RANDOM_FORMS)]
    fold = np.arange(len(scores)) % _CHOOSING_FOLDS

    def error(shrinkage: float) -> float:
        total = 0.0
        for k in range(_CHOOSING_FOLDS):
            left_out, model = scores[fold == k], covariance_model(scores[fold != k], shrinkage)
            for weights in targets.values():
                target = Target(model, weights)
                truth, _ = recorded_score(left_out, target)
                own = np.array(short_form(target, most, price))
                for form, share in [(own, 1.0), *((form, _RANDOM_SHARE) for form in random_forms)]:
                    for count in _CHOOSING_ASKED:
                        asked = form[:count]
                        value, _ = target.predict(asked, filled(left_out, model, asked))
                        missed = float(np.nansum(np.abs(value - truth)))
                        total += share * missed / np.sqrt(target.variance)
        return total

    return min(SHRINKAGES, key=error)


def _counts(n_items: int) -> list[int]:
    """Numbers of items after which errors are measured, each about sqrt(2) times the last."""
    most = min(n_items, _MAX_ASKED)
    return sorted({min(round(2 ** (k / 2)), most) for k in range(2, 16)})
