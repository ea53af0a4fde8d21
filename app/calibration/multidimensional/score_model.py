"""Learns a score model from whole records, and the width of the 95 % intervals around its scores.

With few examinees and many items, the covariance R of the records is shrunk towards its diagonal:
S = (1 - s) R + s diag(R). The shrinkage s is half of the one with the least expected squared error
of S, since errors of covariances partly cancel in a score, which is a sum. Intervals are as wide as
cross-validation asks for: the model of the other records chooses a short form and predicts the
score of each left-out record. A half-width is the root mean square of these errors, in standard
deviations by the model, times the 97.5 % quantile of Student's t. A gap in a record counts as the
item's mean.

Sources: Schafer & Strimmer (2005), Statistical Applications in Genetics and Molecular Biology 4,
article 32, target D, for the shrinkage.
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

_LEAST_SHRINKAGE, _MOST_SHRINKAGE = 0.02, 0.95
#: Share of the best shrinkage of a covariance that scores take. On seven matrices of 25 to 120
#: models, a third of the answers missing or none, errors are then 1.5 % smaller than with all.
_OF_BEST = 0.5
_MAX_EXAMINEES = 1000  # records in the cross-validation; more would hardly change a width
_MAX_ASKED = 128
_PSEUDO_ANSWERS, _IGNORANCE = 5.0, 0.25  # weight of the prior variance, which is a fair coin's
#: Least number of records that tell how wide intervals must be.
LEAST_EXAMINEES = 20
#: A record must answer at least this share of a target's weight to have a score on it.
LEAST_ANSWERED = 0.5
_FOLDS = 10
_NOTHING_LEFT = 1e-6  # share of a target's standard deviation that is rounding: all items are asked
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
    mean, about, seen = _centred(scores)
    raw = np.einsum("ij,ij->j", about, about) / np.maximum(seen - 1, 1)
    # Where nearly all of a few records are right, the next examinee is less certain to be right.
    variance = (seen * raw + _PSEUDO_ANSWERS * _IGNORANCE) / (seen + _PSEUDO_ANSWERS)
    factors = _balanced(about, seen) * np.sqrt((1.0 - shrinkage) / max(len(scores) - 1, 1))
    factors = reduced(factors, most_factors(factors.shape[1]))
    noise = np.maximum(variance, raw) - np.einsum("rj,rj->j", factors, factors)
    return ScoreModel(mean=mean, factors=factors, noise=np.maximum(noise, 0.02 * variance))


def best_shrinkage(scores: FloatArray) -> float:
    """The shrinkage s of the covariance with the least expected squared error.

    It is the sum of the sampling variances of the covariances between items, divided by the sum of
    their squares. Both come from the products of records, without a matrix of items by items. Gaps
    have shrunk the covariance of n_ij common records to n_ij / sqrt(n_i n_j) of its size already,
    which s makes up for.

    Args:
        scores: Shape (n_examinees, n_items), NaN where there is no answer.

    Source: Schafer & Strimmer (2005), equation 8 and table 2, target D.
    """
    _, about, seen = _centred(scores)
    about, n = _balanced(about, seen), len(scores)
    squares, narrow = about * about, about if n <= about.shape[1] else about.T
    between = np.sum((narrow @ narrow.T) ** 2) / n**2 - np.sum(squares.mean(axis=0) ** 2)
    if n < 2 or not between > 0.0:
        return _MOST_SHRINKAGE
    of_records = (np.sum(squares.sum(axis=1) ** 2) - np.sum(squares**2)) / n
    shrinkage = (of_records - between) / (n - 1) / between
    common = ~np.isnan(scores[:, seen > 0]) / np.sqrt(seen[seen > 0])
    pairs = np.sum(common.sum(axis=1) ** 2) - np.sum(common**2)
    kept = (1.0 - shrinkage) * len(common.T) * (len(common.T) - 1) / pairs
    return float(np.clip(1.0 - kept, _LEAST_SHRINKAGE, _MOST_SHRINKAGE))


def _centred(scores: FloatArray) -> tuple[FloatArray, FloatArray, IntArray]:
    """Mean of each item, scores less the mean (0 at gaps), and number of answers to each item."""
    answered = ~np.isnan(scores)
    seen: IntArray = answered.sum(axis=0)
    # One extra answer of 0.5 keeps the mean off 0 and 1 where all answers are alike.
    mean = (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0)
    return mean, np.where(answered, scores - mean, 0.0), seen


def _balanced(about: FloatArray, seen: IntArray) -> FloatArray:
    """Scores scaled up where answers are missing, as fewer pairs enter the covariance there."""
    balanced: FloatArray = about * np.sqrt(len(about) / np.maximum(seen, 1))
    return balanced


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
        rng: Random generator for folds.
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
    shrinkage = _OF_BEST * best_shrinkage(scores)
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
    """

    missed: FloatArray
    standard: FloatArray

    @classmethod
    def unknown(cls, counts: Sequence[int], n_examinees: int) -> "LeftOut":
        """Errors that are all NaN, to be filled in fold by fold."""
        missed, standard = np.full((2, len(counts), n_examinees), np.nan)
        return cls(missed, standard)

    def mean_error(self, counts: Sequence[int]) -> dict[int, float]:
        """Mean absolute error by number of items, for the numbers with at least one error."""
        return {
            count: float(np.nanmean(np.abs(row)))
            for count, row in zip(counts, self.missed, strict=True)
            if not np.isnan(row).all()
        }

    def half_widths(self) -> FloatArray:
        """Half-widths that hold for 95 % of new examinees, shape (n_counts,).

        A value is NaN where fewer than 20 records have an error or nothing is left to predict.
        """
        half = np.full(len(self.standard), np.nan)
        n = np.count_nonzero(~np.isnan(self.standard), axis=1)
        known = n >= LEAST_EXAMINEES
        squares = np.nanmean(self.standard[known] ** 2, axis=1)
        half[known] = np.sqrt(squares) * stdtrit(n[known] - 1, 0.975)
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
                    truth = recorded_score(scores[held_out], target)
                    for i, count in enumerate(counts):
                        value, sd = target.predict(form[:count], answers[:, :count])
                        left_out.missed[i, held_out] = value - truth
                        if sd > _NOTHING_LEFT * target.variance**0.5:
                            left_out.standard[i, held_out] = (value - truth) / sd
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


def recorded_score(scores: FloatArray, target: Target) -> FloatArray:
    """Score of each record on a target, NaN where less than half of the weight was answered.

    An item without an answer counts as its mean, plus the record's mean difference from the means
    of the items it answered: records with gaps may answer easier or harder items than others.
    """
    counted = target.weights != 0
    weights, mean, some = target.weights[counted], target.model.mean[counted], scores[:, counted]
    answered = ~np.isnan(some)
    size = np.abs(weights)
    seen = np.maximum(answered @ size, 1e-12)
    above = np.where(answered, some - mean, 0.0)
    level = above @ size / seen
    score = np.where(answered, some, mean + level[:, None]) @ weights
    enough = seen >= LEAST_ANSWERED * size.sum()
    return np.where(enough, score, np.nan)
