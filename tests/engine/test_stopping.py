from collections.abc import Sequence
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.bank import ItemBank, ItemIndex
from app.engine.estimation.estimators import GridEstimator
from app.engine.inference.gate import GateOutcome, gate
from app.engine.information_index import InformationIndex
from app.engine.prediction.p_irt import PIrt
from app.engine.selection.base import Pool
from app.engine.state import CatState, Response, Usage
from app.engine.stopping import (
    AllOf,
    AnyOf,
    Budget,
    DecisionByInterval,
    DecisionBySprt,
    LowInformation,
    MaxItems,
    Plateau,
    ScoreMargin,
    SeTarget,
    Situation,
    Stop,
    StoppingRule,
    StopReason,
    TimeLimit,
)
from tests.contracts.estimators import estimate_of
from tests.engine.random_banks import clean_bank

BANK = ItemBank.from_difficulties(a=np.full(60, 1.5), b=np.linspace(-2, 2, 60))
ESTIMATOR = GridEstimator()


def situation(
    scores: Sequence[str | float] = "",
    *,
    bank: ItemBank = BANK,
    pending: int = 0,
    usage: Usage | None = None,
    elapsed_s: float = 0.0,
) -> Situation:
    """Return a test with such answers to items spread over the bank; usage is per answer."""
    state = CatState(belief=ESTIMATOR.start(bank))
    order = [ItemIndex((7 * i) % bank.n_items) for i in range(len(scores) + pending)]
    belief = ESTIMATOR.start(bank)
    for item, score in zip(order, scores, strict=False):
        response = Response(item, float(score), usage or Usage())
        belief = ESTIMATOR.update(bank, belief, response)
        state = state.with_pending(item).with_response(response, belief)
    for item in order[len(scores) :]:
        state = state.with_pending(item)
    return Situation(state, Pool(InformationIndex(bank)), elapsed_s)


def reason(rule: StoppingRule, now: Situation) -> StopReason | None:
    stop = rule.check(now)
    return None if stop is None else stop.reason


ABLE, MIXED, NONE = "1" * 20, "10" * 10, ""


SCORED = clean_bank(9, 40, kind="continuous")
HALF, DEAR = [0.5], Usage(usd=0.3)


@pytest.mark.parametrize(
    ("rule", "over", "going_on"),
    [
        (SeTarget(se=0.5), situation(MIXED), situation(NONE)),
        (DecisionByInterval(cut=0.0), situation(ABLE), situation("10")),
        (DecisionBySprt(cut=0.0, confidence=0.9, indifference=0.3), situation(ABLE), situation()),
        (ScoreMargin(margin=0.15, predictor=PIrt()), situation(MIXED * 2), situation("1")),
        (Plateau(theta_change=0.15, estimator=ESTIMATOR), situation(MIXED * 2), situation("1111")),
        (LowInformation(information=0.54), situation(ABLE), situation(NONE)),
        (MaxItems(items=5), situation("101", pending=2), situation("101", pending=1)),
        (Budget(usd=1.0), situation("10", usage=Usage(usd=0.6)), situation("1", usage=DEAR)),
        (TimeLimit(seconds=60), situation(elapsed_s=60.0), situation(elapsed_s=59.0)),
        (
            AllOf((SeTarget(se=0.5), TimeLimit(seconds=10))),
            situation(MIXED, elapsed_s=10.0),
            situation(MIXED, elapsed_s=1.0),
        ),
        (
            AnyOf(goals=(SeTarget(se=0.5),), limits=(TimeLimit(seconds=10),)),
            situation(NONE, elapsed_s=10.0),
            situation(NONE),
        ),
        (SeTarget(se=0.2), situation(HALF * 20, bank=SCORED), situation(HALF, bank=SCORED)),
        *(
            (rule, situation([0.9] * 20, bank=SCORED), situation(HALF, bank=SCORED))
            for rule in (DecisionByInterval(cut=0.0), DecisionBySprt(cut=0.0))
        ),
        (
            ScoreMargin(margin=0.05, predictor=PIrt()),
            situation(HALF * 30, bank=SCORED),
            situation(HALF, bank=SCORED),
        ),
        (
            Plateau(theta_change=0.05, estimator=ESTIMATOR),
            situation(HALF * 35, bank=SCORED),
            situation([0.5, 0.9], bank=SCORED),
        ),
        (
            LowInformation(information=0.05),
            situation(HALF * 40, bank=SCORED),
            situation(HALF, bank=SCORED),
        ),
    ],
)
class TestStoppingRules:
    """The contract of every rule, with a test that it ends and one that it continues."""

    def test_it_ends_a_finished_test_with_a_sentence_and_has_no_state(
        self, rule: StoppingRule, over: Situation, going_on: Situation
    ) -> None:
        stop = rule.check(over)
        assert isinstance(stop, Stop)
        assert stop.detail.endswith(".")
        assert any(character.isdigit() for character in stop.detail)
        assert rule.check(going_on) is None
        assert rule.check(over) == stop

    def test_it_is_immutable(
        self, rule: StoppingRule, over: Situation, going_on: Situation
    ) -> None:
        for name in getattr(type(rule), "__dataclass_fields__", ["anything"]):
            with pytest.raises(FrozenInstanceError):
                setattr(rule, name, None)


