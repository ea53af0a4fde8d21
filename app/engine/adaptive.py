"""The adaptive test: what to ask next, what an answer changes. No I/O, no clock, no hidden state.

    test = design.build(bank)
    state = test.start()
    while isinstance(step := test.ask(state, step_rng(seed, state)), Ask):
        state = state.with_pending(step.item, step.probability)
        state = test.tell(state, Response(step.item, score_of(step.item)))

Several items may be in flight: each one that `ask` gives becomes pending, and is told, or closed
without a score (`with_unscored`), in the order in which answers arrive.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.prediction.correction import IntervalCorrection
from app.engine.prediction.p_irt import (
    ALL_ITEMS,
    Prediction,
    Predictor,
    allowing_for_nonresponse,
)
from app.engine.selection.base import Ask, Pool, Selector
from app.engine.state import CatState, Estimate, Estimator, Response, answered
from app.engine.stopping import Situation, Stop, StoppingRule, StopReason

#: Reasons to stop that any further answer brings nearer.
_PRECISION = frozenset({StopReason.SE_TARGET, StopReason.SCORE_MARGIN})
#: Before the first answer items are the same for every examinee: in flight may be at most half of
#: the items that the precision is expected to need.
_BLIND = 2


def step_rng(seed: int, state: CatState) -> np.random.Generator:
    """The generator for the next `ask`: it depends on the seed and the step alone.

    A test that is rebuilt from stored answers therefore goes on exactly as it would have.
    """
    return np.random.default_rng([seed, state.n_asked + 1])


@dataclass(frozen=True, kw_only=True)
class AdaptiveTest:
    """One design on one bank; serves any number of examinees.

    Attributes:
        pool: The bank, its index and the items in use.
        estimator: Turns answers into a belief about theta. Any kind of belief will do, because all
            beliefs of a test come from this estimator.
        predictor: Predicts the score that the test is about, mostly that of the whole bank.
            Its interval includes a correction if one was learned.
        tasks: Predictors of each tag's score in a bank of several abilities, including "all".
        correction: Correction of theta's interval; None keeps the interval of the model.
        weights: Weight of each item in that score, shape (n_items,); None weighs all equally.
    """

    pool: Pool
    estimator: Estimator[Any]
    selector: Selector
    stopping: StoppingRule
    predictor: Predictor
    tasks: Mapping[str, Predictor] = field(default_factory=dict)
    correction: IntervalCorrection | None = None
    weights: FloatArray | None = None

    @cached_property
    def bank(self) -> ItemBank:
        """The bank, inactive items included."""
        return self.pool.index.bank

    def start(self) -> CatState:
        """The state before the first item: the same for everybody, computed once."""
        return self._opening

    @cached_property
    def _opening(self) -> CatState:
        return CatState(belief=self.estimator.start(self.bank))

    def ask(
        self, state: CatState, rng: np.random.Generator, *, elapsed_s: float = 0.0
    ) -> Ask | Stop:
        """The next item, or the end.

        The same state, generator (see `step_rng`) and time, the seconds since the test began, give
        the same result. A `Stop` does not wait for pending items: close them, then ask again. The
        end may rest on their expected answers, so that no more items are in flight than the
        precision needs.
        """
        if stop := self.stopping.check(Situation(state, self.pool, elapsed_s)):
            return stop
        if state.pending and (stop := self._expected_stop(state, elapsed_s)):
            return stop
        return self.selector.select(self.pool, state, rng) or Stop(
            StopReason.BANK_EXHAUSTED, "Every active item of the bank was asked."
        )

    def _expected_stop(self, state: CatState, elapsed_s: float) -> Stop | None:
        """The end of the test, if the items in flight get their expected scores.

        Expected scores narrow a belief about as much as real ones, and do not move it. Before the
        first answer each of them counts twice.
        """
        scores = self.estimator.expected_scores(self.bank, state.belief, state.pending)
        answers = [
            Response(item, min(max(score, 0.0), 1.0))
            for item, score in zip(state.pending, scores.tolist(), strict=True)
        ]
        times = 1 if state.responses else _BLIND
        expected = replace(
            state,
            belief=self.estimator.update(self.bank, state.belief, *(times * answers)),
            responses=(*state.responses, *answers),
            pending=(),
        )
        stop = self.stopping.check(Situation(expected, self.pool, elapsed_s, state))
        if stop is None or stop.reason not in _PRECISION:
            return None
        return Stop(stop.reason, f"Expected of {len(state.pending)} items in flight: {stop.detail}")

    def tell(self, state: CatState, response: Response) -> CatState:
        """The state after a pending item was scored; see `CatState.with_response`."""
        return state.with_response(
            response, self.estimator.update(self.bank, state.belief, response)
        )

    def estimate(self, state: CatState) -> Estimate:
        """Theta with the interval that is reported and that decisions use."""
        if self.correction is None:
            return state.belief.estimate()
        return self.correction.of_state(state)

    def predict(self, state: CatState, exclude: Sequence[int] = ()) -> Prediction:
        """The score that the test is about; items in `exclude` do not count.

        If all of its items are answered the score is known, by the method `all_items`.
        """
        if not exclude and (known := self._known(state)) is not None:
            return Prediction(value=known, lo=known, hi=known, method=ALL_ITEMS)
        predicted = self.predictor.predict(self.bank, state.responses, state.belief, exclude)
        allowed = allowing_for_nonresponse(predicted, state)
        if exclude or allowed is predicted:
            return allowed
        # No failed answer takes away what the others have scored already.
        return replace(allowed, lo=max(allowed.lo, min(self._scored(state), predicted.lo)))

    @cached_property
    def n_counted(self) -> int:
        """Number of items that count in the score."""
        return self.bank.n_items if self.weights is None else int(np.count_nonzero(self.weights))

    def _known(self, state: CatState) -> float | None:
        """The score, if every item that counts is answered; otherwise None."""
        if state.n_scored < self.n_counted:
            return None
        items, scores = answered(state.responses)
        if self.weights is None:
            return float(scores.mean())
        counted = self.weights[items]
        if np.count_nonzero(counted) < self.n_counted:
            return None
        return float(counted @ scores) / float(counted.sum())

    def _scored(self, state: CatState) -> float:
        """The score if all items without a score are wrong."""
        items, scores = answered(state.responses)
        if self.weights is None:
            return float(scores.sum()) / self.bank.n_items
        return float(self.weights[items] @ scores) / float(self.weights.sum())

    def replay(self, responses: Iterable[Response]) -> CatState:
        """The state after scored answers in their stored order, bit for bit as it was."""
        state = self.start()
        for response in responses:
            probability = response.draw.probability if response.draw else 1.0
            state = self.tell(state.with_pending(response.item, probability), response)
        return state
