"""Interfaces of selectors and criteria, and the pool of items that they choose from."""

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.engine.bank import FloatArray, ItemIndex
from app.engine.information_index import InformationIndex
from app.engine.models.base import BoolArray
from app.engine.state import CatState


@dataclass(frozen=True, slots=True)
class Pool:
    """The items a test may ask.

    Attributes:
        index: Index of the bank; shared by all tests on it.
        active: Mask of the items in use, shape (n_items,); None means the whole bank.
    """

    index: InformationIndex
    active: BoolArray | None = None

    @property
    def n_active(self) -> int:
        """Number of items that a test may ask."""
        active = self.active
        return self.index.bank.n_items if active is None else int(np.count_nonzero(active))

    def admissible(self, state: CatState) -> BoolArray:
        """Mask of the items that may be asked now: active and not asked before."""
        return self.index.bank.open_items(state.asked, self.active)

    def narrowed(self, to: BoolArray) -> "Pool":
        """The same pool without the items outside the mask `to`, shape (n_items,)."""
        return replace(self, active=to if self.active is None else self.active & to)


@dataclass(frozen=True, slots=True)
class Ask:
    """The next item.

    Attributes:
        probability: Sampling probability of the item in this step, given the items asked before; 1
            if it was chosen, or if the probability is unknown. To be passed to `with_pending`.
    """

    item: ItemIndex
    probability: float = 1.0


class Selector(Protocol):
    """Chooses the next item of a test. A small frozen object that keeps nothing between calls."""

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """The item to ask next, or None when the pool has no admissible item left.

        Pending items count as asked: they are never chosen again, and they count in shares of
        items.
        """


class Criterion(Protocol):
    """Gives every item of a pool a value: how much asking it is worth now."""

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Worth of each item, larger is better, shape (n_items,)."""
