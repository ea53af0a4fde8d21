"""The default test: items chosen by the score curves, or sampled where these are doubted.

A step samples with the probability that the curves do not hold for this examinee, at least 2/5.
With few reference models that probability is near 1; the answers change it
(`app.engine.prediction.score_estimate`). A step always samples where the sampled items alone
predict the score far more precisely than the curves, for example if no answer is right. Otherwise
it chooses the item whose answer leaves the smallest variance of the score by the curves. It looks
at a quarter of a large bank only. This part starts at the first item of the test, which is always
sampled, so that two tests have few items in common.

The sample is spread evenly. The items are ordered by expected score on the interval (0, 1), and
the width of each item is its weight in the score. The sequence u + k phi modulo 1, phi the golden
ratio, samples each item that it meets, once. Every start of the sequence is nearly even, so that a
test may end at any step. If the order of the items is unknown, the sample is simply random.

The answer to a sampled item carries a sampling probability below 1; a chosen item carries 1.

Source: Kuipers & Niederreiter (1974), Uniform Distribution of Sequences, for the sequence.
"""

from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, ItemIndex
from app.engine.models.base import BoolArray, IntArray
from app.engine.models.multidimensional import with_answer
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import LEAST_DOUBT, ScoreEstimator
from app.engine.selection.base import Ask, Pool, Selector
from app.engine.state import CatState, Draw, answered

