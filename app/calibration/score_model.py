"""Learns a score model from whole records, and how wide its intervals must be.

Few examinees, many items: the covariance of the records is shrunk towards one without any
association, S = (1 - s) R + s diag(R). How far, and how wide intervals must be to hold, comes from
cross-validation: records left out are tested by the form that the others would choose, and
predicted by what the others teach. Widths depend on how many items were asked, since a form chosen
from few records promises too much exactly where it was chosen hardest.

Sources: Ledoit & Wolf (2004), Journal of Multivariate Analysis 88, for the shrinkage; Vovk (2015),
Annals of Mathematics and Artificial Intelligence 74, for cross-conformal intervals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.index import BoolArray
from app.engine.models.base import FloatArray, IntArray
from app.engine.score_model import (
    MOST_FACTORS,
    ScoreModel,
    Target,
    Widths,
    reduced,
    short_form,
)
from app.engine.selection.design import WHOLE_BANK
from app.errors import CalibrationError

SHRINKAGES = (0.05, 0.1, 0.2, 0.35, 0.6, 0.9)
#: Records below which there is no 95 % quantile.
LEAST_EXAMINEES = 20
_FOLDS = 10
_CHOOSING_FOLDS = 5
_RANDOM_FORMS, _RANDOM_SHARE = 5, 0.2  # as many random forms as weigh like the own one
_CHOOSING_ASKED = (8, 16, 32, 64)
_MAX_EXAMINEES = 1000  # records of a cross-validation; more would not change a quantile much
_MAX_ASKED = 128
_PSEUDO_ANSWERS, _IGNORANCE = 5.0, 0.25  # prior variance of a score: of a fair coin
_LEAST_ANSWERED = 0.5  # share of a target from which on a record with gaps says what it has on it
_NOTHING_LEFT = 1e-6  # of a target's standard deviation: all of it is asked
_SMOOTHED = 2  # neighbouring numbers of items whose errors are read together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedScores:
    """A score model for its targets.

    Attributes:
        model: Mean and covariance of the scores.
        shrinkage: s.
        targets: By name, each with calibrated widths.
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
        shrinkage: s in (0, 1]: 1 leaves no association between items.
    """
    answered = ~np.isnan(scores)
    seen = answered.sum(axis=0)
    # One answer's worth of "half right" keeps an item finite that all, or nobody, got right.
    mean = (np.nansum(scores, axis=0) + 0.5) / (seen + 1.0)
    about = np.where(answered, scores - mean, 0.0)
    raw = np.einsum("ij,ij->j", about, about) / np.maximum(seen - 1, 1)
    # Items that nearly all of few records got right are not that certain for the next examinee.
    variance = (seen * raw + _PSEUDO_ANSWERS * _IGNORANCE) / (seen + _PSEUDO_ANSWERS)
    # Pairs are seen less often where answers are missing.
    full = np.sqrt(len(scores) / np.maximum(seen, 1))
    factors = about * full * np.sqrt((1.0 - shrinkage) / max(len(scores) - 1, 1))
    factors = reduced(factors, min(factors.shape[1], MOST_FACTORS))
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
    """Learn a score model, and the widths of its targets' intervals.

    Args:
        scores: Records, shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights w by name, each of shape (n_items,).
        rng: Deals the folds.
        askable: Mask of the items that tests may ask, shape (n_items,); all by default.
        costs: Of the items where tests choose by gain per cost, shape (n_items,).

    Raises:
        CalibrationError: Fewer than 20 examinees.
    """
    if len(scores) < LEAST_EXAMINEES:
        raise CalibrationError(
            f"Predicting scores is learned from at least {LEAST_EXAMINEES} examinees, got "
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
    for name, forms in _left_out(some, targets, price, counts, shrinkage).items():
        own = forms[0]
        learned[name] = Target(model, targets[name], _widths(counts, forms))
        errors[name] = {
            count: float(np.nanmean(np.abs(row)))
            for count, row in zip(counts, own.missed, strict=True)
            if not np.isnan(row).all()  # no record answered enough of the target
        }
    return LearnedScores(model=model, shrinkage=shrinkage, targets=learned, errors=errors)


def _best_shrinkage(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    price: FloatArray,
    rng: np.random.Generator,
) -> float:
    """The shrinkage that predicts records left out best.

    The form that the model itself would choose is what counts, but it jumps from shrinkage to
    shrinkage; random forms make the comparison steady.
    """
    positions = np.flatnonzero(np.isfinite(price))
    most = min(_CHOOSING_ASKED[-1], positions.size)
    random_forms = [rng.permutation(positions)[:most] for _ in range(_RANDOM_FORMS)]
    fold = np.arange(len(scores)) % _CHOOSING_FOLDS

    def error(shrinkage: float) -> float:
        total = 0.0
        for k in range(_CHOOSING_FOLDS):
            held, model = scores[fold == k], covariance_model(scores[fold != k], shrinkage)
            for weights in targets.values():
                target = Target(model, weights)
                truth = _truth_of(held, target)
                own = np.array(short_form(target, most, price))
                for form, share in [(own, 1.0), *((form, _RANDOM_SHARE) for form in random_forms)]:
                    for count in _CHOOSING_ASKED:
                        asked = form[:count]
                        value, _ = target.predict(asked, _filled(held, model, asked))
                        missed = float(np.nansum(np.abs(value - truth)))
                        total += share * missed / np.sqrt(target.variance)
        return total

    return min(SHRINKAGES, key=error)


def _filled(scores: FloatArray, model: ScoreModel, asked: IntArray) -> FloatArray:
    """Scores on the items asked; without an answer the item's mean, which says nothing."""
    found = scores[:, asked]
    return np.where(np.isnan(found), model.mean[asked], found)


