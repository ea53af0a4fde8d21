"""Learns a score model from whole records, and the width of the 95 % intervals around its scores.

With few examinees and many items, the covariance R of the records is shrunk towards its diagonal:
S = (1 - s) R + s diag(R). Cross-validation chooses s, and the widths that make 95 % intervals hold.
It leaves records out: the model of the others chooses a short form and predicts the score of each
left-out record. Errors are measured in the model's standard deviations, by number of items. The
95th percentile of few errors is uncertain, so its logarithm is shrunk towards that of normal errors
with the same mean square, less so with more records. A gap in a record counts as the item's mean;
the error variance that this adds is estimated and subtracted.

Sources: Ledoit & Wolf (2004), Journal of Multivariate Analysis 88, for the shrinkage; Vovk (2015),
Annals of Mathematics and Artificial Intelligence 74, for cross-conformal intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.score_model import (
    ScoreModel,
    Target,
    Widths,
    most_factors,
    reduced,
    short_form,
)
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import CalibrationError

SHRINKAGES = (0.05, 0.1, 0.2, 0.35, 0.6, 0.9)
_CHOOSING_FOLDS = 5
_RANDOM_FORMS, _RANDOM_SHARE = 5, 0.2  # all random forms together weigh as much as the model's own
_CHOOSING_ASKED = (8, 16, 32, 64)
_MAX_EXAMINEES = 1000  # records in the cross-validation; more would hardly change a quantile
_MAX_ASKED = 128
_PSEUDO_ANSWERS, _IGNORANCE = 5.0, 0.25  # weight of the prior variance, which is a fair coin's
#: Least number of records for a 95 % quantile.
LEAST_EXAMINEES = 20
#: A record must answer at least this share of a target's weight to have a score on it.
LEAST_ANSWERED = 0.5
_FOLDS = 10
_SMOOTHED = 2  # quantiles are averaged over this many neighbouring numbers of items on each side
_AS_NORMAL = 100.0  # with this many records their own percentile weighs as much as the normal one
_NOTHING_LEFT = 1e-6  # share of a target's standard deviation that is rounding: all items are asked
_LEAST_REAL = 0.5  # the correction for gaps keeps at least this share of the observed errors
_UNKNOWN = 1e6  # half-width (standard deviations) without usable records: covers every score


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
    if len(scores) < LEAST_EXAMINEES:
        raise CalibrationError(
            f"Predicting scores needs at least {LEAST_EXAMINEES} examinees to learn from, got "
            f"{len(scores)}."
        )
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


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Cross-validation errors of each record after each number of items.

    Attributes:
        missed: Predicted minus recorded score, shape (n_counts, n_examinees); NaN where the record
            answers too little of the target.
        standard: `missed` in standard deviations by the model, same shape; also NaN once every item
            of the target is asked, since nothing is left to predict.
        sampling: Variance of `standard` due to gaps in the record, same shape; 0 without gaps.
    """

    missed: FloatArray
    standard: FloatArray
    sampling: FloatArray

    @classmethod
    def unknown(cls, counts: Sequence[int], n_examinees: int) -> "LeftOut":
        """Errors that are all NaN, to be filled in fold by fold."""
        missed, standard, sampling = np.full((3, len(counts), n_examinees), np.nan)
        return cls(missed, standard, sampling)

    def real_share(self) -> FloatArray:
        """Share of the errors' root mean square that gaps do not explain, shape (n_counts,)."""
        shares = np.ones(len(self.standard))
        for i, row in enumerate(self.standard):
            square = row[~np.isnan(row)] ** 2
            if square.sum() > 0.0:
                left = 1.0 - np.nansum(self.sampling[i]) / square.sum()
                shares[i] = np.sqrt(max(left, _LEAST_REAL**2))
        return shares

    def mean_error(self, counts: Sequence[int]) -> dict[int, float]:
        """Mean absolute error by number of items, for the numbers with at least one error."""
        return {
            count: float(share * np.nanmean(np.abs(row)))
            for count, row, share in zip(counts, self.missed, self.real_share(), strict=True)
            if not np.isnan(row).all()
        }

    def half_widths(self) -> FloatArray:
        """Half-widths that hold for 95 % of new examinees, shape (n_counts,).

        A value is NaN where fewer than 20 records have an error or nothing is left to predict.
        """
        own, normal = np.full((2, len(self.standard)), np.nan)
        n = np.count_nonzero(~np.isnan(self.standard), axis=1)
        for i in np.flatnonzero(n >= LEAST_EXAMINEES):
            size = np.abs(self.standard[i])
            size = size[~np.isnan(size)]
            own[i] = np.quantile(size, min(0.95 * (n[i] + 1) / n[i], 1.0))
            normal[i] = np.sqrt(np.mean(size * size)) * float(stdtrit(n[i] - 1, 0.975))
        real, share = self.real_share(), n / (n + _AS_NORMAL)
        half: FloatArray = _smoothed(real * own) ** share * _smoothed(real * normal) ** (
            1.0 - share
        )
        return half


