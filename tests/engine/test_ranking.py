from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import kendalltau, norm

from app.calibration.multidimensional.score_curves import fit_curves
from app.engine import Design, ItemBank, ItemIndex, Response, Stop, StopReason, Usage
from app.engine.bank import FloatArray
from app.engine.prediction.ability import Stated
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.p_irt import Prediction
from app.engine.ranking.ranking import Ranking, RankingAsk, RankingState, Verdict
from app.engine.ranking.ranks import Look, ranks_of
from app.engine.ranking.rules import Metric, RankingBudget, RankingDecision, RankingRules
from app.engine.ranking.simulation import kendall_tau, simulate_ranking
from app.engine.simulation.simulate import draw_scores
from app.errors import InvalidInputError, ScaleMismatchError

RNG = np.random.default_rng(20261120)
BANK = ItemBank.from_difficulties(a=RNG.lognormal(0, 0.3, 300), b=RNG.normal(0, 1, 300))
TEST = Design.from_dict({"preset": "ability"}).build(BANK)


def ranking(n: int, rules: RankingRules | None = None, **parts: object) -> Ranking:
    return Ranking(tests=(TEST,) * n, rules=rules or RankingRules(), **parts)  # type: ignore[arg-type]  # each test names its own


def rows(thetas: Sequence[float], seed: int) -> list[FloatArray]:
    return list(draw_scores(BANK, thetas, np.random.default_rng([1, seed])))


def test_examinees_that_differ_are_ranked_with_the_answers_it_takes_and_no_more() -> None:
    state, stop = simulate_ranking(ranking(3), rows([-1.5, 2.0, 0.3], 1), seed=1)
    ranks = ranking(3).ranks(state)
    assert ranks.groups == ((1,), (2,), (0,))
    assert stop.reason is StopReason.DECISION_REACHED
    assert state.n_asked < 3 * 60


def test_all_members_finish_the_warm_up_first() -> None:
    rank = ranking(3)
    answers, state, order = rows([2.0, 0.0, -2.0], 2), rank.start(), []
    for _ in range(30):
        step = rank.ask(state, 1)
        assert isinstance(step, RankingAsk)
        order.append(step.member)
        state = rank.administer(state, step.member, step.item)
        state = rank.tell(state, step.member, Response(step.item, answers[step.member][step.item]))
    assert [order.count(member) for member in range(3)] == [10, 10, 10]


def test_identical_examinees_get_the_same_items_and_tie() -> None:
    for seed in range(5):
        a, b, c = rows([-2.0, 0.0, 2.0], seed)
        state, stop = simulate_ranking(ranking(4), [a, b, b, c], seed=seed)
        ranks = ranking(4).ranks(state)
        assert [set(tie) for tie in ranks.ties] == [{1, 2}]
        assert stop.reason is StopReason.TIED
        one, other = state.members[1], state.members[2]
        shorter = min(one.n_scored, other.n_scored)
        shared = {r.item for r in one.responses} & {r.item for r in other.responses}
        assert len(shared) >= shorter - 1


@pytest.mark.parametrize("apart", [0, 1])
def test_scores_of_a_whole_bank_are_equal_or_decided(apart: int) -> None:
    test = Design.from_dict({"stopping": {"score_margin": None}}).build(BANK.take(np.arange(8)))
    rules = RankingRules(metric=Metric.SCORE, min_items=8, max_items=8)
    rank = Ranking(tests=(test,) * 2, rules=rules, budget=RankingBudget(items=16))
    ends = [np.array([1.0] * n + [0.0] * (8 - n)) for n in (4, 4 + apart)]
    state, stop = simulate_ranking(rank, ends, seed=1)
    ranks = rank.ranks(state)
    assert [len(group) for group in ranks.groups] == ([1, 1] if apart else [2])
    assert stop.reason is (StopReason.DECISION_REACHED if apart else StopReason.TIED)


