"""Which items tell most at a theta, without looking at the whole bank.

Theta is cut into narrow cells. For each cell that is visited the index keeps the items with the
largest *upper bounds* of information over the cell, largest first. A query evaluates the true
information from the top of that list and stops as soon as the best value found cannot be beaten by
the next bound; only when the list runs out does it look at the whole bank. The choice is the one
that brute force makes, ties included.

The bounds are true because the information of an item has one mode, by `ResponseModel.peak`: over a
cell the maximum is at one of its ends, or at the mode if that lies inside.
"""

import bisect
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.models.base import BoolArray, ItemParameters

#: Cell width in logits. A power of two, so that cell bounds are exact. Bounds of an item with
#: slope 4 lie within some 6 % of its information.
CELL_WIDTH = 1 / 64
#: Items listed per cell; a cell then costs about 50 kB, and 500 cells span -4 to 4 logits.
LISTED = 512
#: Items evaluated, besides those asked, before bounds are looked at: for so few, numpy's time is
#: that of its calls.
FIRST_LOOK = 24
#: Beyond this theta nothing is listed: brute force.
THETA_LIMIT = 64.0
#: Room for rounding between a bound and the information it bounds.
RELATIVE_SLACK = 1e-9
ABSOLUTE_SLACK = 1e-300


@dataclass(frozen=True, slots=True)
class _Cell:
    """Items by falling upper bound of their information over one cell of theta."""

    items: list[int]
    parameters: ItemParameters
    negated_bounds: list[float]


class InformationIndex:
    """Finds the items of a bank with most information at a theta.

    Cells are filled when first visited (one pass over the bank each), so that creating an index
    costs little. It holds no state of any test: one index serves all tests of its bank.
    """

    def __init__(self, bank: ItemBank) -> None:
        self.bank = bank
        self._cells: dict[int, _Cell] = {}
        self._peak = bank.model.peak(bank.parameters)
        largest_z = np.abs(bank.a) * THETA_LIMIT + np.abs(bank.intercept)
        # z is off by its last digits, and log I changes at most twice as fast as z.
        rounding = np.minimum(4.0 * np.finfo(np.float64).eps * largest_z, 700.0)
        self._slack = (1.0 + RELATIVE_SLACK) * np.exp(rounding)

    def best(
        self,
        theta: float,
        *,
        count: int = 1,
        asked: Collection[int] = (),
        active: BoolArray | None = None,
    ) -> list[ItemIndex]:
        """The `count` items with most information at `theta`, best first.

        Args:
            theta: Ability in logits.
            count: How many items are wanted, at least 1.
            asked: Positions that may not be returned.
            active: Mask of the items that may be returned, shape (n_items,); None means all.

        Returns:
            Positions by falling information, equal values by rising position; fewer than
            `count` when no more items are left.
        """
        if abs(theta) < THETA_LIMIT:
            cell = self._cell(math.floor(theta / CELL_WIDTH))
            listed = len(cell.items)
            # In a test that has settled, the items asked are the ones at the top.
            reach = min(FIRST_LOOK + 2 * count + len(asked), listed)
            while True:
                found = self._look(cell, reach, theta, asked, active)
                # Sorting would be most of the cost of finding just one.
                found = sorted(found)[:count] if count > 1 else found and [min(found)]
                kept = found[-1][0] if len(found) == count else math.inf
                # An equal bound may still win: the tie goes to the lower position.
                needed = bisect.bisect_right(cell.negated_bounds, kept)
                if needed <= reach and needed < listed:
                    return [ItemIndex(item) for _, item in found]
                if reach == listed:
                    break
                reach = needed
        allowed = self.bank.open_items(asked, active)
        return largest(self.bank.information(theta), allowed, count)

    def _look(
        self,
        cell: _Cell,
        reach: int,
        theta: float,
        asked: Collection[int],
        active: BoolArray | None,
    ) -> list[tuple[float, int]]:
        """(-information, position) of those of the first `reach` items that may be returned."""
        head = cell.parameters.take(slice(reach))
        values = np.negative(self.bank.model.information(head, theta)).tolist()
        found = [pair for pair in zip(values, cell.items, strict=False) if pair[1] not in asked]
        if active is not None:
            found = [pair for pair in found if active[pair[1]]]
        return found

    def _cell(self, number: int) -> _Cell:
        cell = self._cells.get(number)
        if cell is None:
            bank = self.bank
            low, high = number * CELL_WIDTH, (number + 1) * CELL_WIDTH
            z_low, z_high = (bank.a * theta + bank.intercept for theta in (low, high))
            with np.errstate(over="ignore"):
                bounds = np.where(
                    (z_low - self._peak.z) * (z_high - self._peak.z) <= 0.0,
                    self._peak.information,
                    np.maximum(bank.information(low), bank.information(high)),
                )
                bounds = bounds * self._slack + ABSOLUTE_SLACK
            listed = np.argpartition(-bounds, min(LISTED, bounds.size) - 1)[:LISTED]
            listed = listed[np.argsort(-bounds[listed])]
            cell = _Cell(
                items=listed.tolist(),
                parameters=bank.parameters.take(listed),
                negated_bounds=(-bounds[listed]).tolist(),
            )
            self._cells[number] = cell
        return cell


@lru_cache(maxsize=16)
def index_of(bank: ItemBank) -> InformationIndex:
    """The index of a bank, shared by all tests on it."""
    return InformationIndex(bank)


def largest(values: FloatArray, allowed: BoolArray, count: int) -> list[ItemIndex]:
    """Positions of the `count` largest allowed values: falling value, ties by rising position."""
    if count == 1:
        best = int(np.where(allowed, values, -np.inf).argmax())
        return [ItemIndex(best)] if allowed[best] else []
    positions = np.flatnonzero(allowed)
    kept = values[positions]
    if positions.size > count:
        threshold = np.partition(kept, positions.size - count)[positions.size - count]
        positions, kept = positions[kept >= threshold], kept[kept >= threshold]
    order = np.argsort(-kept, kind="stable")[:count]
    return [ItemIndex(item) for item in positions[order].tolist()]
