"""Continuous scores: their scale, the checks and results of a calibration, and measures of fit."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.calibration.estimation import Estimation
from app.calibration.logistic.expectation import LatentDensity
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, FieldProblem, InvalidInputError

_MAX_PROBLEMS = 20
_BINS = 20
_LEAST_BIN = 200  # the variance in a bin with fewer answers is mostly noise


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """Range of scores, and which end is better.

    Attributes:
        lo: Lowest possible score.
        hi: Highest possible score.
        lower_is_better: Whether `lo` is the best score.

    Raises:
        InvalidInputError: `lo` is not below `hi`, or one of them is not finite.
    """

    lo: float = 0.0
    hi: float = 1.0
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite([self.lo, self.hi]).all() and self.lo < self.hi):
            raise InvalidInputError(
                f"A scale of scores needs lo < hi, both finite, got {self.lo:g} and {self.hi:g}."
            )

    def unit(
        self, scores: FloatArray, examinees: Sequence[str], items: Sequence[str]
    ) -> FloatArray:
        """Scores rescaled to run from 0, the worst, to 1, the best; NaN stays NaN.

        Raises:
            InvalidInputError: Scores off the scale; up to 20 are listed by row and column.
        """
        off = (scores < self.lo) | (scores > self.hi)
        if off.any():
            places = np.argwhere(off)
            i, j = places[0]
            more = f" ({len(places)} such scores)" if len(places) > 1 else ""
            raise InvalidInputError(
                f"Expected scores from {self.lo:g} to {self.hi:g}, got {scores[i, j]:g} for "
                f"examinee {examinees[i]!r} (row {i + 1}), item {items[j]!r} (column {j + 1})"
                f"{more}.",
                problems=[
                    FieldProblem(f"/{examinees[i]}/{items[j]}", f"score {scores[i, j]:g}")
                    for i, j in places[:_MAX_PROBLEMS]
                ],
            )
        share: FloatArray = (scores - self.lo) / (self.hi - self.lo)
        return 1 - share if self.lower_is_better else share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContinuousCalibration(Estimation):
    """A calibrated bank of continuous scores, with its uncertainty and fit.

    The log-likelihood is that of `log_likelihood`. A parameter counts by the share that the item's
    own answers have in its estimate.

    Attributes:
        bank: The items. Their dispersions include the error of the estimated curves, as scores of
            new examinees do; with many examinees this makes no difference.
        se_a: Standard errors of the slopes, shape (n_items,), as those below; NaN where slopes are
            not estimated.
        conformance: R^2 of observed against predicted variance; see `conformance`.
    """

    bank: ItemBank
    se_a: FloatArray
    se_intercept: FloatArray
    se_b: FloatArray
    se_k: FloatArray
    k_common: float
    conformance: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Scores with zeros in place of missing ones, so that sums can be matrix products.

    Attributes:
        y: Scores, 0 where missing, shape (n_examinees, n_items).
        seen: 1 where answered, same shape.
    """

    y: FloatArray
    seen: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> "Answers":
        """Make answers from scores with NaN where missing."""
        missing = np.isnan(scores)
        return cls(np.where(missing, 0.0, scores), (~missing).astype(np.float64))


def require_calibratable(table: ResponseTable) -> None:
    """Refuse a table from which no item parameter can be estimated.

    Raises:
        InvalidInputError: A score outside [0, 1].
        CalibrationError: Fewer than 2 examinees or items, an item whose scores are all alike, or an
            examinee without answers.
    """
    n_examinees, n_items = table.scores.shape
    ScoreScale().unit(table.scores, table.examinees, table.items)
    if n_examinees < 2 or n_items < 2:
        raise CalibrationError(
            f"Calibration needs at least 2 examinees (rows) and 2 items (columns), got "
            f"{n_examinees} and {n_items}."
        )
    seen = ~np.isnan(table.scores)
    for names, empty, what in (
        (table.items, ~seen.any(axis=0), "item"),
        (table.examinees, ~seen.any(axis=1), "examinee"),
    ):
        if empty.any():
            first = names[int(empty.argmax())]
            raise CalibrationError(f"{int(empty.sum())} {what}s have no scores, first {first!r}.")
    alike = np.nanmax(table.scores, axis=0) == np.nanmin(table.scores, axis=0)
    if alike.any():
        raise CalibrationError(
            f"{int(alike.sum())} of {n_items} items have the same score from everybody and "
            f"cannot be calibrated, first {table.items[int(alike.argmax())]!r}; filter them out."
        )


def conformance(bank: ItemBank, scores: FloatArray, thetas: FloatArray) -> float | None:
    """R^2 of observed against predicted variance, over bins of answers with similar means.

    Answers are sorted by mu and cut into at most 20 equal bins. A bin's mean squared residual is
    compared with its mean variance by the model. 1 means that the variance is k mu (1 - mu); 0 or
    below means that a constant variance would fit as well. It is None with fewer than 600 answers,
    which make fewer than three bins.
    """
    seen = ~np.isnan(scores)
    mean = bank.expected_score(thetas)
    variance = bank.model.score_moments(bank.parameters, thetas[:, None])[1]
    share = ((mean - bank.c) / (bank.d - bank.c))[seen]
    n_bins = min(_BINS, len(share) // _LEAST_BIN)
    if n_bins < 3:
        return None
    bins = np.array_split(np.argsort(share, kind="stable"), n_bins)
    squares = ((scores - mean) ** 2)[seen]
    observed = np.array([squares[of_bin].mean() for of_bin in bins])
    predicted = np.array([variance[seen][of_bin].mean() for of_bin in bins])
    total = ((observed - observed.mean()) ** 2).sum()
    return float(1 - ((observed - predicted) ** 2).sum() / total) if total > 0 else None


def log_likelihood(answers: Answers, bank: ItemBank, density: LatentDensity) -> float:
    """Marginal log-likelihood of the heteroskedastic normal density.

    The published model maximises it. It is a proper density, so it can be compared between banks
    that are calibrated from the same scores.
    """
    mean = bank.expected_score(density.nodes).T
    variance = bank.model.score_moments(bank.parameters, density.nodes[:, None])[1].T
    variance = np.maximum(variance, 1e-12)
    joint = answers.y @ (mean / variance) - (answers.y**2) @ (0.5 / variance)
    joint -= answers.seen @ (0.5 * (mean**2 / variance + np.log(2 * np.pi * variance)))
    joint += np.log(np.maximum(density.weights, 1e-300))
    return float(np.logaddexp.reduce(joint, axis=1).sum())
