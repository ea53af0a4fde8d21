from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.estimation.estimators import GridEstimator
from app.engine.information_index import InformationIndex
from app.engine.selection.base import Criterion, Pool, Selector
from app.engine.selection.information import (
    MaximumInformation,
    MutualInformation,
    PerCost,
    PosteriorWeighted,
    best_items,
    coarse_posterior,
)
from app.engine.selection.selectors import (
    AStratified,
    ContentBalanced,
    NearestStart,
    Random,
    Randomesque,
    RandomStart,
    SympsonHetter,
)
from app.engine.state import CatState, Response
from tests.engine.random_banks import KINDS, Kind, clean_bank, random_bank
from tests.values import not_none

TAGS = ("algebra", "geometry", "logic")


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def chosen_by(selector: Selector, pool: Pool, state: CatState, seed: int = 1) -> ItemIndex:
    return not_none(selector.select(pool, state, rng(seed))).item


def entropy(p: FloatArray) -> FloatArray:
    terms = [np.where(x > 0, -x * np.log(np.maximum(x, 1e-300)), 0.0) for x in (p, 1 - p)]
    return terms[0] + terms[1]


def after(bank: ItemBank, answers: list[tuple[int, float]]) -> CatState:
    estimator = GridEstimator()
    state = CatState(belief=estimator.start(bank))
    for item, score in answers:
        response = Response(ItemIndex(item), score)
        belief = estimator.update(bank, estimator.start(bank), response)
        state = state.with_pending(response.item).with_response(response, belief)
    return state


def tags_of(n_items: int, seed: int = 1) -> list[tuple[str, ...]]:
    draws = np.random.default_rng(seed).random((n_items, len(TAGS))) < 0.4
    return [tuple(tag for tag, has in zip(TAGS, row, strict=True) if has) for row in draws]


N_ITEMS = 45
Make = Callable[[ItemBank], Selector]


def play(
    bank: ItemBank, selector: Selector, pool: Pool, seed: int, in_flight: int = 1
) -> tuple[CatState, list[ItemIndex]]:
    """Run a test with random answers and failures to the end of the pool; return its items."""
    estimator = GridEstimator()
    rng = np.random.default_rng(seed)
    state = CatState(belief=estimator.start(bank))
    asked: list[ItemIndex] = []
    while True:
        chosen = None
        if len(state.pending) < in_flight:
            chosen = selector.select(pool, state, rng)
        if chosen is not None:
            asked.append(chosen.item)
            state = state.with_pending(chosen.item)
        elif not state.pending:
            return state, asked
        else:
            closed = state.pending[int(rng.integers(len(state.pending)))]
            if rng.random() < 0.2:
                state = state.with_unscored(closed)
            else:
                response = Response(closed, float(rng.integers(0, 2)))
                state = state.with_response(
                    response, estimator.update(bank, estimator.start(bank), response)
                )


MOST = MaximumInformation()
TARGETS = {"algebra": 0.5, "geometry": 0.2, "logic": 0.1}


def by_cost(bank: ItemBank) -> Selector:
    costs = np.linspace(1.0, 9.0, bank.n_items)
    return Randomesque(criterion=PerCost(criterion=MOST, costs=costs, weight=1.0))