def test_goals_wait_for_the_fewest_items_and_limits_do_not() -> None:
    patient = AnyOf(goals=(SeTarget(se=0.9),), limits=(MaxItems(items=8),), min_items=6)
    assert reason(patient, situation("10101")) is None
    assert reason(patient, situation("101010")) is StopReason.SE_TARGET
    assert reason(replace(patient, min_items=99), situation(MIXED)) is StopReason.MAX_ITEMS
    assert reason(AnyOf(goals=(SeTarget(se=9.9),)), situation()) is StopReason.SE_TARGET


def test_pending_items_count_towards_the_most_and_not_the_fewest_items() -> None:
    patient = AnyOf(goals=(SeTarget(se=9.9),), min_items=3)
    assert reason(patient, situation("11", pending=5)) is None
    assert reason(MaxItems(items=7), situation("11", pending=5)) is StopReason.MAX_ITEMS


def test_a_goal_reached_at_a_limit_is_reported() -> None:
    rule = AnyOf(goals=(SeTarget(se=0.9),), limits=(MaxItems(items=6), TimeLimit(seconds=1)))
    assert reason(rule, situation("101010", elapsed_s=5.0)) is StopReason.SE_TARGET
    assert reason(rule, situation("", elapsed_s=5.0)) is StopReason.TIME_LIMIT
    first = AnyOf(limits=(MaxItems(items=2), TimeLimit(seconds=1)))
    assert reason(first, situation("10", elapsed_s=5.0)) is StopReason.MAX_ITEMS


def test_all_of_without_rules_ends_nothing() -> None:
    assert AllOf(()).check(situation(MIXED)) is None


@pytest.mark.parametrize(("scores", "side"), [(ABLE, "above"), ("0" * 20, "below")])
@pytest.mark.parametrize(
    "rule", [DecisionByInterval(cut=0.0), DecisionBySprt(cut=0.0, indifference=0.3)]
)
def test_a_decision_names_its_side(rule: StoppingRule, scores: str, side: str) -> None:
    stop = rule.check(situation(scores))
    assert isinstance(stop, Stop)
    assert side in stop.detail


@given(cut=st.floats(-3, 3), scores=st.text("01", min_size=3, max_size=15))
def test_a_decision_by_interval_matches_a_gate(cut: float, scores: str) -> None:
    now = situation(scores)
    told = now.state.belief.estimate()
    outcome = gate(told.theta, told.lo, told.hi, threshold=cut, looks=4.0).outcome
    stop = DecisionByInterval(cut=cut, looks=4.0).check(now)
    assert (stop is None) == (outcome is GateOutcome.INCONCLUSIVE)
    if stop is not None:
        assert ("above" in stop.detail) == (outcome is GateOutcome.GO)


