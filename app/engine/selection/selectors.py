"""Selectors: random, randomesque, a-stratified, Sympson-Hetter, and content balancing."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank, ItemIndex
from app.engine.information_index import largest
from app.engine.models.base import BoolArray
from app.engine.selection.base import Ask, Criterion, Pool, Selector
from app.engine.selection.information import best_items
from app.engine.state import CatState

#: Best items that Sympson-Hetter ranks first; four times as many each time it accepts none.
FIRST_RANKED = 16
#: Smaller differences of sums are rounding errors.
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class Random:
    """Any admissible item, all equally likely."""

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        positions = np.flatnonzero(pool.admissible(state))
        if not positions.size:
            return None
        return Ask(ItemIndex(int(rng.choice(positions))), 1.0 / positions.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomesque:
    """One of the `top_k` best items by a criterion, all equally likely; with 1, the best item.

    Source: Kingsbury & Zara (1989), Applied Measurement in Education 2.
    """

    criterion: Criterion
    top_k: int = 1

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        best = best_items(self.criterion, pool, state, self.top_k)
        if not best:
            return None
        return Ask(best[0] if len(best) == 1 else best[int(rng.integers(len(best)))])


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomStart:
    """Random items first, then another selector."""

    items: int
    then: Selector

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        started = len(state.responses) + len(state.pending) >= self.items
        return (self.then if started else Random()).select(pool, state, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearestStart:
    """First the item whose difficulty is nearest to the start theta, then another selector.

    Source: ATLAS, Algorithm 1, line 5.
    """

    then: Selector

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        if state.responses or state.pending:
            return self.then.select(pool, state, rng)
        distance = np.nan_to_num(np.abs(pool.index.bank.b - state.belief.theta), nan=np.inf)
        nearest = largest(-distance, pool.admissible(state), 1)
        return Ask(nearest[0]) if nearest else None


@dataclass(frozen=True, slots=True, kw_only=True)
class AStratified:
    """The item nearest in difficulty to theta, from strata of rising discrimination.

    Steep items are most informative once theta is roughly known. The test therefore begins in the
    flattest stratum and ends in the steepest. If a stratum has no item left, the nearest stratum
    replaces it, the steeper one first.

    Attributes:
        stratum: Stratum of each item, from 0 (flattest), shape (n_items,).
        length: Planned number of items; each stage is an equal part of it.

    Source: Chang & Ying (1999), Applied Psychological Measurement 23.
    """

    stratum: IntArray
    length: int

    @classmethod
    def of(
        cls, bank: ItemBank, *, strata: int, length: int, active: BoolArray | None = None
    ) -> "AStratified":
        """Cut the active items into `strata` equally large strata by discrimination."""
        a = bank.a if active is None else np.where(active, bank.a, np.inf)
        n_active = bank.n_items if active is None else int(active.sum())
        rank = np.empty(bank.n_items, dtype=np.intp)
        rank[np.argsort(a, kind="stable")] = np.arange(bank.n_items)
        return cls(stratum=np.minimum(rank * strata // n_active, strata - 1), length=length)

    def values(self, pool: Pool, state: CatState) -> FloatArray:
        """Nearness of the difficulty, in (0, 1], minus twice the distance in strata."""
        asked = len(state.responses) + len(state.pending)
        n_strata = int(self.stratum.max()) + 1
        stage = min(asked * n_strata // self.length, n_strata - 1)
        ahead = self.stratum - stage
        # A flatter stratum counts as half a stratum farther, so that ties go to the steeper one.
        away = np.where(ahead >= 0, 2 * ahead, -2 * ahead + 1)
        nearness = 1.0 / (1.0 + np.abs(pool.index.bank.b - state.belief.theta))
        return np.nan_to_num(nearness, nan=0.0) - away


@dataclass(frozen=True, slots=True, kw_only=True)
class SympsonHetter:
    """Rejects often used items with a probability that was fitted by simulation.

    The selector goes down the ranking from the best item and accepts item i with probability
    `acceptance[i]`. If it accepts none, it takes the best. A rejected item may be accepted at the
    next step, because a test stores its answers only. For exactly this rule
    `app.engine.simulation.simulate.fit_acceptance` fits the acceptance probabilities.

    Source: Sympson & Hetter (1985), Proceedings of the 27th annual meeting of the Military
    Testing Association.
    """

    criterion: Criterion
    acceptance: FloatArray

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        seen, count = 0, FIRST_RANKED
        while True:
            ranked = best_items(self.criterion, pool, state, count)
            for item in ranked[seen:]:
                if rng.random() < self.acceptance[item]:
                    return Ask(item)
            if len(ranked) < count:
                return Ask(ranked[0]) if ranked else None
            seen, count = count, 4 * count


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

    carries: BoolArray
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

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
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
        chosen = self.then.select(pool.narrowed(served), state, rng)
        # The probability holds among these items, and scores need that among all of them.
        return None if chosen is None else Ask(chosen.item)
