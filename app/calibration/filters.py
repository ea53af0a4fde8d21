"""Which items and examinees are dropped before a calibration, by which thresholds, and why.

The thresholds are those of ATLAS: Li et al. (2026), Adaptive Testing for LLM Evaluation. They were
published for thousands of examinees and apply to the estimates. With a few dozen examinees, most
correlations below the threshold are there by chance; `point_biserial_confidence` allows for this.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist
from typing import Generic, TypeVar

import numpy as np

from app.calibration.matrix import BLOCK_CELLS, ScoreMatrix
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError, InvalidInputError
from app.printable import percent

Table = TypeVar("Table", ScoreMatrix, ResponseTable)
#: One-sided confidence for continuous scores: with 8 examinees, many good items correlate below 0.
_CONFIDENCE = 0.95
#: With fewer examinees than this, their number is why no item is left.
_LEAST_EXAMINEES = 10
_TOO_FEW = " So few examinees do not tell which items measure ability: record 30 or more."
#: Without a warning, this share of the items may be left out, and the mean may move by this much.
_FEW, _NEAR = 0.05, 0.01


class DropReason(StrEnum):
    """Why an item or an examinee takes no part."""

    NO_ANSWERS = "no_answers"
    CONSTANT = "constant"
    LOW_SPREAD = "low_spread"
    TOO_EASY = "too_easy"
    TOO_HARD = "too_hard"
    LOW_POINT_BISERIAL = "low_point_biserial"
    LOW_SCORE = "low_score"
    FEW_ANSWERS = "few_answers"
    QUARANTINED = "quarantined"
    NO_PRIOR = "no_prior"


#: Reasons for which an item says too little about ability but can still count in scores.
_OF_ABILITY = frozenset(
    {
        DropReason.CONSTANT,
        DropReason.LOW_SPREAD,
        DropReason.TOO_EASY,
        DropReason.TOO_HARD,
        DropReason.LOW_POINT_BISERIAL,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterSettings:
    """Thresholds; None switches a filter off. Constant items never measure ability.

    Attributes:
        least_sd: Items whose scores have a smaller standard deviation are dropped.
        greatest_mean: Items with a larger mean score are dropped.
        least_mean: Items with a smaller mean score are dropped.
        least_point_biserial: Items whose score correlates less with the rest are dropped.
        point_biserial_confidence: One-sided confidence, 0.5 to 0.999, with which a correlation must
            be below the threshold. None means 0.95 for continuous scores; for right and wrong
            answers it compares the estimate itself, which is the published rule.
        least_percentile: Examinees whose share of right answers is below this percentile of all
            examinees are dropped; 0 to 100.
        keep_for_score: Whether items that say too little about ability stay in the bank and count
            in scores. False drops them, which is the published procedure.

    Raises:
        InvalidInputError: A threshold outside its range.
    """

    least_sd: float | None = 0.01
    greatest_mean: float | None = 0.95
    least_mean: float | None = None
    least_point_biserial: float | None = 0.1
    point_biserial_confidence: float | None = None
    least_percentile: float | None = 0.1
    keep_for_score: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("least_sd", 0.0, 0.5),
            ("greatest_mean", 0.0, 1.0),
            ("least_mean", 0.0, 1.0),
            ("least_point_biserial", -1.0, 1.0),
            ("point_biserial_confidence", 0.5, 0.999),
            ("least_percentile", 0.0, 100.0),
        ):
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidInputError(f"{name} must be from {low:g} to {high:g}, got {value}.")

    @classmethod
    def none(cls) -> "FilterSettings":
        """Settings that drop only what cannot be calibrated."""
        return cls(
            least_sd=None, greatest_mean=None, least_point_biserial=None, least_percentile=None
        )

    def too_weak(
        self,
        correlation: FloatArray,
        n_answers: IntArray,
        otherwise: float | None = None,
    ) -> BoolArray:
        """Mask of the items whose correlation with the rest is too low, shape (n_items,).

        A NaN passes, because an unknown correlation is no evidence against the item.

        Args:
            correlation: Correlation of each item with the rest, shape (n_items,).
            n_answers: Number of answers of each item, shape (n_items,); the standard error of a
                correlation of 0 is 1 / sqrt(n_answers - 1).
            otherwise: Confidence if the settings have none; None compares the estimate itself.
        """
        if self.least_point_biserial is None:
            return np.zeros(correlation.shape, np.bool_)
        confidence = self.point_biserial_confidence or otherwise
        errors = 0.0 if confidence is None else NormalDist().inv_cdf(confidence)
        chance = errors / np.sqrt(np.maximum(n_answers - 1, 1))
        weak: BoolArray = correlation < self.least_point_biserial - chance
        return weak


#: Keeps every item that tells something about ability, and no other item.
MEASURING = replace(FilterSettings.none(), keep_for_score=False)


@dataclass(frozen=True, slots=True)
class Dropped:
    """An item or examinee that takes no part, or an item that counts in scores only."""

    name: str
    reason: DropReason
    value: float | None
    """The value that was compared with the threshold: sd, mean, correlation or score."""


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Filtered(Generic[Table]):
    """The filtered answers, and everything that was dropped.

    Attributes:
        items: Dropped items; constant ones are among them unless they are kept for the score.
        score_only: Items of the matrix that a filter would drop; they say little about ability,
            but are asked and predicted for the score.
        constants: Score that everybody got, by constant item; such an item adds a known constant
            to a predicted score.
        warnings: Effects of the dropped items on predicted scores, and groups without a link.
    """

    matrix: Table
    items: tuple[Dropped, ...]
    examinees: tuple[Dropped, ...]
    constants: dict[str, float]
    score_only: tuple[Dropped, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[DropReason, int]:
        """Number of items and examinees dropped for each reason."""
        return dict(Counter(dropped.reason for dropped in (*self.items, *self.examinees)))

    def require_two(self, n_items: int) -> None:
        """Refuse fewer than two items to estimate ability from, and say why others are not used.

        Raises:
            CalibrationError: There are fewer.
        """
        if n_items < 2:
            reasons = Counter(item.reason for item in (*self.items, *self.score_only))
            aside = ", ".join(f"{n} {reason.replace('_', ' ')}" for reason, n in reasons.items())
            raise CalibrationError(
                f"Calibration needs at least 2 items (columns), got {n_items}"
                + (f"; set aside: {aside}." if aside else ".")
            )


def apply_filters(table: Table, settings: FilterSettings | None = None) -> Filtered[Table]:
    """Drop weak examinees first, then items; an item gets the first reason that applies.

    The thresholds are the same for right and wrong answers and for continuous scores in [0, 1]. For
    the latter, unless the settings say otherwise, an item's correlation with the rest must be
    significantly below the threshold (one-sided, 5 %) for the item to be dropped.

    Raises:
        CalibrationError: Fewer than two examinees, or no item passes the filters.
    """
    settings = settings or FilterSettings()
    rows, examinees = _filter_examinees(table, settings)
    taking_part = table.select(examinees=rows)
    columns, items, constants = filter_items(taking_part, settings)
    weak: list[Dropped] = []
    if not columns.any() or not rows.any():
        reasons = Counter(dropped.reason for dropped in items)
        too_few = _TOO_FEW if table.n_examinees < _LEAST_EXAMINEES else ""
        raise CalibrationError(
            f"No item is left: of {table.n_items} items, "
            + ", ".join(f"{n} were dropped as {reason.value}" for reason, n in reasons.items())
            + f"; {table.n_examinees} examinees.{too_few}"
        )
    if settings.keep_for_score:
        weak = [item for item in items if item.reason in _OF_ABILITY]
        items = [item for item in items if item.reason not in _OF_ABILITY]
        columns = ~np.isin(table.items, [item.name for item in items])
    kept = taking_part.select(items=columns)
    silent = kept.answers_per_examinee() == 0
    examinees += dropped_for(DropReason.NO_ANSWERS, kept.examinees, silent)
    kept = kept.select(examinees=~silent)
    on_scores = _not_the_whole(taking_part.item_means(), columns)
    return Filtered(
        matrix=kept,
        items=tuple(items),
        examinees=tuple(examinees),
        constants=constants,
        score_only=tuple(weak),
        warnings=on_scores + _not_connected(kept.answered),
    )


def filter_items(
    table: Table, settings: FilterSettings
) -> tuple[BoolArray, list[Dropped], dict[str, float]]:
    """Mask of the kept items, the dropped items, and the score of each constant item."""
    means, seen, n_answers = table.item_means(), table.answered, table.answers_per_item()
    if isinstance(table, ScoreMatrix):
        confidence = None
        constant = (means == 0) | (means == 1)
        sd = np.sqrt(means * (1 - means))
    else:
        confidence = _CONFIDENCE
        highest = np.where(seen, table.scores, -np.inf).max(axis=0)
        constant = highest == np.where(seen, table.scores, np.inf).min(axis=0)
        squares = np.where(seen, (table.scores - means) ** 2, 0.0).sum(axis=0)
        sd = np.sqrt(squares / np.maximum(n_answers, 1))
    # These come before the correlation filter, because dropped items must not enter the rest score.
    rules: list[tuple[DropReason, BoolArray, FloatArray]] = [
        (DropReason.NO_ANSWERS, np.isnan(means), np.full_like(means, np.nan)),
        (DropReason.CONSTANT, constant, means),
    ]
    if settings.least_sd is not None:
        rules.append((DropReason.LOW_SPREAD, sd < settings.least_sd, sd))
    if settings.greatest_mean is not None:
        rules.append((DropReason.TOO_EASY, means > settings.greatest_mean, means))
    if settings.least_mean is not None:
        rules.append((DropReason.TOO_HARD, means < settings.least_mean, means))
    keep = np.ones(table.n_items, dtype=np.bool_)
    dropped: list[Dropped] = []
    for reason, hit, values in rules:
        dropped += dropped_for(reason, table.items, keep & hit, values)
        keep &= ~hit
    if settings.least_point_biserial is not None and keep.any():
        correlation = np.full(table.n_items, np.nan)
        correlation[keep] = rest_correlations(table.select(items=keep))
        weak = settings.too_weak(correlation, n_answers, confidence)
        dropped += dropped_for(DropReason.LOW_POINT_BISERIAL, table.items, weak, correlation)
        keep &= ~weak
    constants = {table.items[j]: float(means[j]) for j in np.flatnonzero(constant)}
    return keep, dropped, constants


def _not_the_whole(item_means: FloatArray, kept: BoolArray) -> tuple[str, ...]:
    """A warning where the mean score on the kept items may differ from that on all items.

    Dropped items are no random sample: they correlate little with the rest, or hardly anybody fails
    them. A score predicted on the kept items may be far from the score on the whole benchmark.
    `keep_for_score` keeps every item with answers, constant ones too.
    """
    known = ~np.isnan(item_means)
    n, left_out = int(known.sum()), int((known & ~kept).sum())
    if not left_out or not kept.any():
        return ()
    whole, rest = float(item_means[known].mean()), float(item_means[kept].mean())
    if left_out <= _FEW * n and abs(whole - rest) < _NEAR:
        return ()
    return (
        f"Scores predicted on this bank cover {n - left_out:,} items, not all {n:,}: models "
        f"score {percent(whole, 1)} on all and {percent(rest, 1)} on these. To count the others "
        "too, keep them for the score (--keep-for-score; over REST `filters.keep_for_score`).",
    )


def _not_connected(answered: BoolArray) -> tuple[str, ...]:
    """A warning where some examinees share no item with the others, not even through others.

    Nothing but the prior then joins the scales of the two groups' items.
    """
    grown, group = np.arange(len(answered)) == 0, np.zeros(len(answered), dtype=bool)
    while grown.sum() > group.sum():
        group = grown
        grown = answered[:, answered[group].any(axis=0)].any(axis=1)
    if group.all():
        return ()
    n_apart = min(group.sum(), (~group).sum())
    return (
        f"{n_apart:,} of {group.size:,} examinees share no item with the others, not even through "
        "further examinees. Difficulties of their items compare with those of the other items only "
        "if these groups are equally able.",
    )


def rest_correlations(table: Table) -> FloatArray:
    """Correlation of each item's score with the mean of the examinee's other scores.

    For scores of 0 and 1 it is the point biserial. The item's mean is subtracted from each score,
    which makes examinees who saw different items comparable. The result, shape (n_items,), is NaN
    where an item is constant or has fewer than 3 answers.
    """
    means = np.nan_to_num(table.item_means())
    sums = np.zeros((6, table.n_items))
    n_blocks = max(math.ceil(table.scores.size / BLOCK_CELLS), 1)
    for rows in np.array_split(np.arange(table.n_examinees), n_blocks):
        apart = table.answers(rows) - means
        seen = ~np.isnan(apart)
        given, residual = seen.astype(np.float64), np.where(seen, apart, 0.0)
        others = np.maximum(given.sum(axis=1, keepdims=True) - 1, 1)
        rest = (residual.sum(axis=1, keepdims=True) - residual) / others * given
        for k, term in enumerate((given, residual, rest, residual**2, rest**2, residual * rest)):
            sums[k] += term.sum(axis=0)
    n, x, y, xx, yy, xy = sums
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = xy - x * y / n
        spread = np.sqrt(np.maximum(xx - x * x / n, 0) * np.maximum(yy - y * y / n, 0))
        usable = (n > 2) & (spread > 1e-12)
        correlation: FloatArray = np.where(usable, covariance / spread, np.nan)
    return correlation


def _filter_examinees(
    table: ScoreMatrix | ResponseTable, settings: FilterSettings
) -> tuple[BoolArray, list[Dropped]]:
    if isinstance(table, ScoreMatrix):
        table.require_two_examinees()
    means = table.examinee_means()
    silent = np.isnan(means)
    low = np.zeros_like(silent)
    if settings.least_percentile is not None and not silent.all():
        # Interpolation would drop the lowest examinee of any small group.
        low = means < np.percentile(means[~silent], settings.least_percentile, method="lower")
    kept = ~(silent | low)
    if isinstance(table, ResponseTable) and kept.sum() < 2:
        raise CalibrationError(
            f"Calibration needs at least 2 examinees (rows) with scores, got {int(kept.sum())}."
        )
    dropped = dropped_for(DropReason.NO_ANSWERS, table.examinees, silent)
    return kept, dropped + dropped_for(DropReason.LOW_SCORE, table.examinees, low, means)


def dropped_for(
    reason: DropReason,
    names: tuple[str, ...],
    hit: BoolArray,
    values: FloatArray | IntArray | None = None,
) -> list[Dropped]:
    """An entry for each of the names that is `hit`, with the value that was compared."""
    compared = np.full(len(hit), np.nan) if values is None else values
    return [
        Dropped(names[i], reason, None if np.isnan(compared[i]) else float(compared[i]))
        for i in np.flatnonzero(hit)
    ]