@pytest.mark.parametrize(
    "make",
    [
        lambda _: Randomesque(criterion=MOST),
        lambda _: Randomesque(criterion=PosteriorWeighted()),
        lambda _: Randomesque(criterion=MutualInformation()),
        lambda _: Randomesque(criterion=MOST, top_k=5),
        by_cost,
        lambda bank: Randomesque(criterion=AStratified.of(bank, strata=4, length=20)),
        lambda _: Random(),
        lambda _: RandomStart(items=3, then=Randomesque(criterion=MOST)),
        lambda _: NearestStart(then=Randomesque(criterion=MOST)),
        lambda bank: balanced(TARGETS, tags_of(bank.n_items)),
        lambda bank: SympsonHetter(criterion=MOST, acceptance=np.linspace(0, 1, bank.n_items)),
    ],
)
class TestSelectors:
    """The contract of every selector, for a bank of any model."""

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        return request.param  # type: ignore[no-any-return]  # pytest types no parameters

    @pytest.mark.parametrize("in_flight", [1, 2, 5])
    @pytest.mark.parametrize("seed", [1, 2])
    def test_each_active_item_is_asked_once_and_no_other(
        self, make: Make, seed: int, in_flight: int, kind: Kind
    ) -> None:
        bank = random_bank(seed, N_ITEMS, kind=kind)
        active = np.random.default_rng(seed).random(N_ITEMS) < 0.6
        pool = Pool(InformationIndex(bank), active)
        _, asked = play(bank, make(bank), pool, seed, in_flight)
        assert sorted(asked) == np.flatnonzero(active).tolist()

    def test_the_same_state_and_generator_give_the_same_plain_item(
        self, make: Make, kind: Kind
    ) -> None:
        for seed in (1, 2, 3):
            bank = random_bank(seed, N_ITEMS, kind=kind)
            pool = Pool(InformationIndex(bank))
            state = CatState(belief=GridEstimator().start(bank)).with_pending(ItemIndex(seed))
            first, second = (
                make(bank).select(pool, state, np.random.default_rng(seed)) for _ in range(2)
            )
            assert first == second
            assert type(not_none(first).item) is int

    def test_an_empty_pool_gives_nothing(self, make: Make, kind: Kind) -> None:
        bank = random_bank(1, N_ITEMS, kind=kind)
        pool = Pool(InformationIndex(bank), np.zeros(N_ITEMS, dtype=np.bool_))
        state = CatState(belief=GridEstimator().start(bank))
        assert make(bank).select(pool, state, np.random.default_rng(1)) is None

    def test_it_is_immutable(self, make: Make) -> None:
        selector = make(random_bank(1, N_ITEMS))
        for name in getattr(type(selector), "__dataclass_fields__", ["anything"]):
            with pytest.raises(FrozenInstanceError):
                setattr(selector, name, None)


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_weighted_criteria_agree_with_sums_over_the_full_posterior(seed: int) -> None:
    bank = random_bank(seed, 30, steepness=0.3)
    state = after(bank, [(0, 1.0), (1, 0.0)])
    pool = Pool(InformationIndex(bank))
    nodes, weights = state.belief.nodes, state.belief.weights
    np.testing.assert_allclose(
        PosteriorWeighted().values(pool, state),
        weights @ bank.information(nodes),
        rtol=0.02,
        atol=1e-3,
    )
    p = bank.expected_score(nodes)
    mean = weights @ p
    exact = entropy(mean) - weights @ entropy(p)
    gain = MutualInformation().values(pool, state)
    np.testing.assert_allclose(gain, exact, rtol=0.02, atol=1e-3)
    assert (gain > -1e-12).all()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_a_coarse_posterior_keeps_mass_and_mean_on_few_nodes(seed: int) -> None:
    belief = after(random_bank(seed, 30), [(2, 1.0), (3, 1.0), (4, 0.0)]).belief
    nodes, weights = coarse_posterior(belief)
    assert nodes.size < 40
    assert weights.sum() == pytest.approx(1.0)
    assert weights @ nodes == pytest.approx(belief.weights @ belief.nodes, abs=0.002)


def test_weighting_lowers_a_steep_item_under_an_uncertain_theta() -> None:
    # Item 0 is a step at 0, item 1 is gentle; theta 0 is a guess with standard deviation 1.
    bank = ItemBank.from_difficulties(a=[40.0, 2.5], b=[0.0, 0.0])
    state, pool = after(bank, []), Pool(InformationIndex(bank))
    assert best_items(MOST, pool, state, 1) == [0]
    weighted = PosteriorWeighted().values(pool, state)
    assert weighted[0] / weighted[1] < 20 < (40 / 2.5) ** 2