#: Share of the bank that one test chooses from, and the least number of items in that part.
_SHARE, _LEAST_ITEMS = 0.25, 125
_GOLDEN = 0.6180339887498949
#: Terms of the sequence that are searched for one that meets an open item.
_AHEAD = 1024
#: Items that a test for theta chooses before it samples, and the most items that it then samples.
LEAD = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveVariance:
    """V-optimality by score curves: the reduction of the target's variance by an answer.

    Attributes:
        curves: Score curves of all items.
        weights: Weight of each item in the target score, shape (n_items,).
    """

    curves: ScoreCurves
    weights: FloatArray

    def values(self, pool: Pool, state: CatState) -> FloatArray:  # noqa: ARG002  # see `Criterion`
        """Expected reduction of the target's variance by an answer to each item."""
        curves = self.curves
        at = curves.locate(*answered(state.responses))
        information = curves.variance(at)
        open_ = self.weights * information
        open_[list(state.asked)] = 0.0
        information /= curves.dispersion
        covariance = at.covariance
        for item in state.pending:
            covariance = with_answer(covariance, curves.slopes[:, item], float(information[item]))
        along, length = curves.spread(covariance, curves.slopes @ open_)
        # An answer lowers the target's variance by I c^2 / (1 + I v), computed in place.
        along *= along
        along *= information
        length *= information
        length += 1.0
        along /= length
        return along


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A sample of items that is evenly spread over their expected scores.

    Attributes:
        position: Middle of each item's part of (0, 1), in the order of the expected scores; NaN
            for an item without weight in the score. Shape (n_items,).
        width: Width of each item's part, the sampling weights; they sum to 1. Shape (n_items,).
        circle: Place of each item on a circle, in [0, 1), so that every arc holds all
            difficulties; 0 for all items where costs count. Shape (n_items,).
        order: Items in the order of their positions, shape (n_items,).
        edges: Upper end of the part of each item in `order` but the last, shape (n_items - 1,).
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
            curves: Score curves; their intercepts give the order of the items.
            weights: Weight of each item in the score, shape (n_items,).
            costs: Cost of each item, shape (n_items,); expensive items are then sampled less.
        """
        # These widths minimise the variance of the estimate for a fixed budget (Neyman allocation).
        width = weights if costs is None else weights / np.sqrt(costs)
        width = width / width.sum()
        # Ties are broken at random: the order of the file may follow topics or difficulty.
        shuffled = np.random.default_rng(width.size).permutation(width.size)
        order = np.lexsort((shuffled, curves.intercept))
        position = np.empty(width.size)
        position[order] = np.cumsum(width[order]) - 0.5 * width[order]
        position[width <= 0.0] = np.nan
        circle = np.zeros(width.size)
        if costs is None:  # with costs, a cheap item matters more than an item that is rarely used
            circle[order] = (np.arange(width.size) * _GOLDEN) % 1.0
        edges = np.cumsum(width[order])[:-1]
        return cls(position=position, width=width, circle=circle, order=order, edges=edges)

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        is_open = pool.admissible(state)
        chances = np.where(is_open, self.width, 0.0)
        total = float(chances.sum())
        if total <= 0.0:
            open_ = np.flatnonzero(is_open)
            return Ask(ItemIndex(int(rng.choice(open_)))) if open_.size else None
        hits = self.order[np.searchsorted(self.edges, self._next(state, rng), side="right")]
        hits = hits[chances[hits] > 0.0]
        item = int(hits[0] if hits.size else rng.choice(chances.size, p=chances / total))
        return Ask(ItemIndex(item), float(chances[item] / total))

    def part(self, state: CatState) -> BoolArray:
        """Mask of the arc of items that this test chooses from, which starts at its first item."""
        _, first = min((draw.step, item) for item, draw in draws_of(state))
        share = max(_SHARE, _LEAST_ITEMS / self.circle.size)
        distance = self.circle - self.circle[first]
        inside: BoolArray = (distance >= 0.0) & (distance < share) | (distance < share - 1.0)
        return inside

    def _next(self, state: CatState, rng: np.random.Generator) -> FloatArray:
        """The next terms of the sequence: candidate positions of the next sampled item."""
        sampled = [
            (self.width[item], draw.step, item)
            for item, draw in draws_of(state)
            if draw.sampled and not np.isnan(self.position[item])
        ]
        start = rng.random()
        if sampled:
            # The narrowest item locates the sequence best; within its width the place is random.
            width, step, item = min(sampled)
            since = 1 + sum(earlier[1] > step for earlier in sampled)
            start = self.position[item] + (start - 0.5) * (width - self.width.min())
            start += since * _GOLDEN
        places: FloatArray = np.mod(start + _GOLDEN * np.arange(_AHEAD), 1.0)
        return places


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedOrSampled:
    """Chooses by the curves, or samples with the probability that the curves do not hold.

    Attributes:
        estimator: Estimator of the score; gives the probability that the curves do not hold.
        wanted: Selector that uses the curves.
        sampled: Selector that samples without the curves.
    """

    estimator: ScoreEstimator
    wanted: Selector
    sampled: Sampled

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        chance, curves = rng.random(), self.estimator.explanations
        # The conditions are in the order of their computing time: `or` skips the slow ones.
        if (
            not draws_of(state)
            or chance < LEAST_DOUBT
            or chance < curves.doubt(curves.evidence(*answered(state.responses)))
            or self.estimator.estimate(state.responses).by_sample_alone
        ):
            return self.sampled.select(pool, state, rng)
        near = self.wanted.select(pool.narrowed(self.sampled.part(state)), state, rng)
        return near or self.wanted.select(pool, state, rng)


@dataclass(frozen=True, slots=True, kw_only=True)
class ThetaThenSampled:
    """Chooses items for theta; samples if they cannot place the examinee.

    A test for theta asks items that are steep at its theta. Their answers may leave open which
    reference models the examinee resembles. More such items would improve neither theta nor the
    score then, but sampled items do. After `LEAD` sampled items the test chooses for theta again.

    Attributes:
        wanted: Selector of items for theta.
        sampled: Selector that samples.
        curves: Decide whether the examinee's place among the reference models is open.
    """

    wanted: Selector
    sampled: Sampled
    curves: LearnedCurves

    def select(self, pool: Pool, state: CatState, rng: np.random.Generator) -> Ask | None:
        """See `Selector`."""
        selector = self.sampled if self._samples(state) else self.wanted
        return selector.select(pool, state, rng)

    def _samples(self, state: CatState) -> bool:
        if state.n_asked < LEAD:
            return False
        sampled = sum(draw.sampled and draw.step > LEAD for _, draw in draws_of(state))
        if sampled:
            return sampled < LEAD
        place = self.curves.place(state.responses)
        return place is not None and place.is_open


def draws_of(state: CatState) -> list[tuple[ItemIndex, Draw]]:
    """The pending and scored items with their `Draw`, where one was recorded."""
    scored = [(answer.item, answer.draw) for answer in state.responses if answer.draw is not None]
    return [*scored, *state.draws.items()]