def test_an_item_taken_over_from_a_rival_keeps_the_probability_that_it_was_drawn_with() -> None:
    bank = ItemBank.from_difficulties(a=np.ones(60), b=np.linspace(-2, 2, 60))
    records = np.array(list(draw_scores(bank, np.linspace(-2, 2, 60), np.random.default_rng(1))))
    curves = LearnedCurves(curves=fit_curves(records), n_reference=10)
    design = Design.from_dict(
        {"selection": {"criterion": "v_optimal"}, "stopping": {"score_margin": None}}
    )
    rank = Ranking(
        tests=(design.build(bank, curves=curves),) * 2,
        rules=RankingRules(min_items=20, max_items=40),
        budget=RankingBudget(items=80),
    )
    state, _ = simulate_ranking(rank, [records[30], records[31]], seed=3)
    one, other = ({r.item: r.draw for r in member.responses} for member in state.members)
    assert all(len([d for d in draws.values() if d and d.sampled]) >= 10 for draws in (one, other))
    assert all(one[item] == other[item] for item in one.keys() & other.keys())

    # Once the other examinee was asked a different item, the probability is unknown.
    leader = state.members[0]
    apart = rank.tests[1].start().with_pending(ItemIndex(59 if 59 not in leader.asked else 58))
    again = rank.start().with_member(0, leader).with_member(1, apart)
    step = rank.ask(again, 3, free=[1])
    assert isinstance(step, RankingAsk)
    assert (step.member, step.item in leader.asked, step.probability) == (1, True, 1.0)


def test_the_item_that_most_rivals_were_asked_comes_first_and_else_the_earliest() -> None:
    rank = ranking(3)
    state = rank.start()
    for member, asked in ((1, (5, 7)), (2, (9, 7))):
        for item in map(ItemIndex, asked):
            state = rank.administer(state, member, item)
            if item != 9:  # pending items count, too
                state = rank.tell(state, member, Response(item, 1.0))
    for rivals, first in (((1, 2), 7), ((1,), 5), ((2,), 7)):
        assert rank._item(state, 0, rivals, seed=1).item == first
    alone = ranking(3, RankingRules(shared_items=False))
    assert alone._item(state, 0, (1, 2), seed=1).item not in (5, 7, 9)


@pytest.mark.slow
def test_equal_examinees_are_seldom_separated_and_less_with_holm() -> None:
    wrong = {True: 0, False: 0}
    for holm in wrong:
        rank = ranking(4, RankingRules(holm=holm, max_items=40))
        for seed in range(16):
            state, _ = simulate_ranking(rank, rows([0.3] * 4, seed), seed=seed)
            wrong[holm] += any(pair.decided for pair in rank.ranks(state).pairs)
    assert wrong[True] <= 2
    assert wrong[False] <= 6


def test_settled_members_leave_their_share_to_the_others() -> None:
    rank = ranking(4, budget=RankingBudget(items=200))
    state, _ = simulate_ranking(rank, rows([-3.0, 0.0, 0.25, 3.0], 4), seed=4)
    lowest, one, other, highest = (member.n_asked for member in state.members)
    assert max(lowest, highest) < min(one, other)


def test_a_pair_is_decided_at_planned_looks_and_at_the_end_alone() -> None:
    rank = ranking(2, RankingRules(min_items=6, max_items=24), budget=RankingBudget(items=34))
    answers, state = rows([0.55, -0.55], 4), rank.start()
    known, changes = 1.0, []  # answers of the member with fewest, where the pair's p-value changes
    while isinstance(step := rank.ask(state, 4), RankingAsk):
        state = rank.administer(state, step.member, step.item)
        score = float(answers[step.member][step.item])
        state = rank.tell(state, step.member, Response(step.item, score))
        pair = rank.ranks(state).pairs[0]
        p_value = pair.p_value if pair.above == 0 else 1.0
        if p_value != known:
            known = p_value
            changes.append(min(member.n_scored for member in state.members))
    assert changes[-1] == min(member.n_scored for member in state.members)  # the end of the budget
    assert changes[0] == 6
    assert set(changes[:-1]) <= {6, 12}
    # A look knows the answers until then, however the state was reached.
    again = rank.looked(RankingState(state.members))
    assert again.seen == state.seen
    assert [len(seen) for seen in again.seen] == [2, 2]
    early = rank.tests[0].replay(state.members[0].responses[:6]).belief
    prior = 1.0  # the prior of theta, see `TEST`
    share = 1 - early.se**2 / prior**2
    assert again.seen[0][0].theta == pytest.approx(early.theta / share)


