"""Drops items and examinees before a calibration of continuous scores, with reasons."""

from collections import Counter

import numpy as np

from app.calibration.filters import (
    Dropped,
    DropReason,
    Filtered,
    FilterSettings,
    kept_for_score,
    not_connected,
    not_the_whole,
)
from app.calibration.matrix import BoolArray
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable
from app.errors import CalibrationError

_CONFIDENCE = 0.95  # one-sided


def filter_continuous(
    table: ResponseTable, settings: FilterSettings | None = None
) -> Filtered[ResponseTable]:
    """Drop weak examinees first, then items; an item gets the first reason that applies.

    The thresholds are those for right and wrong answers, on the scale [0, 1], with one difference.
    Unless the settings say otherwise, an item's correlation with the rest must be significantly
    below the threshold (one-sided, 5 %) for the item to be dropped: with 8 examinees, many good
    items correlate below 0.

    Args:
        table: Scores in [0, 1]; 1 is best.
        settings: Thresholds; by default those of `FilterSettings`.

    Raises:
        CalibrationError: Fewer than 2 examinees with scores, or no item is left.
    """
    settings = settings or FilterSettings()
    rows, examinees = _filter_examinees(table, settings)
    if rows.sum() < 2:
        raise CalibrationError(
            f"Calibration needs at least 2 examinees (rows) with scores, got {int(rows.sum())}."
        )
    columns, items, constants = filter_items(table, table.scores[rows], settings)
    if not columns.any():
        reasons = Counter(dropped.reason for dropped in items)
        raise CalibrationError(
            f"No item is left: of {len(table.items)} items, "
            + ", ".join(f"{n} were dropped as {reason.value}" for reason, n in reasons.items())
            + f"; {len(table.examinees)} examinees."
        )
    weak: list[Dropped] = []
    if settings.keep_for_score:
        columns, items, weak = kept_for_score(table.items, items)
    silent = rows & np.isnan(table.scores[:, columns]).all(axis=1)
    examinees += _dropped(table.examinees, DropReason.NO_ANSWERS, silent)
    rows &= ~silent
    scores = table.scores[np.ix_(rows, columns)]
    return Filtered(
        matrix=ResponseTable(
            tuple(np.array(table.examinees)[rows].tolist()),
            tuple(np.array(table.items)[columns].tolist()),
            scores,
        ),
        items=tuple(items),
        examinees=tuple(examinees),
        constants=constants,
        score_only=tuple(weak),
        warnings=(
            *not_the_whole(_mean(table.scores[rows], axis=0), columns),
            *not_connected(~np.isnan(scores)),
        ),
    )


def rest_correlations(scores: FloatArray) -> FloatArray:
    """Correlation of each item's score with the mean of the examinee's other scores.

    The item's mean is subtracted from each score, which makes examinees who saw different items
    comparable. NaN where an item has fewer than 3 scores or its scores are all alike.

    Args:
        scores: Shape (n_examinees, n_items), NaN where missing.
    """
    seen = ~np.isnan(scores)
    n = seen.sum(axis=0)
    residual = np.where(seen, scores - _mean(scores, axis=0), 0.0)
    others = np.maximum(seen.sum(axis=1, keepdims=True) - 1, 1)
    rest = np.where(seen, (residual.sum(axis=1, keepdims=True) - residual) / others, 0.0)
    rest = np.where(seen, rest - rest.sum(axis=0) / np.maximum(n, 1), 0.0)
    spread = np.sqrt((residual**2).sum(axis=0) * (rest**2).sum(axis=0))
    usable = (n > 2) & (spread > 1e-12)
    correlation: FloatArray = np.where(
        usable, (residual * rest).sum(axis=0) / np.where(usable, spread, 1.0), np.nan
    )
    return correlation


def _filter_examinees(
    table: ResponseTable, settings: FilterSettings
) -> tuple[BoolArray, list[Dropped]]:
    means = _mean(table.scores, axis=1)
    silent = np.isnan(means)
    low = np.zeros_like(silent)
    if settings.least_percentile is not None and not silent.all():
        # Interpolation would drop the lowest examinee of any small group.
        low = means < np.percentile(means[~silent], settings.least_percentile, method="lower")
    dropped = _dropped(table.examinees, DropReason.NO_ANSWERS, silent)
    return ~(silent | low), dropped + _dropped(table.examinees, DropReason.LOW_SCORE, low, means)


def filter_items(
    table: ResponseTable, scores: FloatArray, settings: FilterSettings
) -> tuple[BoolArray, list[Dropped], dict[str, float]]:
    """Mask of the kept items, the dropped items, and the score of each constant item."""
    means = _mean(scores, axis=0)
    sd = np.sqrt(_mean((scores - means) ** 2, axis=0))
    seen = ~np.isnan(scores)
    highest = np.where(seen, scores, -np.inf).max(axis=0)
    lowest = np.where(seen, scores, np.inf).min(axis=0)
    constant = highest == lowest
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
    keep = np.ones(len(means), dtype=np.bool_)
    dropped = []
    for reason, hit, values in rules:
        dropped += _dropped(table.items, reason, keep & hit, values)
        keep &= ~hit
    if settings.least_point_biserial is not None and keep.any():
        correlation = np.full(len(means), np.nan)
        correlation[keep] = rest_correlations(scores[:, keep])
        n_answers = (~np.isnan(scores)).sum(axis=0)
        weak = settings.too_weak(correlation, n_answers, otherwise=_CONFIDENCE)
        dropped += _dropped(table.items, DropReason.LOW_POINT_BISERIAL, weak, correlation)
        keep &= ~weak
    constants = {table.items[j]: float(means[j]) for j in np.flatnonzero(constant)}
    return keep, dropped, constants


def _dropped(
    names: tuple[str, ...], reason: DropReason, hit: BoolArray, values: FloatArray | None = None
) -> list[Dropped]:
    compared = np.full(len(hit), np.nan) if values is None else values
    return [
        Dropped(names[i], reason, None if np.isnan(compared[i]) else float(compared[i]))
        for i in np.flatnonzero(hit)
    ]


def _mean(scores: FloatArray, axis: int) -> FloatArray:
    """Mean of the scores that are not NaN; NaN without any, but no warning as from NumPy."""
    seen = ~np.isnan(scores)
    n = seen.sum(axis=axis)
    total = np.where(seen, scores, 0.0).sum(axis=axis)
    mean: FloatArray = np.where(n > 0, total / np.maximum(n, 1), np.nan)
    return mean
