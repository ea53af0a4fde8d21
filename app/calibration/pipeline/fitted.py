"""What comes out of a calibration. Pure."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray, ItemParameters

Report = Callable[[dict[str, Any]], None]
"""Takes the progress: the phase, and what it has reached."""


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
