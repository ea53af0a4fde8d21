"""Questions that the curves want most, and questions that are sampled whatever the curves say.

Each step samples with the probability that the curves do not hold for this examinee, and with two
fifths at least: with few reference models that is nearly always, and the answers themselves move it
(`app.engine.prediction.score_estimate`). Always where the sampled questions by themselves tell the
score far more exactly than the curves, as of an examinee that has nothing right. Otherwise it asks
what leaves the least variance of the score by the curves, in three tenths of a large bank. Each
test has its own part, so that two tests have few items in common: it begins at the first item,
which is always sampled.

What is sampled is spread evenly: items stand in the order of their expected scores, each as wide as
it counts in the score. The sequence u + k phi modulo 1, phi the golden ratio, samples each item
that it meets, once. Every beginning of it is nearly even, so that a test may end anywhere. Where no
order of the items is known it is a random sample.

A sampled question carries a probability below 1 with its answer, a chosen one 1.

Source: Kuipers & Niederreiter (1974), Uniform Distribution of Sequences, for the sequence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.engine.bank import FloatArray, ItemIndex
from app.engine.models.base import BoolArray, IntArray
from app.engine.models.multidimensional import with_answer
from app.engine.prediction.placing import Placing
from app.engine.prediction.score_curves import Located, ScoreCurves
from app.engine.prediction.score_estimate import LEAST_DOUBT, ScoreEstimator
from app.engine.selection.base import Pool, Selector
from app.engine.state import CatState, Draw, answered

#: Share of the bank that one test chooses from, and how many items that are at least.
_SHARE, _LEAST_ITEMS = 0.3, 150
_GOLDEN = 0.6180339887498949
#: Members of the sequence that are looked at for one that meets an open item.
_AHEAD = 1024
#: Items that a test for theta chooses before any is sampled, and that it samples at most.
LEAD = 24


@dataclass(frozen=True, slots=True)
class Chosen:
    """An item that was chosen.

    Attributes:
        item: Its position.
        probability: With which this step sampled it; 1 where nothing was left to chance.
    """

    item: ItemIndex
    probability: float


class Samples(Protocol):
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A sample of items that is even in the order of their expected scores.

    Attributes:
        position: Where each item stands in that order, in (0, 1), each as wide as it counts in the
            score; NaN where it does not count. Shape (n_items,), as below.
        width: How wide it is.
        circle: Where each item stands on a circle, in [0, 1): each arc has all difficulties. Where
            costs count, all stand together.
        order: The items by position.
        edges: Where each of them but the last ends.
    """

    position: FloatArray
    width: FloatArray
    circle: FloatArray
    order: IntArray
    edges: FloatArray

    @classmethod
    def of(
        cls, curves: ScoreCurves, weights: FloatArray, costs: FloatArray | None = None
    ) -> "Sampled":
        """The sample for a score with these weights of the items.

        Args:
            curves: Tell the order.
            weights: Shape (n_items,).
            costs: Of the items, where dear ones are to be sampled less; shape (n_items,).
        """
        # For one budget the variance of the estimate is least so (Neyman allocation).
        width = weights if costs is None else weights / np.sqrt(costs)
        width = width / width.sum()
        # Items alike stand in no order of the file, which may follow topics or difficulty.
        shuffled = np.random.default_rng(width.size).permutation(width.size)
        order = np.lexsort((shuffled, curves.intercept))
        position = np.empty(width.size)
        position[order] = np.cumsum(width[order]) - 0.5 * width[order]
        position[width <= 0.0] = np.nan
        circle = np.zeros(width.size)
        if costs is None:  # else a cheap item is worth more than one that few are asked
            circle[order] = (np.arange(width.size) * _GOLDEN) % 1.0
        edges = np.cumsum(width[order])[:-1]
        return cls(position=position, width=width, circle=circle, order=order, edges=edges)

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        chosen = self.draw(pool, state, rng)
        return None if chosen is None else chosen.item

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """See `Samples`."""
        is_open = pool.admissible(state)
        chances = np.where(is_open, self.width, 0.0)
        total = float(chances.sum())
        if total <= 0.0:
            open_ = np.flatnonzero(is_open)
            return Chosen(ItemIndex(int(rng.choice(open_))), 1.0) if open_.size else None
        met = self.order[np.searchsorted(self.edges, self._next(state, rng), side="right")]
        met = met[chances[met] > 0.0]
        item = int(met[0] if met.size else rng.choice(chances.size, p=chances / total))
        return Chosen(ItemIndex(item), float(chances[item] / total))

    def part(self, state: CatState) -> BoolArray:
        """The items that this test chooses from, an arc from its first one on; shape (n_items,)."""
        _, first = min((draw.step, item) for item, draw in draws_of(state))
        share = max(_SHARE, _LEAST_ITEMS / self.circle.size)
        ahead = self.circle - self.circle[first]
        inside: BoolArray = (ahead >= 0.0) & (ahead < share) | (ahead < share - 1.0)
        return inside

    def _next(self, state: CatState, rng: np.random.Generator) -> FloatArray:
        """Where the next sampled item may stand: the sequence from here on."""
        sampled = [
            (self.width[item], draw.step, item)
            for item, draw in draws_of(state)
            if draw.sampled and not np.isnan(self.position[item])
        ]
        start = rng.random()
        if sampled:
            # The narrowest tells best where the sequence was; in a wide one chance tells.
            width, step, item = min(sampled)
            since = 1 + sum(one[1] > step for one in sampled)
            start = self.position[item] + (start - 0.5) * (width - self.width.min())
            start += since * _GOLDEN
        places: FloatArray = np.mod(start + _GOLDEN * np.arange(_AHEAD), 1.0)
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOrSampled:
    """What the curves want most, or a sampled item as far as they are in doubt.

    Attributes:
        estimator: Of the score; tells how far the curves are to be relied on.
        wanted: Chooses by the curves.
        sampled: Chooses without them.
    """

    estimator: ScoreEstimator
    wanted: Selector
    sampled: Sampled

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        chosen = self.draw(pool, state, rng)
        return None if chosen is None else chosen.item

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """See `Samples`."""
        chance = rng.random()
        # What takes longer to tell is asked only where it decides.
        if (
            not draws_of(state)
            or chance < LEAST_DOUBT
            or chance < self.estimator.explanations.doubt(state.responses)
            or self.estimator.estimate(state.responses).by_sample_alone
        ):
            return self.sampled.draw(pool, state, rng)
        item = self.wanted.select(pool.narrowed(self.sampled.part(state)), state, rng)
        if item is None:
            item = self.wanted.select(pool, state, rng)
        return None if item is None else Chosen(item, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaThenSampled:
    """Chooses what tells most of theta, and samples once that leaves open where the examinee is.

    A test for theta asks what is steep at its theta. Where that leaves open whom of the reference
    models the examinee is like, more of the same would bring neither it nor the score any nearer:
    sampled questions place the examinee. A longer test goes on as it began.

    Attributes:
        wanted: Chooses for theta.
        sampled: Samples.
        placing: Tells whether it is open.
    """

    wanted: Selector
    sampled: Sampled
    placing: Placing

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> ItemIndex | None:
        """See `Selector`."""
        chosen = self.draw(pool, state, rng)
        return None if chosen is None else chosen.item

    def draw(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Chosen | None:
        """See `Samples`."""
        return choose(self.sampled if self._samples(state) else self.wanted, pool, state, rng)

    def _samples(self, state: CatState) -> bool:
        if state.n_asked < LEAD:
            return False
        sampled = sum(draw.sampled and draw.step > LEAD for _, draw in draws_of(state))
        if sampled:
            return sampled < LEAD
        return self.placing.of(state.responses).is_open


def draws_of(state: CatState) -> list[tuple[ItemIndex, Draw]]:
    """How the items came to be asked that are pending or scored, as far as it was noted."""
    scored = [(one.item, one.draw) for one in state.responses if one.draw is not None]
    return [*scored, *state.draws.items()]


def located(curves: ScoreCurves, state: CatState) -> Located:
    """Where the answers so far put an examinee."""
    return curves.locate(*answered(state.responses))
