"""The result of a calibration. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit

from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters

Report = Callable[[dict[str, Any]], None]
"""Callback with the progress: the phase and its figures."""
_HALF = 0.5  # half a right and half a wrong answer are added, as shares 0 and 1 have no logit


class ExamineeAbilities(NamedTuple):
    """Abilities of the examinees by all their answers, in the matrix's order."""

    theta: FloatArray
    """Weighted likelihood estimates, logits, shape (n_examinees,)."""
    se: FloatArray
    """Their standard errors, NaN where there is no information."""
    score: FloatArray
    """Mean scores over the answers given."""


class Fitted(NamedTuple):
    """The result of a calibration."""

    figures: dict[str, Any]
    """JSON without NaN."""
    columns: dict[str, FloatArray]
    """Parameters (a, intercept, c and d always), errors and fit of the items, NaN where unknown."""
    knowledge: dict[str, Any]
    """Knowledge of the bank version, as JSON."""
    abilities: ExamineeAbilities | None = None
    """Abilities of the examinees, if a report card was asked for."""

    def warned(self, warnings: Sequence[str]) -> "Fitted":
        """Add warnings before the result's own warnings."""
        if not warnings:
            return self
        told = [*warnings, *self.figures["warnings"]]
        return self._replace(figures={**self.figures, "warnings": told})


def replaced(bank: ItemBank, items: Sequence[str], found: ItemParameters) -> ItemBank:
    """Replace the parameters of the items `items`; the other items of the bank keep theirs."""
    at = [bank.index_of(item) for item in items]
    columns = {name: values.copy() for name, values in bank.columns.items()}
    for name, values in columns.items():
        values[at] = getattr(found, name)
    return ItemBank.from_columns(bank.item_ids, columns)


def flat_curves(means: FloatArray, n_answers: IntArray, dispersion: float = 1.0) -> ItemParameters:
    """Curves without a slope, at the mean score.

    These items say too little about ability to measure it, by a filter. An estimated slope would
    reflect chance or the prior. Many such items together would bias the theta of examinees unlike
    the reference models.

    Args:
        means: Mean score of each item, in [0, 1], shape (n_items,).
        n_answers: Number of answers behind each mean, at least one, shape (n_items,).
        dispersion: Dispersion k of continuous scores.

    Returns:
        Parameters in the same order, which are the same on any theta scale.
    """
    share = (means * n_answers + _HALF) / (n_answers + 2 * _HALF)
    zeros, ones = np.zeros(means.size), np.ones(means.size)
    return ItemParameters(zeros, logit(share), zeros, ones, dispersion * ones)


def with_others(
    columns: dict[str, FloatArray], inside: BoolArray, curves: ItemParameters
) -> dict[str, FloatArray]:
    """Columns of all items; columns other than parameters are NaN for uncalibrated items.

    Args:
        columns: Columns of the calibrated items.
        inside: Which of all items are calibrated, shape (n_items,).
        curves: Parameters of the other items.
    """
    found = {name: np.full(inside.size, np.nan) for name in columns}
    for name, values in columns.items():
        found[name][inside] = values
        if name in curves._fields:
            found[name][~inside] = getattr(curves, name)
    return found


def unexamined(m2_missing: str, **fit: object) -> dict[str, Any]:
    """Figures of a model that has no M2, no link and no comparison of families."""
    names = ("m2", "df", "p_value", "rmsea", "rmsea_lo", "rmsea_hi", "m2_items", "m2_examinees")
    return {
        "guessing_sd": None,
        "fit": {
            **dict.fromkeys(names),
            "m2_missing": m2_missing,
            "srmsr": None,
            "srmsr_items": 0,
            "verdict": "unknown",
            **fit,
        },
        "local_dependence": None,
        "comparison": [],
        "link": None,
    }
