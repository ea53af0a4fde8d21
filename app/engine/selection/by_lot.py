"""Items drawn with known probabilities, so that an estimate exists whatever the model gets wrong.

A test for a score begins with the items that the model wants most: before much is known, knowing
more is worth most. From then on every item is drawn by lot. Half of the chance is shared out as the
items count in the score, the other half by how much the model wants each; the probability of what
was drawn goes with the answer, and `app.engine.prediction.design_based` reads from such draws what
the model gets wrong. Half by the model costs the first little, and half in equal shares bounds the
second: no item counts more than twice as much as if all had been drawn alike.

If the answers contradict the model, the rest is drawn without it.

A test for theta asks what tells most of theta. Where that leaves open whom of those calibrated the
examinee is like, more of the same would bring neither it nor the score any nearer: then such a
test draws by lot, too, and what it draws places the examinee. A longer one goes on as it began.

Probabilities are conditional on all that was asked before, answered or not, so that they are what
they say with any number of items in flight.

Source: Farquhar, Gal & Rainforth (2021), arXiv 2101.11665, and Kossen et al. (2021), arXiv
2103.05331, for estimates from items drawn one at a time without replacement.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.engine.bank import FloatArray, ItemIndex
from app.engine.index import BoolArray
from app.engine.models.multidimensional import with_answer
from app.engine.prediction.design_based import LEAD, after_lead
from app.engine.prediction.placing import Placing
from app.engine.prediction.score_curves import Located, ScoreCurves
from app.engine.selection.base import Criterion, Pool, Selector
from app.engine.state import CatState

#: Items that a test for theta draws at most: as many as it chose before.
MOST_DRAWN = LEAD
#: Of the chance of each draw, what is shared out as items count in the score.
EQUAL_SHARE = 0.5
#: The other part goes with the worth of an item to this power.
SHARPNESS = 2.0
#: Standard deviations by which answers may be less likely than the model has it.
CONTRADICTION = 3.0


@dataclass(frozen=True, slots=True)
class Chosen:
    """An item that was chosen.

    Attributes:
        item: Its position.
        probability: With which this step drew it; 1 where nothing was left to chance.
    """

    item: ItemIndex
    probability: float


class DrawsByLot(Protocol):
    """A selector that knows with which probability it chose."""

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """The item that `select` gives for the same generator, with its probability."""
        ...


def choose(
    selector: Selector, pool: Pool, state: CatState, rng: np.random.Generator
) -> Chosen | None:
    """The next item by any selector; one that tells no probability left nothing to chance."""
    # Asking a protocol at run time would take as long as choosing.
    draw: Callable[..., Chosen | None] | None = getattr(selector, "draw", None)
    if draw is not None:
        return draw(pool, state, rng)
    item = selector.select(pool, state, rng)
    return None if item is None else Chosen(item, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveVariance:
    """V-optimality by score curves: what an answer would take off the variance of the target.

    Attributes:
        curves: Of the scores.
        weights: Of the items in the target, shape (n_items,).
    """

    curves: ScoreCurves
    weights: FloatArray

    def values(self, pool: Pool, state: CatState) -> FloatArray:  # noqa: ARG002  # see `Criterion`
        """By how much each answer would lower the target's variance."""
        return self.worth(state, located(self.curves, state))

    def worth(self, state: CatState, at: Located) -> FloatArray:
        """The same where the abilities are known already."""
        curves = self.curves
        information = curves.variance(at)
        open_ = self.weights * information
        open_[list(state.asked)] = 0.0
        information /= curves.dispersion
        covariance = at.covariance
        for item in state.pending:
            covariance = with_answer(covariance, curves.slopes[:, item], float(information[item]))
        along, length = curves.spread(covariance, curves.slopes @ open_)
        # Of the target, what an answer takes off: I c^2 / (1 + I v), in place.
        along *= along
        along *= information
        length *= information
        length += 1.0
        along /= length
        return along

    def best(self, pool: Pool, state: CatState, count: int) -> list[ItemIndex]:
        """See `Criterion`."""
        return pool.best(self.values(pool, state), state, count)


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLot:
    """First what the model wants most, then draws with known probabilities.

    Attributes:
        curves: Of the scores.
        criterion: What an item is worth.
        first: Chooses the first items.
        weights: Of the items in the target, shape (n_items,).
        costs: Of the items, where the worth is one per cost; shape (n_items,).
    """

    curves: ScoreCurves
    criterion: Criterion
    first: Selector
    weights: FloatArray
    costs: FloatArray | None = None

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        chosen = self.draw(pool, state, rng)
        return None if chosen is None else chosen.item

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """See `DrawsByLot`."""
        against = contradicted(self.curves, state)
        if state.n_asked < LEAD and not against:
            item = self.first.select(pool, state, rng)
            return None if item is None else Chosen(item, 1.0)
        may = pool.admissible(state)
        if not may.any():
            return None
        chances = self._chances(pool, state, may, against=against)
        edges = np.cumsum(chances)
        at = int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))
        if at == edges.size:  # rounding
            at = int(np.flatnonzero(chances)[-1])
        return Chosen(ItemIndex(at), float(chances[at] / edges[-1]))

    def _chances(self, pool: Pool, state: CatState, may: BoolArray, *, against: bool) -> FloatArray:
        """Of each item, summing to 1 but for rounding, shape (n_items,)."""
        alike = np.where(may, self.weights, 0.0)
        if self.costs is not None:
            # For one budget the variance of the estimate is least so (Neyman allocation).
            alike /= np.sqrt(self.costs)
        counted = float(alike.sum())
        if against and counted > 0.0:
            return alike / counted
        wanted = self.criterion.values(pool, state)
        wanted *= may
        largest = float(wanted.max())
        if largest > 0.0:
            wanted /= largest
            wanted **= SHARPNESS
        else:
            wanted = may.astype(np.float64)
        wanted /= wanted.sum()
        if not counted > 0.0:
            return wanted
        # In place: a step passes over the bank once for each line.
        wanted *= 1.0 - EQUAL_SHARE
        alike *= EQUAL_SHARE / counted
        wanted += alike
        return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLotOnceOpen:
    """Chooses by its criterion, and by lot once that leaves open whom the examinee is like.

    It stays with the lot until enough is drawn: draws tell the score together, and theta is what
    such a test was to tell.

    Attributes:
        lot: How items are drawn; until then its `first` chooses.
        placing: Tells whether it is open.
    """

    lot: ByLot
    placing: Placing

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        chosen = self.draw(pool, state, rng)
        return None if chosen is None else chosen.item

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """See `DrawsByLot`."""
        selector = self.lot if self._draws(state) else self.lot.first
        return choose(selector, pool, state, rng)

    def _draws(self, state: CatState) -> bool:
        if state.n_asked < LEAD:
            return False
        draws = (*state.draws.values(), *(one.draw for one in state.responses))
        drawn = sum(map(after_lead, draws))
        if drawn:
            return drawn < MOST_DRAWN
        return self.placing.of(state.responses).is_open


def located(curves: ScoreCurves, state: CatState) -> Located:
    """Where the answers so far put an examinee."""
    items = np.array([one.item for one in state.responses], dtype=np.intp)
    return curves.locate(items, np.array([one.score for one in state.responses]))


def contradicted(curves: ScoreCurves, state: CatState) -> bool:
    """Whether the answers are far less likely than the model has it."""
    return located(curves, state).surprise > CONTRADICTION