def _truth_of(scores: FloatArray, target: Target) -> FloatArray:
    """What records of the whole bank have on a target; see `_truth`."""
    counted = target.weights != 0
    return _truth(scores[:, counted], target.weights[counted], target.model.mean[counted])


def _truth(scores: FloatArray, weights: FloatArray, mean: FloatArray) -> FloatArray:
    """What records have on a target, all of whose items these are.

    An item without an answer counts as its mean, moved by how far the record lies above the means
    on the items that it answered: records with gaps answered easier or harder items than others.

    Returns:
        Shape (n_examinees,), NaN where less than half of the weight was answered.
    """
    answered = ~np.isnan(scores)
    size = np.abs(weights)
    share = answered @ size / size.sum()
    above = np.where(answered, scores - mean, 0.0) @ size / np.maximum(answered @ size, 1e-12)
    filled = np.where(answered, scores, mean + above[:, None])
    return np.where(share < _LEAST_ANSWERED, np.nan, filled @ weights)


@dataclass(frozen=True, slots=True, eq=False)
class _LeftOut:
    """Errors of each record, predicted from the others, after each number of items.

    Attributes:
        missed: Predicted less real score, shape (n_counts, n_examinees); NaN where the record
            misses most of what the target counts.
        standard: The same in standard deviations by the model; NaN, too, once all of the target is
            asked: nothing is left to be wrong about.
    """

    missed: FloatArray
    standard: FloatArray

    @classmethod
    def unknown(cls, counts: Sequence[int], n_examinees: int) -> "_LeftOut":
        """To be filled fold by fold."""
        missed, standard = np.full((2, len(counts), n_examinees), np.nan)
        return cls(missed, standard)


def _left_out(
    scores: FloatArray,
    targets: Mapping[str, FloatArray],
    price: FloatArray,
    counts: Sequence[int],
    shrinkage: float,
) -> dict[str, list[_LeftOut]]:
    """By target: after the items that are best for it, and after those best for the whole bank.

    Sessions tell of every task, whatever their items were chosen for.
    """
    found = {
        name: [
            _LeftOut.unknown(counts, len(scores))
            for _ in ({name, WHOLE_BANK} if WHOLE_BANK in targets else {name})
        ]
        for name in targets
    }
    fold = np.arange(len(scores)) % _FOLDS
    for k in range(_FOLDS):
        held = np.flatnonzero(fold == k)
        model = covariance_model(scores[fold != k], shrinkage)
        known = {name: Target(model, weights) for name, weights in targets.items()}
        best = {name: short_form(target, counts[-1], price) for name, target in known.items()}
        for name, target in known.items():
            truth = _truth_of(scores[held], target)
            nothing_left = _NOTHING_LEFT * np.sqrt(target.variance)
            # The target's own form first.
            forms = [best[name], *(best[WHOLE_BANK] for _ in found[name][1:])]
            for form, left_out in zip(forms, found[name], strict=True):
                for i, count in enumerate(counts):
                    asked = np.array(form[:count])
                    value, sd = target.predict(asked, _filled(scores[held], model, asked))
                    left_out.missed[i, held] = value - truth
                    if sd > nothing_left:
                        left_out.standard[i, held] = (value - truth) / sd
    return found


def _widths(counts: Sequence[int], forms: Sequence[_LeftOut]) -> Widths:
    """Half-widths that 95 % of the records left out keep after each of the forms.

    Smoothed over neighbouring counts. There is none at counts that leave nothing to predict: a test
    of as many items that were chosen for another target takes the last one.
    """
    half: dict[int, float] = {}
    for i, count in enumerate(counts):
        for form in forms:
            # Errors of one record at neighbouring counts are hardly independent: its rank counts
            # once.
            n = int(np.count_nonzero(~np.isnan(form.standard[i])))
            if not n:
                continue
            near = np.abs(form.standard[max(i - _SMOOTHED, 0) : i + _SMOOTHED + 1])
            level = min(0.95 * (n + 1) / n, 1.0)
            kept = float(np.quantile(near[~np.isnan(near)], level))
            half[count] = max(kept, half.get(count, 0.0))
    return Widths(tuple(half), tuple(half.values())) if half else Widths()


def _counts(n_items: int) -> list[int]:
    """Numbers of items at which errors are looked at: a factor sqrt(2) apart."""
    most = min(n_items, _MAX_ASKED)
    return sorted({min(round(2 ** (k / 2)), most) for k in range(2, 16)})
