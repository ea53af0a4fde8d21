"""One adaptive test as a value: answers, belief, and which items may be in flight."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank, ItemIndex
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Cost of calls."""

    usd: float = 0.0
    tokens: int = 0
    calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            usd=self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            calls=self.calls + other.calls,
        )


NO_USAGE = Usage()
#: Half-width of a normal 95 % interval, in standard deviations.
Z_95 = 1.959963984540054
#: Items in flight before any is closed; more would save time, but be chosen without answers.
_FIRST_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class Draw:
    """Step and sampling probability of an item that was asked.

    Attributes:
        step: Place of the item in the order of asking, from 1.
        probability: Sampling probability of the item in that step, given the items asked before;
            1 if the item was chosen instead of sampled.

    Raises:
        InvalidInputError: The probability is outside (0, 1], or the step is below 1.
    """

    step: int
    probability: float = 1.0

    def __post_init__(self) -> None:
        if not 0.0 < self.probability <= 1.0 or self.step < 1:
            raise InvalidInputError(
                "An item is drawn at a step from 1 on with a probability above 0 and at most 1, "
                f"got step {self.step!r} and {self.probability!r}."
            )

    @property
    def sampled(self) -> bool:
        """Whether the item was sampled at random."""
        return self.probability < 1.0


@dataclass(frozen=True, slots=True)
class Response:
    """One scored answer.

    Attributes:
        score: Score of the answer, in [0, 1].
        draw: Step and sampling probability of the item; None if not recorded.

    Raises:
        InvalidInputError: The score is outside [0, 1] or not a number.
    """

    item: ItemIndex
    score: float
    usage: Usage = NO_USAGE
    draw: Draw | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.score <= 1.0:
            raise InvalidInputError(f"A score lies in [0, 1], got {self.score!r}.")


def answered(responses: Sequence[Response]) -> tuple[IntArray, FloatArray]:
    """Items of the answers and their scores, each of shape (n_responses,)."""
    items: IntArray = np.array([response.item for response in responses], dtype=np.intp)
    return items, np.array([response.score for response in responses], dtype=np.float64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Ability with its 95 % interval, on the bank's scale.

    Attributes:
        theta: Ability, logits.
        se: Standard error of theta by `method`, logits.
        lo: Lower end of the 95 % interval.
        hi: Upper end of the 95 % interval.
        method: Estimator that gave theta; after a fallback not the requested one.
        at_bound: Whether the requested estimator has no finite solution for these answers.
        raw: Ends of the interval by the model alone, if a correction that was learned from other
            examinees changed `lo` and `hi`; None if not.
    """

    theta: float
    se: float
    lo: float
    hi: float
    method: str
    at_bound: bool
    raw: tuple[float, float] | None = None


class Belief(Protocol):
    """Belief of an estimator about theta after some answers. Immutable."""

    @property
    def theta(self) -> float:
        """Ability, logits."""

    @property
    def se(self) -> float:
        """Standard error of `theta`."""

    @property
    def nodes(self) -> FloatArray:
        """Theta values that carry the posterior, ascending, shape (n_nodes,)."""

    @property
    def weights(self) -> FloatArray:
        """Posterior mass at `nodes`; sums to 1."""

    def estimate(self) -> Estimate:
        """Theta, standard error and interval."""


AnyBelief = TypeVar("AnyBelief", bound=Belief)


class Estimator(Protocol[AnyBelief]):
    """Turns answers into a belief about theta; each kind of estimator has its kind of belief."""

    def start(self, bank: ItemBank) -> AnyBelief:
        """The belief before any answer."""

    def update(self, bank: ItemBank, belief: AnyBelief, *responses: Response) -> AnyBelief:
        """The belief after one or more further answers; cheap, and pure."""

    def expected_scores(
        self, bank: ItemBank, belief: AnyBelief, items: Sequence[ItemIndex]
    ) -> FloatArray:
        """Expected scores on some items at the belief's estimate, shape (n,)."""

    def prior_in(self, bank: ItemBank) -> tuple[float, float] | None:
        """Mean and standard deviation of the normal prior that theta and its error include.

        None if they depend on the answers alone.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CatState:
    """One adaptive test between two steps.

    Attributes:
        belief: Belief about theta.
        responses: Scored answers in order of arrival.
        pending: Items asked and not yet closed, in order of asking.
        unscored: Items closed without a score (error, refusal, unparsed, truncated).
        usage: Total cost of all closed calls, including unscored ones.
        asked: Every item asked so far, for membership tests.
        draws: Step and sampling probability of each pending item.
        n_dropped: Number of closed calls that `usage` counts, and that are no items of this test.
    """

    belief: Belief
    responses: tuple[Response, ...] = ()
    pending: tuple[ItemIndex, ...] = ()
    unscored: tuple[ItemIndex, ...] = ()
    usage: Usage = NO_USAGE
    asked: frozenset[ItemIndex] = frozenset()
    draws: Mapping[ItemIndex, Draw] = field(default_factory=dict)
    n_dropped: int = 0

    @property
    def n_asked(self) -> int:
        """Number of items asked so far: scored, unscored and pending."""
        return len(self.asked)

    @property
    def n_scored(self) -> int:
        """Number of items that entered the likelihood."""
        return len(self.responses)

    def may_be_pending(self, concurrency: int) -> int:
        """How many items may be in flight now, if the caller can keep `concurrency`.

        The first answers matter most for choosing further items. A test therefore begins with few
        items in flight, and each closed item makes room for one more.
        """
        return min(concurrency, _FIRST_IN_FLIGHT + self.n_asked - len(self.pending))

    def with_pending(self, item: ItemIndex, probability: float = 1.0) -> "CatState":
        """The state after `item` was asked, with its sampling probability.

        Raises:
            InvalidInputError: The item was asked before.
        """
        if item in self.asked:
            raise InvalidInputError(f"Item {item} was asked already.")
        # Of every step: `replace` would take a tenth of its time.
        return CatState(
            belief=self.belief,
            responses=self.responses,
            pending=(*self.pending, item),
            unscored=self.unscored,
            usage=self.usage,
            asked=self.asked | {item},
            draws={**self.draws, item: Draw(self.n_asked + 1, probability)},
            n_dropped=self.n_dropped,
        )

    def with_response(self, response: Response, belief: Belief) -> "CatState":
        """The state after a pending item was scored; `belief` already includes the answer.

        Raises:
            InvalidInputError: The item is not pending.
        """
        drawn = replace(response, draw=response.draw or self.draws.get(response.item))
        return self._closed(response.item, response.usage, belief, (*self.responses, drawn))

    def with_unscored(self, item: ItemIndex, usage: Usage = NO_USAGE) -> "CatState":
        """The state after a pending item was closed without a score.

        Raises:
            InvalidInputError: The item is not pending.
        """
        closed = self._closed(item, usage, self.belief, self.responses)
        return replace(closed, unscored=(*self.unscored, item))

    def _closed(
        self, item: ItemIndex, usage: Usage, belief: Belief, responses: tuple[Response, ...]
    ) -> "CatState":
        if item not in self.pending:
            raise InvalidInputError(
                f"Item {item} is not pending; pending are {list(self.pending)}."
            )
        return CatState(
            belief=belief,
            responses=responses,
            pending=tuple(other for other in self.pending if other != item),
            unscored=self.unscored,
            usage=self.usage + usage,
            asked=self.asked,
            draws={other: draw for other, draw in self.draws.items() if other != item},
            n_dropped=self.n_dropped,
        )
