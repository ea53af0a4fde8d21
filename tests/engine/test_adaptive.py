from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.adaptive import AdaptiveTest, step_rng
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.estimation.estimators import GridEstimator
from app.engine.selection.base import Ask
from app.engine.state import CatState, Draw, Response, Usage
from app.engine.stopping import Stop, StopReason
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank, random_bank

BELIEF = GridEstimator().start(clean_bank(0, 5))
FIRST, SECOND = ItemIndex(3), ItemIndex(1)
DESIGNS: list[dict[str, Any]] = [
    {"stopping": {"se": None, "max_items": 12}},
    {"preset": "atlas", "stopping": {"max_items": 12}},
    {"selection": {"criterion": "mutual_information", "top_k": 3}, "stopping": {"max_items": 12}},
    {"selection": {"criterion": "random"}, "estimator": {"method": "wle"}},
]


def answers(seed: int) -> Callable[[ItemIndex], float]:
    """Return a fixed random answer to each item."""
    return lambda item: float(np.random.default_rng([seed, item]).integers(0, 2))


def run(
    test: AdaptiveTest, seed: int, answer: Callable[[ItemIndex], float], limit: int = 20
) -> tuple[CatState, Stop | None]:
    state = test.start()
    for _ in range(limit):
        step = test.ask(state, step_rng(seed, state))
        if isinstance(step, Stop):
            return state, step
        state = state.with_pending(step.item)
        state = test.tell(state, Response(step.item, answer(step.item)))
    return state, None


@given(seed=st.integers(0, 2**32), cut=st.integers(0, 12), design=st.sampled_from(DESIGNS))
@settings(max_examples=25, deadline=None)
def test_a_replayed_test_continues_as_the_original(
    seed: int, cut: int, design: dict[str, Any]
) -> None:
    test = Design.from_dict(design).build(random_bank(seed, 60))
    whole, _ = run(test, seed, answers(seed), limit=13)
    rebuilt = test.replay(whole.responses[:cut])
    for response in whole.responses[cut:]:
        step = test.ask(rebuilt, step_rng(seed, rebuilt))
        assert isinstance(step, Ask)
        assert step.item == response.item
        rebuilt = test.tell(rebuilt.with_pending(step.item), response)
    assert rebuilt.belief.theta == whole.belief.theta
    assert rebuilt.belief.se == whole.belief.se
    np.testing.assert_array_equal(rebuilt.belief.weights, whole.belief.weights)


@given(
    seed=st.integers(0, 2**32),
    in_flight=st.integers(1, 6),
    design=st.sampled_from(DESIGNS),
)
@settings(max_examples=25, deadline=None)
def test_items_in_flight_differ_and_none_is_ever_asked_twice(
    seed: int, in_flight: int, design: dict[str, Any]
) -> None:
    test = Design.from_dict(design).build(random_bank(seed, 40))
    rng, state = np.random.default_rng(seed), test.start()
    asked: list[ItemIndex] = []
    while True:
        while len(state.pending) < in_flight:
            step = test.ask(state, step_rng(seed, state))
            if isinstance(step, Stop):
                break
            asked.append(step.item)
            state = state.with_pending(step.item)
        if not state.pending:
            break
        item = state.pending[int(rng.integers(len(state.pending)))]
        if rng.random() < 0.2:
            state = state.with_unscored(item)
        else:
            state = test.tell(state, Response(item, float(rng.integers(0, 2))))
    assert len(asked) == len(set(asked)) == state.n_asked


def test_an_unscored_item_adds_cost_and_leaves_theta() -> None:
    test = Design.from_dict({"preset": "ability"}).build(clean_bank(1, 30))
    state = test.start().with_pending(ItemIndex(4))
    state = state.with_unscored(ItemIndex(4), Usage(usd=0.5, tokens=10, calls=2))
    assert state.belief.theta == test.start().belief.theta
    assert state.usage == Usage(usd=0.5, tokens=10, calls=2)
    step = test.ask(state, step_rng(1, state))
    assert isinstance(step, Ask)
    assert step.item != 4


def test_a_bank_without_items_left_ends_the_test() -> None:
    test = Design.from_dict(
        {"preset": "ability", "stopping": {"se": None, "max_items": None}}
    ).build(clean_bank(1, 5))
    state, stop = run(test, 1, answers(1))
    assert isinstance(stop, Stop)
    assert stop.reason is StopReason.BANK_EXHAUSTED
    assert state.n_scored == 5