@pytest.mark.slow
def test_error_rate_of_equal_members_among_others() -> None:
    rank, apart = ranking(4, budget=RankingBudget(items=160)), 0
    for seed in range(40):
        state, _ = simulate_ranking(rank, rows([-0.8, 0.0, 0.0, 0.8], 500 + seed), seed=seed)
        pairs = rank.ranks(state).pairs
        apart += any(p.decided for p in pairs if {p.above, p.below} == {1, 2})
    assert apart <= 9  # of 40 at 10 %: more with a probability of 1 %


def test_the_difference_of_equal_members_has_its_standard_error() -> None:
    rank = ranking(2, RankingRules(min_items=6, max_items=6))
    z: dict[str, list[float]] = {"alone": [], "with the prior": []}
    for seed in range(150):
        state, _ = simulate_ranking(rank, rows([0.0, 0.0], 1000 + seed), seed=seed)
        pair = rank.ranks(state).pairs[0]
        z["alone"].append(pair.z**2)
        one, other = (member.belief for member in state.members)
        z["with the prior"].append((one.theta - other.theta) ** 2 / (one.se**2 + other.se**2))
    # The mean of 150 squared standard normals lies outside 0.7 to 1.35 in 0.1 % of cases.
    assert 0.7 < np.mean(z["alone"]) < 1.35
    assert np.mean(z["with the prior"]) < 0.8 * np.mean(z["alone"])


@pytest.mark.parametrize("method", ["mle", "wle"])
def test_a_theta_without_prior_decides_unchanged(method: str) -> None:
    test = Design.from_dict({"preset": "ability", "estimator": {"method": method}}).build(BANK)
    rank = Ranking(tests=(test,) * 2, rules=RankingRules(), budget=RankingBudget(items=60))
    state, _ = simulate_ranking(rank, rows([0.4, -0.4], 12), seed=1)
    pair = rank.ranks(state).pairs[0]
    above, below = (state.members[member].belief for member in (pair.above, pair.below))
    assert pair.z == pytest.approx((above.theta - below.theta) / np.hypot(above.se, below.se))


def test_expensive_members_are_asked_less() -> None:
    answers = rows([0.0, 0.3, 0.0, 0.3], 5)
    cheap_first = ranking(4, costs=(1, 1, 9, 9), budget=RankingBudget(items=120))
    state, _ = simulate_ranking(cheap_first, answers, seed=1)
    asked = [member.n_asked for member in state.members]
    assert min(asked[:2]) >= 2 * max(asked[2:])


def test_items_in_budget_are_never_exceeded() -> None:
    rank = ranking(3, budget=RankingBudget(items=37))
    state, stop = simulate_ranking(rank, rows([0.0, 0.1, 0.2], 6), seed=1)
    assert state.n_asked == 37
    assert stop.reason is StopReason.BUDGET_EXHAUSTED
    assert "37 items and" in stop.detail  # an unknown cost is not zero dollars


def test_money_for_the_calls_in_flight_is_set_aside() -> None:
    rank = ranking(2, RankingRules(min_items=2, futility=0), budget=RankingBudget(usd=1.0))
    state, spent = rank.start(), 0.0
    while isinstance(step := rank.ask(state, 1), RankingAsk):
        state = rank.administer(state, step.member, step.item)
        price = 0.04 if step.member else 0.11
        spent += price
        state = rank.tell(
            state, step.member, Response(step.item, state.n_asked % 2, Usage(usd=price))
        )
    assert isinstance(step, Stop)
    assert step.reason is StopReason.BUDGET_EXHAUSTED
    assert 0.85 < spent <= 1.0


def test_nothing_is_asked_while_members_needing_answers_are_busy() -> None:
    rank = ranking(2)
    assert rank.ask(rank.start(), 1, free=()) is None
    step = rank.ask(rank.start(), 1, free=(1,))
    assert isinstance(step, RankingAsk)
    assert step.member == 1


def test_items_in_flight_are_not_asked_again_and_count_for_the_warm_up() -> None:
    rank, state = ranking(2, RankingRules(min_items=3)), ranking(2).start()
    asked = []
    while isinstance(step := rank.ask(state, 1), RankingAsk):
        state = rank.administer(state, step.member, step.item)
        asked.append((step.member, step.item))
        if len(asked) == 6:
            break
    assert len(set(asked)) == 6
    assert [member.n_asked for member in state.members] == [3, 3]


