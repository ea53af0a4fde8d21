"""The contract of every selector."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from app.engine.bank import ItemBank, ItemIndex
from app.engine.estimation.estimators import GridEstimator
from app.engine.information_index import InformationIndex
from app.engine.selection.base import Pool, Selector
from app.engine.state import CatState, Response
from tests.engine.random_banks import KINDS, Kind, random_bank

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


class SelectorContract:
    """Parametrise it by functions that make a selector for a bank of any model."""

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
            assert first is not None
            assert type(first.item) is int

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