def test_the_more_able_examinee_gets_the_higher_theta_in_few_items() -> None:
    bank = ItemBank.from_difficulties(a=np.full(200, 2.0), b=np.linspace(-3, 3, 200))
    test = Design.from_dict({"stopping": {"se": 0.2}}).build(bank)

    def able(theta: float) -> float:
        state, stop = run(test, 1, lambda item: float(bank.b[item] < theta), limit=60)
        assert isinstance(stop, Stop)
        assert stop.reason is StopReason.SE_TARGET
        return state.belief.theta

    low, high = able(-1.0), able(1.0)
    assert low == pytest.approx(-1.0, abs=0.3)
    assert high == pytest.approx(1.0, abs=0.3)


def asked_at_once(test: AdaptiveTest, state: CatState) -> int:
    """Return how many items the test puts in flight when concurrency is not limited."""
    before = len(state.pending)
    while isinstance(step := test.ask(state, step_rng(1, state)), Ask):
        state = state.with_pending(step.item)
    return len(state.pending) - before


def test_items_in_flight_are_no_more_than_the_precision_is_expected_to_take() -> None:
    """n equal items take the precision from 1 to 1 + n I; with no answer, half of n are asked."""
    bank = ItemBank.from_difficulties(a=np.full(200, 2.0), b=np.full(200, 0.0))
    stopping = {"se": 0.3, "min_items": 0, "max_items": None}
    test = Design.from_dict({"estimator": {"method": "map"}, "stopping": stopping}).build(bank)
    # The prior has precision 1 and each item a^2 / 4 = 1 at theta 0: 1 / 0.3^2 = 11.1 items.
    state = test.start()
    assert asked_at_once(test, state) == 6
    for item in range(2):
        state = test.tell(state.with_pending(ItemIndex(item)), Response(ItemIndex(item), 0.5))

    assert asked_at_once(test, state) == 9
    one_out = state.with_pending(ItemIndex(50))
    assert asked_at_once(test, one_out) == 8


@pytest.mark.parametrize("design", DESIGNS)
def test_prediction_without_answers_is_the_same_for_everyone(design: dict[str, Any]) -> None:
    bank = random_bank(5, 60)
    test = Design.from_dict(design).build(bank)
    state = test.start()
    assert test.start() is state
    first = test.predict(state)
    asked = state.with_pending(ItemIndex(3))
    assert test.predict(asked) == first
    assert first == test.predictor.predict(bank, (), state.belief)
    assert test.predict(state, exclude=[3]) != first
    told = test.tell(asked, Response(ItemIndex(3), 1.0))
    assert test.predict(told) == test.predictor.predict(bank, told.responses, told.belief)


@pytest.mark.parametrize("score", [-0.1, 1.1, np.nan, np.inf])
def test_a_score_or_a_probability_outside_0_to_1_is_refused(score: float) -> None:
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        Response(FIRST, score)
    with pytest.raises(InvalidInputError, match="a probability above 0 and at most 1"):
        Draw(1, score)


def test_an_item_is_pending_until_it_is_scored_or_closed() -> None:
    start = CatState(belief=BELIEF)
    asked = start.with_pending(FIRST).with_pending(SECOND)
    assert asked.pending == (FIRST, SECOND)
    of_answer = Usage(usd=0.5, tokens=10, calls=1)
    scored = asked.with_response(Response(SECOND, 1.0, of_answer), BELIEF)
    closed = scored.with_unscored(FIRST, Usage(usd=0.25, tokens=5, calls=2))
    assert (scored.pending, closed.pending) == ((FIRST,), ())
    assert (closed.n_asked, closed.n_scored, closed.unscored) == (2, 1, (FIRST,))
    assert closed.usage == Usage(usd=0.75, tokens=15, calls=3)
    assert start == CatState(belief=BELIEF)


def test_an_item_is_asked_once_and_closed_once() -> None:
    state = CatState(belief=BELIEF).with_pending(FIRST)
    with pytest.raises(InvalidInputError, match="Item 3 was asked already"):
        state.with_pending(FIRST)
    closed = state.with_unscored(FIRST)
    with pytest.raises(InvalidInputError, match="Item 3 is not pending"):
        closed.with_unscored(FIRST)
    with pytest.raises(InvalidInputError, match="Item 3 is not pending"):
        closed.with_response(Response(FIRST, 1.0), BELIEF)