def test_nothing_is_decided_on_fewer_answers_than_a_result_takes() -> None:
    rank = ranking(2, RankingRules(min_items=1, confidence=0.6))
    apart = [np.ones(BANK.n_items), np.zeros(BANK.n_items)]
    state, stop = simulate_ranking(rank, apart, seed=1)
    assert stop.reason is StopReason.DECISION_REACHED
    assert [member.n_scored for member in state.members] == [5, 5]


def test_an_examinee_without_answers_is_above_and_below_nobody() -> None:
    rank = ranking(2, RankingRules(min_items=5, max_items=20))
    answers, state = rows([2.5], 7)[0], rank.start()
    while isinstance(step := rank.ask(state, 1), RankingAsk):
        state = rank.administer(state, step.member, step.item)
        if step.member == 0:
            state = rank.tell(state, 0, Response(step.item, answers[step.item]))
        else:
            state = rank.skip(state, 1, step.item)
    ranks = rank.ranks(state)
    assert set(ranks.ties[0]) == {0, 1}
    assert ranks.pairs[0].p_above == 0.5
    assert state.members[1].n_asked == 20


def test_a_small_bank_is_asked_to_its_end_and_then_ties_remain() -> None:
    bank = ItemBank.from_difficulties(a=np.ones(12), b=np.linspace(-1, 1, 12))
    rank = Ranking(
        tests=(Design.from_dict({"preset": "ability"}).build(bank),) * 2,
        rules=RankingRules(futility=0),
    )
    answers = [np.tile([1.0, 0.0], 6), np.tile([0.0, 1.0], 6)]
    state, stop = simulate_ranking(rank, answers, seed=1)
    assert min(member.n_asked for member in state.members) >= 11
    assert stop.reason is StopReason.TIED


@pytest.mark.parametrize("holm", [False, True])
@pytest.mark.parametrize(
    ("decision", "max_items"),
    [
        (RankingDecision.ONE_LOOK, 40),
        (RankingDecision.PLANNED_LOOKS, 40),
        (RankingDecision.PLANNED_LOOKS, 10),  # there is no earlier look
    ],
)
def test_the_boundary_of_futility_is_where_the_last_look_decides(
    holm: bool, decision: RankingDecision, max_items: int
) -> None:
    rules = RankingRules(decision=decision, holm=holm, max_items=max_items, confidence=0.9)
    rank, once = ranking(3, rules), decision is RankingDecision.ONE_LOOK
    needed = rank._boundary()
    share = 1.0 if once or max_items == 10 else 0.8
    for z, decided in ((needed - 1e-6, False), (needed + 1e-6, True)):
        # Three examinees with one pair near the boundary, the first that Holm's procedure tests.
        stated = [Stated(theta=z * at, sd=0.5**0.5) for at in (0.0, 0.5, 1.0)]
        ranks = ranks_of(
            stated, looks=[Look(stated, share)], confidence=0.9, holm=holm, either_way=once
        )
        assert {(pair.above, pair.below): pair.decided for pair in ranks.pairs}[2, 0] is decided


def test_a_pairs_chance_is_its_predictive_power() -> None:
    rules = RankingRules(min_items=10, max_items=40, confidence=0.9)
    rank = ranking(2, rules)
    state, _ = simulate_ranking(
        ranking(2, replace(rules, max_items=15)), rows([0.2, -0.2], 3), seed=3
    )
    pair = rank.ranks(state).pairs[0]
    gap = rank._evidence(pair.above, state.members[pair.above]).minus(
        rank._evidence(pair.below, state.members[pair.below])
    )
    # With all 40 answers the error is that of as many answers of the same information.
    share = 15 / 40
    draws = np.random.default_rng(1).normal(size=(2, 400_000))
    truth = gap.estimate + gap.sd * draws[0]  # under a flat prior
    further = truth + gap.sd * np.sqrt(share / (1 - share)) * draws[1]
    final = share * gap.estimate + (1 - share) * further
    decided = np.abs(final) / (gap.sd * share**0.5) > rank._boundary()
    assert [member.n_scored for member in state.members] == [15, 15]
    assert 0.02 < decided.mean() < 0.98
    assert rank._chance(state, pair) == pytest.approx(decided.mean(), abs=0.004)


