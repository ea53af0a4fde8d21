"""How wide intervals of scores that a linear model predicts must be to hold.

Records left out are tested by the form that the others would choose, and predicted by what the
others teach: their errors in standard deviations by the model, by number of items. The 95th
percentile of few is uncertain itself: its logarithm is drawn towards that of normal errors of the
same mean square, the less the more records there are. A record with gaps has the items' means in
their place; what that adds to its real score is known and taken off again.

Source: Vovk (2015), Annals of Mathematics and Artificial Intelligence 74, for cross-conformal
intervals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from app.engine.models.base import FloatArray, IntArray
from app.engine.prediction.score_model import ScoreModel, Target, Widths, short_form
from app.engine.prediction.targets import WHOLE_BANK
from app.errors import CalibrationError

#: Records below which there is no 95 % quantile.
LEAST_EXAMINEES = 20
#: Share of a target from which on a record with gaps says what it has on it.
LEAST_ANSWERED = 0.5
_FOLDS = 10
_SMOOTHED = 2  # neighbouring numbers of items whose quantiles are averaged
_AS_NORMAL = 100.0  # records whose own 95th percentile weighs as much as that of normal errors
_NOTHING_LEFT = 1e-6  # of a target's standard deviation: rounding, where all of it was asked
_LEAST_REAL = 0.5  # errors are not thought smaller than this share of what they seem
#: In standard deviations, where no record tells: the interval is then all that is possible.
_UNKNOWN = 1e6


def require_enough(scores: FloatArray) -> None:
    """Refuse to learn how scores are predicted from too few records.

    Raises:
        CalibrationError: Fewer than 20 examinees.
    """
    if len(scores) < LEAST_EXAMINEES:
        raise CalibrationError(
            f"Predicting scores is learned from at least {LEAST_EXAMINEES} examinees, got "
            f"{len(scores)}."
        )


@dataclass(frozen=True, slots=True, eq=False)
class LeftOut:
    """Errors of each record, predicted from the others, after each number of items.

    Attributes:
        missed: Predicted less real score, shape (n_counts, n_examinees); NaN where the record
            misses most of what the target counts.
        standard: The same in standard deviations by the model; NaN, too, once all of the target is
            asked: nothing is left to be wrong about.
        sampling: Variance of `standard` that gaps in the record make, 0 without gaps.
    """

    missed: FloatArray
    standard: FloatArray
    sampling: FloatArray

    @classmethod
    def unknown(cls, counts: Sequence[int], n_examinees: int) -> "LeftOut":
        """To be filled fold by fold."""
        missed, standard, sampling = np.full((3, len(counts), n_examinees), np.nan)
        return cls(missed, standard, sampling)

    def real_share(self) -> FloatArray:
        """Of the errors' root mean square, what no gaps made, shape (n_counts,)."""
        found = np.ones(len(self.standard))
        for i, row in enumerate(self.standard):
            square = row[~np.isnan(row)] ** 2
            if square.sum() > 0.0:
                left = 1.0 - np.nansum(self.sampling[i]) / square.sum()
                found[i] = np.sqrt(max(left, _LEAST_REAL**2))
        return found

    def mean_error(self, counts: Sequence[int]) -> dict[int, float]:
        """Mean absolute error by number of items, where any record tells it."""
        return {
            count: float(share * np.nanmean(np.abs(row)))
            for count, row, share in zip(counts, self.missed, self.real_share(), strict=True)
            if not np.isnan(row).all()
        }

    def half_widths(self) -> FloatArray:
        """Half-widths that hold for 95 % of new examinees, shape (n_counts,).

        NaN where too few records tell, or nothing is left to predict.
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
    """By target: after the items that are best for it, and after those best for the whole bank.

    Sessions tell of every task, whatever their items were chosen for.

    Args:
        scores: Records in random order, shape (n_examinees, n_items), NaN where there is no answer.
        targets: Weights by name, each of shape (n_items,).
        price: Cost of each item, infinite where it may not be asked, shape (n_items,).
        counts: Numbers of items, rising.
        learn: Makes a score model of records.
    """
    found = {
        name: [
            LeftOut.unknown(counts, len(scores))
            for _ in ({name, WHOLE_BANK} if WHOLE_BANK in targets else {name})
        ]
        for name in targets
    }
    fold = np.arange(len(scores)) % _FOLDS
    for k in range(_FOLDS):
        held = np.flatnonzero(fold == k)
        model = learn(scores[fold != k])
        known = {name: Target(model, weights) for name, weights in targets.items()}
        for made_for, chooser in known.items():
            form = np.array(short_form(chooser, counts[-1], price))
            answers = filled(scores[held], model, form)
            for name, target in known.items():
                if made_for in (name, WHOLE_BANK):
                    # The target's own form first.
                    left_out = found[name][int(made_for != name)]
                    truth, uncertain = recorded_score(scores[held], target)
                    for i, count in enumerate(counts):
                        value, sd = target.predict(form[:count], answers[:, :count])
                        left_out.missed[i, held] = value - truth
                        if sd > _NOTHING_LEFT * target.variance**0.5:
                            left_out.standard[i, held] = (value - truth) / sd
                            left_out.sampling[i, held] = uncertain / sd**2
    return found


def widths(counts: Sequence[int], forms: Sequence[LeftOut]) -> Widths:
    """Half-widths that hold after each of the forms, by number of items.

    There is none at counts that leave nothing to predict: a test of as many items that were chosen
    for another target takes the last one.
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
    """Scores on the items asked; without an answer the item's mean, which says nothing."""
    found = scores[:, asked]
    return np.where(np.isnan(found), model.mean[asked], found)


def recorded_score(scores: FloatArray, target: Target) -> tuple[FloatArray, FloatArray]:
    """What whole records have on a target, and the error variance that their gaps leave in it.

    An item without an answer counts as its mean, moved by how far the record lies above the means
    on the items that it answered: records with gaps answered easier or harder items than others.

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
    """Mean of each value and its neighbours; NaN stays, and counts for nothing."""
    found = values.copy()
    for i in np.flatnonzero(~np.isnan(values)):
        found[i] = np.nanmean(values[max(i - _SMOOTHED, 0) : i + _SMOOTHED + 1])
    return found
