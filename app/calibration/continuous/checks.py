"""What every calibration of continuous scores needs and gives, however its items are found."""

from dataclasses import dataclass

import numpy as np

from app.calibration.continuous.score_scale import ScoreScale
from app.calibration.logistic.expectation import LatentDensity
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError

_BINS = 20
_LEAST_BIN = 200  # answers of a bin, below which its variance is noise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContinuousCalibration:
    """A bank of continuous scores and what is known about it.

    Attributes:
        bank: The items. Their dispersions are those of examinees to come, whose scores scatter
            about curves that are not known exactly; from many examinees that makes no difference.
        se_a: Standard errors of the slopes, shape (n_items,); NaN where they were not estimated.
        se_intercept: Of the intercepts, logits.
        se_b: Of the difficulties, logits.
        se_k: Of the dispersions.
        log_likelihood: Marginal, of the heteroskedastic normal density at the estimates.
        n_parameters: Effective number: a parameter counts as far as the item's own answers, and not
            those to the other items, decide it.
        k_common: The dispersion about which those of the items lie.
        conformance: R^2 of observed against predicted variance; see `conformance`.
        n_examinees: Rows used.
        n_answers: Answers used.
        converged: Nothing moves any more.
        cycles: E-steps taken.
        warnings: What a reader of the numbers should know.
    """

    bank: ItemBank
    se_a: FloatArray
    se_intercept: FloatArray
    se_b: FloatArray
    se_k: FloatArray
    log_likelihood: float
    n_parameters: float
    k_common: float
    conformance: float | None
    n_examinees: int
    n_answers: int
    converged: bool
    cycles: int
    warnings: tuple[str, ...] = ()

    @property
    def aic(self) -> float:
        """Akaike's criterion; lower is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion with the number of examinees; lower is better."""
        return float(self.n_parameters * np.log(self.n_examinees) - 2 * self.log_likelihood)


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """Scores as sums need them.

    Attributes:
        y: Scores, 0 where missing, shape (n_examinees, n_items).
        seen: 1 where answered, same shape.
    """

    y: FloatArray
    seen: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> "Answers":
        """From scores with NaN where missing."""
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
            f"{int(alike.sum())} of {n_items} items have the same score from everybody and no "
            f"parameters, first {table.items[int(alike.argmax())]!r}; filter them out."
        )


def conformance(bank: ItemBank, scores: FloatArray, thetas: FloatArray) -> float | None:
    """R^2 of observed against predicted variance, over answers alike in their mean.

    Answers are sorted by mu and cut into up to 20 equal bins; a bin's mean squared residual is
    compared with the mean of the variances that the model gives these answers. 1 is a model whose
    scatter has the form k mu (1 - mu); 0 or below says that one number would do as well.

    Args:
        bank: Items of continuous scores.
        scores: Shape (n_examinees, n_items), NaN where missing.
        thetas: Of the examinees.

    Returns:
        None with fewer than 600 answers, from which no three bins can be made.
    """
    seen = ~np.isnan(scores)
    mean = bank.expected_score(thetas)
    variance = bank.model.score_variance(bank.parameters, thetas[:, None])
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

    It is what the published model maximises, a proper density, and comparable between banks that
    were calibrated from the same scores.
    """
    mean = bank.expected_score(density.nodes).T
    variance = bank.model.score_variance(bank.parameters, density.nodes[:, None]).T
    variance = np.maximum(variance, 1e-12)
    joint = answers.y @ (mean / variance) - (answers.y**2) @ (0.5 / variance)
    joint -= answers.seen @ (0.5 * (mean**2 / variance + np.log(2 * np.pi * variance)))
    joint += np.log(np.maximum(density.weights, 1e-300))
    top = joint.max(axis=1)
    return float((top + np.log(np.exp(joint - top[:, None]).sum(axis=1))).sum())