def test_a_difference_known_to_be_negligible_is_a_tie() -> None:
    rules = RankingRules(tie_width=1.5, max_items=200, futility=0)
    state, stop = simulate_ranking(ranking(2, rules), rows([0.0, 0.0], 8), seed=1)
    assert stop.reason is StopReason.TIED
    assert max(member.n_asked for member in state.members) < 100


def test_only_a_member_joining_a_finished_ranking_is_asked() -> None:
    answers = rows([-1.5, 1.5, 0.0], 9)
    before, _ = simulate_ranking(ranking(2), answers[:2], seed=1)
    rank = ranking(3, closed=frozenset({0, 1}))
    joined = RankingState((*before.members, TEST.start()))
    state, _ = simulate_ranking(rank, answers, seed=1, state=joined)
    assert state.members[:2] == before.members
    assert rank.ranks(state).order == (1, 2, 0)


def test_several_answers_may_be_under_way_at_once() -> None:
    one, _ = simulate_ranking(ranking(3), rows([-1.0, 0.0, 1.2], 10), seed=1)
    four, stop = simulate_ranking(ranking(3), rows([-1.0, 0.0, 1.2], 10), seed=1, concurrency=4)
    assert ranking(3).ranks(four).order == ranking(3).ranks(one).order
    assert all(not member.pending for member in four.members)
    assert stop.reason in (StopReason.DECISION_REACHED, StopReason.TIED)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"n": 1}, "at least two examinees, got 1"),
        ({"n": 3, "budget": RankingBudget(items=29)}, "29 items is too small for the warm-up"),
        ({"n": 2, "budget": RankingBudget(tokens=19)}, "19 tokens is too small"),
        (
            {"n": 2, "rules": RankingRules(min_items=301, max_items=400)},
            "expected at most the 300 items",
        ),
        ({"n": 2, "costs": (1.0, 0.0)}, "one cost above 0 for each"),
        ({"n": 2, "costs": (1.0,)}, "one cost above 0 for each"),
        (
            {"n": 4, "closed": frozenset({3}), "budget": RankingBudget(items=29)},
            "29 items is too small for the warm-up: 3 examinees x 10 items need at least 30",
        ),
    ],
)
def test_a_ranking_that_cannot_run_is_refused_at_once(
    parts: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        ranking(**parts)  # type: ignore[arg-type]  # parts of several types


def test_tests_on_different_banks_are_not_ranked_together() -> None:
    other = ItemBank.from_difficulties(a=BANK.a, b=BANK.b, scale="other")
    with pytest.raises(ScaleMismatchError, match="thetas cannot be compared"):
        Ranking(
            tests=(TEST, Design.from_dict({"preset": "ability"}).build(other)), rules=RankingRules()
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"confidence": 0.5},
        {"confidence": 1.0},
        {"min_items": 0},
        {"min_items": 20, "max_items": 10},
        {"tie_width": -1.0},
        {"futility": 0.5},
    ],
)
def test_rules_out_of_range_are_refused(fields: dict[str, float]) -> None:
    with pytest.raises(InvalidInputError):
        RankingRules(**fields)  # type: ignore[arg-type]  # one field each


def test_an_item_index_is_asked_of_each_member_once() -> None:
    rank = ranking(2)
    state = rank.administer(rank.start(), 0, ItemIndex(3))
    with pytest.raises(InvalidInputError, match="asked already"):
        rank.administer(state, 0, ItemIndex(3))


def test_members_are_ranked_by_score_or_by_ability() -> None:
    rules = RankingRules(metric=Metric.SCORE, min_items=10, max_items=60)
    thetas = (-1.5, 0.0, 1.5)
    rows = list(draw_scores(BANK, np.array(thetas), np.random.default_rng(5)))
    rank = Ranking(tests=(TEST,) * 3, rules=rules, budget=RankingBudget(items=180))
    state, stop = simulate_ranking(rank, rows, seed=1)
    ranks = rank.ranks(state)
    assert ranks.order == (2, 1, 0)
    assert stop.reason is StopReason.DECISION_REACHED
    told = [TEST.predict(member) for member in state.members]
    above = next(pair for pair in ranks.pairs if (pair.above, pair.below) == (2, 1))
    spread = np.hypot(told[2].value - told[2].lo, told[1].hi - told[1].value) / 1.959964
    assert above.z == pytest.approx((told[2].value - told[1].value) / spread)


