"""Content balancing: shares of the test that belong to tags."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.engine.bank import FloatArray, ItemIndex
from app.engine.selection.base import Pool, Selector
from app.engine.state import CatState


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentBalanced:
    """Keeps the shares of tags near their targets: the tag furthest behind is served next.

    Behind is `target * (n + 1) - count` after n items, scored and pending ones; an item counts for
    each of its tags. Among the items of that tag another selector chooses. A tag without
    admissible items is passed over. What the targets leave of 1 belongs to items without any
    target tag.

    Attributes:
        carries: Whether an item carries a tag, shape (n_tags, n_items).
        targets: Target share of each tag, shape (n_tags,).
        then: Chooses among the items of the tag.

    Source: Kingsbury & Zara (1989), Applied Measurement in Education 2.
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
        for tag in np.argsort(-behind, kind="stable").tolist():
            item = self.then.select(pool.narrowed(self.carries[tag]), state, rng)
            if item is not None:
                return item
        return self.then.select(pool, state, rng)
