"""What comes out of a calibration. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit

from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters

Report = Callable[[dict[str, Any]], None]
"""Takes the progress: the phase, and what it has reached."""
_HALF = 0.5  # of an answer, right and wrong: a share of 0 or 1 has no logit


class ExamineeAbilities(NamedTuple):
    """What the examinees' whole records say on the calibrated bank, in the matrix's order."""

    theta: FloatArray
    """Weighted likelihood estimates, logits, shape (n_examinees,)."""
    se: FloatArray
    """Their standard errors, NaN where there is no information."""
    score: FloatArray
    """Mean scores over the answers given."""


class Fitted(NamedTuple):
    """What comes out of a calibration."""

    figures: dict[str, Any]
    """JSON without NaN."""
    columns: dict[str, FloatArray]
    """Of the items, each of shape (n_items,), NaN where unknown; a, intercept, c and d always."""
    knowledge: dict[str, Any]
    """JSON that goes with the bank version into every test on it."""
    abilities: ExamineeAbilities | None = None
    """Of the examinees, where a report card was asked for."""

    def warned(self, warnings: Sequence[str]) -> "Fitted":
        """With more to be said of it, before what it says itself."""
        if not warnings:
            return self
        told = [*warnings, *self.figures["warnings"]]
        return self._replace(figures={**self.figures, "warnings": told})


def replaced(bank: ItemBank, items: Sequence[str], found: ItemParameters) -> ItemBank:
    """The bank with new parameters; items that those left out alone tell about stay as they are."""
    at = [bank.index_of(item) for item in items]
    columns = {name: values.copy() for name, values in bank.columns.items()}
    for name, values in columns.items():
        values[at] = getattr(found, name)
    return ItemBank.from_columns(bank.item_ids, columns)


def flat_curves(means: FloatArray, n_answers: IntArray, dispersion: float = 1.0) -> ItemParameters:
    """Curves without a slope, at the mean score.

    A filter has found that these items say too little of ability to measure it. An estimated slope
    would be chance, or what is thought of slopes beforehand, and where many items have it, those
    together would move the abilities of whoever is unlike those calibrated.

    Args:
        means: Mean score of each item, in [0, 1], shape (n_items,).
        n_answers: Answers that it comes from, at least one, shape (n_items,).
        dispersion: Of scores in between.

    Returns:
        In the same order; the same on any scale.
    """
    share = (means * n_answers + _HALF) / (n_answers + 2 * _HALF)
    zeros, ones = np.zeros(means.size), np.ones(means.size)
    return ItemParameters(zeros, logit(share), zeros, ones, dispersion * ones)


def with_others(
    columns: dict[str, FloatArray], inside: BoolArray, curves: ItemParameters
) -> dict[str, FloatArray]:
    """Columns of all items from those of the calibrated ones; NaN where nothing was examined.

    Args:
        columns: Of the calibrated items.
        inside: Which of all items these are, shape (n_items,).
        curves: Of the others.
    """
    found = {name: np.full(inside.size, np.nan) for name in columns}
    for name, values in columns.items():
        found[name][inside] = values
        if name in curves._fields:
            found[name][~inside] = getattr(curves, name)
    return found


def unexamined(m2_missing: str, **fit: object) -> dict[str, Any]:
    """Figures of a model that has no M2 and is linked, and compared, with nothing."""
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
