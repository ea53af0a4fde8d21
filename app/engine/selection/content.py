"""Content balancing: shares of the test that belong to tags."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.bank import FloatArray, ItemIndex
from app.engine.selection.base import Pool, Selector
from app.engine.state import CatState

#: Smaller differences of sums are rounding errors.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentBalanced:
    """Keeps the shares of tags near their targets.

    After n items, scored and pending ones, a tag is `x = target * (n + 1) - count` items behind.
    Asking an item lowers x by 1 for each of its tags. Another selector chooses among the items
    that leave the smallest sum of x^2 over all tags. If every item has one tag, these are the items
    of the tag that is furthest behind. Tags without admissible items are ignored. If the targets
    sum to less than 1, the rest belongs to the items without any target tag.

    Attributes:
        carries: Whether an item carries a tag, shape (n_tags, n_items).
        targets: Target share of each tag, shape (n_tags,).
        then: Selector among the items that serve the tags best.

    Sources: Kingsbury & Zara (1989), Applied Measurement in Education 2; for several tags an item
        the weighted deviations of Stocking & Swanson (1993), Applied Psychological Measurement 17.
    """

    carries: NDArray[np.bool_]
    targets: FloatArray
    then: Selector

    @classmethod
    def of(
        cls, targets: Mapping[str, float], tags: Sequence[Collection[str]], then: Selector
    ) -> "ContentBalanced":
        """Build from target shares by tag and the tags of each item of the bank."""
        carries = np.array([[tag in item for item in tags] for tag in targets], dtype=np.bool_)
        shares = np.array(list(targets.values()), dtype=np.float64)
        rest = 1.0 - float(shares.sum())
        if rest > 1e-9:
            carries = np.vstack([carries, ~carries.any(axis=0)])
            shares = np.append(shares, rest)
        return cls(carries=carries, targets=shares, then=then)

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        counted = [response.item for response in state.responses]
        counted += state.pending
        behind = self.targets * (len(counted) + 1) - self.carries[:, counted].sum(axis=1)
        # (x - 1)^2 - x^2 = 1 - 2 x, for each tag of the item.
        gain = (2.0 * behind - 1.0) @ self.carries
        admissible = pool.admissible(state)
        if not admissible.any():
            return None
        served = admissible & (gain >= gain[admissible].max() - _EQUAL)
        return self.then.select(pool.narrowed(served), state, rng)