@given(confidence=st.floats(0.6, 0.99), scores=st.text("01", min_size=1, max_size=15))
def test_sprt_decides_at_walds_bound(confidence: float, scores: str) -> None:
    now = situation(scores)
    items = [response.item for response in now.state.responses]
    answers = [response.score for response in now.state.responses]
    p_low, p_high = BANK.expected_score([0.1, 0.7])[:, items]
    odds = np.prod([ph if s else 1 - ph for ph, s in zip(p_high, answers, strict=True)]) / np.prod(
        [pl if s else 1 - pl for pl, s in zip(p_low, answers, strict=True)]
    )
    rule = DecisionBySprt(cut=0.4, confidence=confidence, indifference=0.3)
    bound = confidence / (1 - confidence)
    assert (rule.check(now) is not None) == (odds >= bound or odds <= 1 / bound)


def test_money_for_calls_in_flight_and_the_next_is_set_aside() -> None:
    each = Usage(usd=0.1)
    assert Budget(usd=0.5).check(situation("1010", usage=each)) is None
    assert Budget(usd=0.5).check(situation("1010", usage=each, pending=1)) is not None
    assert Budget(usd=0.4).check(situation("1010", usage=each)) is not None


def test_calls_that_are_no_items_of_the_test_count_in_the_mean_cost_too() -> None:
    now = situation("10", usage=Usage(usd=0.1))
    extended = replace(now.state, usage=Usage(usd=0.6), n_dropped=4)  # six calls of 0.1 dollars
    assert Budget(usd=0.71).check(Situation(extended, now.pool)) is None
    assert Budget(usd=0.69).check(Situation(extended, now.pool)) is not None
    asked = extended.with_pending(ItemIndex(9))
    assert asked.n_dropped == asked.with_unscored(ItemIndex(9)).n_dropped == 4


def test_tokens_and_money_have_one_reason() -> None:
    now = situation("1010", usage=Usage(tokens=100))
    assert reason(Budget(tokens=450), now) is StopReason.BUDGET_EXHAUSTED
    assert reason(Budget(tokens=500), now) is None
    large = Budget(tokens=1_000_000).check(situation("1010", usage=Usage(tokens=300_000)))
    assert large is not None
    assert large.detail.startswith("1,200,000 of 1,000,000 tokens spent")
    small = Budget(usd=0.00005).check(situation("10", usage=Usage(usd=0.00002)))
    assert small is not None
    assert small.detail.startswith("0.00004 of 0.00005 usd spent; one more item")


def test_one_small_step_is_not_a_plateau() -> None:
    rule = Plateau(theta_change=0.2, estimator=ESTIMATOR)
    now = situation("111110")
    thetas = [estimate_of(ESTIMATOR, BANK, now.state.responses[:k]).theta for k in range(7)]
    steps = np.abs(np.diff(thetas))
    assert steps.min() < 0.2 < steps[-3:].max()
    assert rule.check(now) is None
    largest = float(steps[-3:].max())
    assert replace(rule, theta_change=largest).check(now) is None
    assert replace(rule, theta_change=largest * 1.001).check(now) is not None


def test_the_margin_is_half_of_the_reported_interval() -> None:
    now = situation(MIXED)
    prediction = PIrt().predict(BANK, now.state.responses, now.state.belief)
    margin = (prediction.hi - prediction.lo) / 2
    assert ScoreMargin(margin=margin * 1.001, predictor=PIrt()).check(now) is not None
    assert ScoreMargin(margin=margin * 0.999, predictor=PIrt()).check(now) is None


def test_an_exhausted_pool_has_no_information_left() -> None:
    now = situation("10", pending=58)
    assert reason(LowInformation(information=1e-9), now) is StopReason.LOW_INFORMATION