def test_randomesque_draws_evenly_from_the_best_and_only_from_them() -> None:
    bank = clean_bank(3, 200)
    state, pool = after(bank, []), Pool(InformationIndex(bank))
    best = best_items(MOST, pool, state, 5)
    selector = Randomesque(criterion=MaximumInformation(), top_k=5)
    drawn = [chosen_by(selector, pool, state, seed) for seed in range(400)]
    counts = [drawn.count(item) for item in best]
    assert sum(counts) == 400
    assert min(counts) > 50


def test_random_start_asks_chance_items_before_the_best_ones() -> None:
    bank = clean_bank(3, 200)
    pool = Pool(InformationIndex(bank))
    selector = RandomStart(items=1, then=Randomesque(criterion=MaximumInformation()))
    first = {chosen_by(selector, pool, after(bank, []), seed) for seed in range(50)}
    assert len(first) > 30
    for started in (after(bank, [(7, 1.0)]), after(bank, []).with_pending(ItemIndex(7))):
        assert len({chosen_by(selector, pool, started, seed) for seed in range(50)}) == 1


def test_the_nearest_item_is_asked_first_and_never_again() -> None:
    bank = ItemBank.from_difficulties(a=[0.3, 2.0, 2.0, 2.0], b=[-0.1, 0.3, -0.5, 0.6])
    selector, pool = NearestStart(then=Randomesque(criterion=MOST)), Pool(InformationIndex(bank))
    assert chosen_by(selector, pool, after(bank, [])) == 0
    active = np.array([False, True, True, True])
    assert chosen_by(selector, Pool(InformationIndex(bank), active), after(bank, [])) == 1
    at_zero = after(bank, []).with_pending(ItemIndex(3))
    assert chosen_by(selector, pool, at_zero) == 1
    answered = after(bank, [(2, 1.0)])
    information = np.delete(bank.information(answered.belief.theta), 2)
    assert chosen_by(selector, pool, answered) == [0, 1, 3][int(information.argmax())] != 0


@pytest.mark.parametrize(("weight", "expected"), [(0.0, 0), (1.0, 1)])
def test_cost_weight_turns_the_choice_to_cheap_items(weight: float, expected: int) -> None:
    bank = ItemBank.from_difficulties(a=[2.0, 1.8], b=[0.0, 0.0])
    criterion = PerCost(
        criterion=MaximumInformation(), costs=np.array([300.0, 100.0]), weight=weight
    )
    pool = Pool(InformationIndex(bank))
    assert best_items(criterion, pool, after(bank, []), 1) == [expected]


