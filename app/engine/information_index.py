"""Find the most informative items at a theta without a pass over the whole bank.

Theta is cut into narrow cells. For each visited cell the index keeps the items with the largest
*upper bounds* of information over the cell, largest first. A query evaluates the true information
from the top of that list. It stops as soon as the next bound is below the best value. Only when the
list is exhausted does it evaluate the whole bank. The result equals that of brute force, ties
included.

The bounds are valid because the information of an item has one mode, by `ResponseModel.peak`: over
a cell the maximum is at one of the ends, or at the mode if that lies inside.
"""

import bisect
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.models.base import BoolArray, ItemParameters

#: Cell width in logits. It is a power of two, so that the cells' ends are exact. For an item with
#: slope 4 the bound exceeds its information by some 6 % at most.
CELL_WIDTH = 1 / 64
#: Items listed per cell; a cell then takes about 50 kB, and 500 cells span -4 to 4 logits.
LISTED = 512
#: Items evaluated before bounds are checked, in addition to the asked ones. For so few items
#: numpy's time is mostly the overhead of its calls.
FIRST_LOOK = 24
#: Beyond this theta there are no cells, and a query is brute force.
THETA_LIMIT = 64.0
#: Tolerance for rounding errors between a bound and the information.
RELATIVE_SLACK = 1e-9
ABSOLUTE_SLACK = 1e-300


@dataclass(frozen=True, slots=True)
class _Cell:
    """Items of one cell of theta, by falling upper bound of their information."""

    items: list[int]
    parameters: ItemParameters
    negated_bounds: list[float]


class InformationIndex:
    """Finds the most informative items of a bank at a theta.

    A cell is filled when it is first visited, by one pass over the bank, so that creating an index
    is cheap. It holds no state of any test: one index serves all tests of its bank.
    """

    def __init__(self, bank: ItemBank) -> None:
        self.bank = bank
        self._cells: dict[int, _Cell] = {}
        self._peak = bank.model.peak(bank.parameters)
        largest_z = np.abs(bank.a) * THETA_LIMIT + np.abs(bank.intercept)
        # z has rounding errors in its last digits; log I changes at most twice as fast as z.
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
        """The `count` most informative items at `theta`, best first; fewer if no more are left.

        Equal ones are in the order of their positions. Items that were `asked`, or are outside of
        the mask `active`, shape (n_items,), are left out; None means all.
        """
        if abs(theta) < THETA_LIMIT:
            cell = self._cell(math.floor(theta / CELL_WIDTH))
            listed = len(cell.items)
            # Once theta has settled, the items asked are those at the top of the list.
            reach = min(FIRST_LOOK + 2 * count + len(asked), listed)
            while True:
                ranked = self._look(cell, reach, theta, asked, active)
                # For a single item, sorting would take most of the time.
                ranked = sorted(ranked)[:count] if count > 1 else ranked and [min(ranked)]
                kept = ranked[-1][0] if len(ranked) == count else math.inf
                # An item with an equal bound may still win: ties go to the lower position.
                needed = bisect.bisect_right(cell.negated_bounds, kept)
                if needed <= reach and needed < listed:
                    return [ItemIndex(item) for _, item in ranked]
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
        pairs = [pair for pair in zip(values, cell.items, strict=False) if pair[1] not in asked]
        if active is not None:
            pairs = [pair for pair in pairs if active[pair[1]]]
        return pairs

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