def test_scores_are_held_apart_by_the_sides_of_their_intervals_that_face_each_other() -> None:
    # One examinee answers rightly, but only every other question; the other's score is known.
    bank = BANK.take(np.arange(40))
    test = Design.from_dict({"stopping": {"score_margin": None}}).build(bank)
    rules = RankingRules(metric=Metric.SCORE, min_items=5, max_items=40)
    rank = Ranking(tests=(test,) * 2, rules=rules, budget=RankingBudget(items=60))
    state, known = rank.start(), 0.6
    for item in map(ItemIndex, range(40)):
        state = rank.administer(state, 1, item)
        state = rank.tell(state, 1, Response(item, float(item < known * 40)))
    for item in map(ItemIndex, range(20)):
        state = rank.administer(state, 0, item)
        failed = item % 2 == 1
        right = Response(item, 1.0)
        state = rank.skip(state, 0, item) if failed else rank.tell(state, 0, right)
    told, exact = (test.predict(member) for member in state.members)
    assert told.lo < exact.value == known < told.value - told.margin
    (pair,) = rank.ranks(state).pairs
    assert (pair.above, pair.below, pair.decided) == (0, 1, False)
    z = 1.959964 * (told.value - known) / (told.value - told.lo)
    assert pair.p_above == pytest.approx(float(norm.cdf(z)))


@pytest.mark.parametrize("known", [0, 1])
def test_a_score_that_may_still_fall_does_not_equal_a_known_one(known: int) -> None:
    class Highest:
        def predict(self, *_: object) -> Prediction:
            return Prediction(value=1.0, lo=0.7, hi=1.0, method="p-irt")

    test = Design.from_dict({"stopping": {"score_margin": None}}).build(BANK.take(np.arange(8)))
    rules = RankingRules(metric=Metric.SCORE, min_items=5, max_items=8)
    tests = (replace(test, predictor=Highest()),) * 2
    rank = Ranking(tests=tests, rules=rules, budget=RankingBudget(items=16))
    state = rank.start()
    for member in range(2):
        for item in map(ItemIndex, range(8 if member == known else 5)):
            state = rank.administer(state, member, item)
            state = rank.tell(state, member, Response(item, 1.0))
    (pair,) = rank.ranks(state).pairs
    assert rank.verdict(state, pair) is Verdict.OPEN


def test_scores_are_no_tie_while_the_higher_one_may_be_much_higher() -> None:
    class Told:
        def __init__(self, lo: float, value: float, hi: float) -> None:
            self.told = Prediction(value=value, lo=lo, hi=hi, method="p-irt")

        def predict(self, *_: object) -> Prediction:
            return self.told

    test = Design.from_dict({"stopping": {"score_margin": None}}).build(BANK.take(np.arange(8)))
    tests = tuple(replace(test, predictor=Told(*at)) for at in ((0.29, 0.3, 0.6), (0.29,) * 3))
    rules = RankingRules(metric=Metric.SCORE, min_items=5, max_items=8, tie_width=0.05)
    rank = Ranking(tests=tests, rules=rules)
    state = rank.start()
    for member, item in product(range(2), map(ItemIndex, range(5))):
        state = rank.administer(state, member, item)
        state = rank.tell(state, member, Response(item, 1.0))
    (pair,) = rank.ranks(state).pairs
    assert rank.verdict(state, pair) is Verdict.OPEN


def test_kendalls_tau_of_a_measure_with_ties_is_tau_b() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        order, measure = rng.permutation(7), rng.integers(0, 4, 7).astype(float)
        expected = kendalltau(-np.argsort(order), measure).statistic
        assert kendall_tau(order.tolist(), measure) == pytest.approx(expected)
    assert kendall_tau([1, 0, 2], np.ones(3)) == 0.0