def errors_left_out(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    price: FloatArray,
    counts: Sequence[int],
    learn: Callable[[FloatArray], ScoreModel],
) -> dict[str, list[LeftOut]]:
    """Cross-validate the predicted score of every target.

    The result has a list for each target: errors after the short form for this target, then after
    the form for the whole bank, because sessions report every tag whatever their own target is.

    Args:
        scores: Records in random order, shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights by name, each of shape (n_items,).
        price: Cost of each item, infinite where it may not be asked, shape (n_items,).
        counts: Numbers of items, rising.
        learn: Fits a score model to records.
    """
    errors = {
        name: [
            LeftOut.unknown(counts, len(scores))
            for _ in ({name, WHOLE_BANK} if WHOLE_BANK in targets else {name})
        ]
        for name in targets
    }
    fold = np.arange(len(scores)) % _FOLDS
    for k in range(_FOLDS):
        held_out = np.flatnonzero(fold == k)
        model = learn(scores[fold != k])
        learned = {name: Target(model, weights) for name, weights in targets.items()}
        for made_for, chooser in learned.items():
            form = np.array(short_form(chooser, counts[-1], price))
            answers = filled(scores[held_out], model, form)
            for name, target in learned.items():
                if made_for in (name, WHOLE_BANK):
                    # The target's own form comes first in its list.
                    left_out = errors[name][int(made_for != name)]
                    truth, variance = recorded_score(scores[held_out], target)
                    for i, count in enumerate(counts):
                        value, sd = target.predict(form[:count], answers[:, :count])
                        left_out.missed[i, held_out] = value - truth
                        if sd > _NOTHING_LEFT * target.variance**0.5:
                            left_out.standard[i, held_out] = (value - truth) / sd
                            left_out.sampling[i, held_out] = variance / sd**2
    return errors


def widths(counts: Sequence[int], forms: Sequence[LeftOut]) -> Widths:
    """The larger half-width of the forms, by number of items.

    A count has none where nothing is left to predict. A test of that length whose items were chosen
    for another target uses the last known half-width.
    """
    half: dict[int, float] = {}
    for form in forms:
        for count, width in zip(counts, form.half_widths().tolist(), strict=True):
            if not np.isnan(width):
                half[count] = max(width, half.get(count, 0.0))
    if not half:
        return Widths((1,), (_UNKNOWN,))
    known = sorted(half)
    return Widths(tuple(known), tuple(half[count] for count in known))


def filled(scores: FloatArray, model: ScoreModel, asked: IntArray) -> FloatArray:
    """Scores on the asked items; a gap gets the item's mean, which carries no information."""
    answers = scores[:, asked]
    return np.where(np.isnan(answers), model.mean[asked], answers)


def recorded_score(scores: FloatArray, target: Target) -> tuple[FloatArray, FloatArray]:
    """Score of each record on a target, and the error variance due to gaps in the record.

    An item without an answer counts as its mean, plus the record's mean difference from the means
    of the items it answered: records with gaps may answer easier or harder items than others.

    Returns:
        Both of shape (n_examinees,), NaN where less than half of the weight was answered.
    """
    counted = target.weights != 0
    weights, mean, some = target.weights[counted], target.model.mean[counted], scores[:, counted]
    answered = ~np.isnan(some)
    size = np.abs(weights)
    seen = np.maximum(answered @ size, 1e-12)
    above = np.where(answered, some - mean, 0.0)
    level = above @ size / seen
    apart = np.where(answered, above - level[:, None], 0.0)
    number = answered.sum(axis=1)
    scatter = (apart**2).sum(axis=1) / np.maximum(number - 1, 1)
    missing = np.where(answered, 0.0, weights)
    spread = (missing**2).sum(axis=1) + missing.sum(axis=1) ** 2 / np.maximum(number, 1)
    score = np.where(answered, some, mean + level[:, None]) @ weights
    enough = seen >= LEAST_ANSWERED * size.sum()
    return np.where(enough, score, np.nan), np.where(enough, scatter * spread, np.nan)


def _smoothed(values: FloatArray) -> FloatArray:
    """Mean of each value and its neighbours; NaN stays NaN and is ignored in the means."""
    smoothed = values.copy()
    for i in np.flatnonzero(~np.isnan(values)):
        smoothed[i] = np.nanmean(values[max(i - _SMOOTHED, 0) : i + _SMOOTHED + 1])
    return smoothed