def test_a_stratified_tests_rise_from_flat_to_steep_items() -> None:
    bank = clean_bank(5, 400)
    selector = Randomesque(criterion=AStratified.of(bank, strata=4, length=40))
    estimator, state = GridEstimator(), after(bank, [])
    pool = Pool(InformationIndex(bank))
    slopes = []
    for step in range(40):
        item = chosen_by(selector, pool, state)
        slopes.append(bank.a[item])
        response = Response(item, float(step % 2))
        belief = estimator.update(bank, estimator.start(bank), response)
        state = state.with_pending(item).with_response(response, belief)
    quarters = np.quantile(bank.a, [0.25, 0.5, 0.75])
    assert np.searchsorted(quarters, slopes).tolist() == [k // 10 for k in range(40)]


def test_an_exhausted_stratum_is_replaced_by_the_next_steeper_one() -> None:
    bank = ItemBank.from_difficulties(a=[0.5, 1.0, 1.5, 2.0], b=[0.0, 0.0, 0.0, 0.0])
    criterion = AStratified.of(bank, strata=4, length=40)
    pool = Pool(InformationIndex(bank))
    assert best_items(criterion, pool, after(bank, []), 4) == [0, 1, 2, 3]
    assert best_items(criterion, pool, after(bank, [(0, 1.0)]), 1) == [1]
    # An item in flight has used its stage: the third stage begins, and not the first again.
    twice = ItemBank.from_difficulties(a=np.linspace(0.5, 2.0, 8), b=np.zeros(8))
    staged = AStratified.of(twice, strata=4, length=4)
    second = after(twice, [(0, 1.0)])
    by_stratum = [2, 3, 4, 5, 1, 6, 7]  # the next steeper, the next flatter, the second steeper
    assert best_items(staged, Pool(InformationIndex(twice)), second, 7) == by_stratum
    in_flight = after(twice, [(0, 1.0)]).with_pending(ItemIndex(2))
    assert best_items(staged, Pool(InformationIndex(twice)), in_flight, 1) == [4]


def balanced(targets: dict[str, float], tags: Sequence[tuple[str, ...]]) -> ContentBalanced:
    return ContentBalanced.of(targets, tags, Randomesque(criterion=MaximumInformation()))


@pytest.mark.parametrize("targets", [TARGETS, {"algebra": 0.6, "geometry": 0.4, "logic": 0.9}])
def test_the_chosen_item_leaves_the_least_squared_deviation_of_all_tags(
    targets: dict[str, float],
) -> None:
    bank, tags = clean_bank(2, 60), tags_of(60)
    selector, pool = balanced(targets, tags), Pool(InformationIndex(bank))
    state = after(bank, [])
    wanted = dict(targets)
    if (rest := 1 - sum(targets.values())) > 0:
        wanted["none"] = rest
    carried = [tag or ("none",) for tag in tags]
    for step in range(25):
        asked = list(state.asked)

        def deviation(item: int, asked: list[ItemIndex] = asked) -> float:
            return sum(
                (share * (len(asked) + 1) - sum(tag in carried[i] for i in (*asked, item))) ** 2
                for tag, share in wanted.items()
            )

        open_ = [item for item in range(60) if item not in asked]
        least = min(map(deviation, open_))
        among = [item for item in open_ if deviation(item) < least + 1e-9]
        information = bank.information(state.belief.theta)
        chosen = chosen_by(selector, pool, state)
        assert chosen == max(among, key=lambda item: information[item])
        state = state.with_pending(chosen)
        if step % 2:
            state = state.with_response(Response(state.pending[0], 1.0), state.belief)


def test_items_sampled_within_a_tag_are_no_sample_of_all() -> None:
    bank = clean_bank(2, 300)
    tags = [(TAGS[i % 3],) for i in range(300)]
    shares_wanted = {"algebra": 0.5, "geometry": 0.3, "logic": 0.2}
    selector = ContentBalanced.of(shares_wanted, tags, Random())
    found = selector.select(Pool(InformationIndex(bank)), after(bank, []), rng(0))
    assert not_none(found).probability == 1.0


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_sympson_hetter_accepts_the_best_item_as_often_as_it_may(share: float) -> None:
    bank = clean_bank(4, 100)
    state, pool = after(bank, []), Pool(InformationIndex(bank))
    best, second = best_items(MOST, pool, state, 2)
    acceptance = np.ones(100)
    acceptance[best] = share
    selector = SympsonHetter(criterion=MaximumInformation(), acceptance=acceptance)
    drawn = [chosen_by(selector, pool, state, seed) for seed in range(400)]
    assert set(drawn) <= {best, second}
    assert drawn.count(best) / 400 == pytest.approx(share, abs=0.08)


@pytest.mark.parametrize(
    "criterion", [MaximumInformation(), PosteriorWeighted(), MutualInformation()]
)
def test_best_items_are_ordered_by_value_then_position(criterion: Criterion) -> None:
    bank = random_bank(9, 60)
    pool, state = Pool(InformationIndex(bank)), after(bank, [(5, 1.0)])
    values: FloatArray = criterion.values(pool, state)
    key: Callable[[int], tuple[float, int]] = lambda i: (-values[i], i)  # noqa: E731
    expected = sorted((i for i in range(60) if i != 5), key=key)
    assert best_items(criterion, pool, state, 10) == expected[:10]
