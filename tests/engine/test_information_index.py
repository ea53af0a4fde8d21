import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.engine.bank import ItemBank
from app.engine.information_index import InformationIndex, largest
from app.engine.models.base import BoolArray
from tests.engine.random_banks import KINDS, Kind, clean_bank, random_bank


def brute_force(
    bank: ItemBank, theta: float, count: int, asked: set[int], active: BoolArray | None
) -> list[int]:
    values = bank.information(theta)
    left = [i for i in range(bank.n_items) if i not in asked and (active is None or active[i])]
    return sorted(left, key=lambda i: (-values[i], i))[:count]


@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**32 - 1),
    n_items=st.sampled_from([1, 2, 31, 33, 300, 1500]),
    steepness=st.sampled_from([0.0, 0.4, 2.0]),
    thetas=st.lists(
        st.floats(-5, 5) | st.floats(-100, 100) | st.sampled_from([0.0, 1 / 64, -1 / 64, 64.0]),
        min_size=1,
        max_size=4,
    ),
    count=st.integers(1, 40),
    share_asked=st.sampled_from([0.0, 0.05, 0.9, 1.0]),
    share_active=st.sampled_from([None, 1.0, 0.9, 0.1, 0.0]),
)
@settings(max_examples=200, deadline=None)
def test_the_index_makes_exactly_the_choice_of_brute_force(
    kind: Kind,
    seed: int,
    n_items: int,
    steepness: float,
    thetas: list[float],
    count: int,
    share_asked: float,
    share_active: float | None,
) -> None:
    rng = np.random.default_rng(seed)
    bank = random_bank(seed, n_items, steepness=steepness, kind=kind)
    index = InformationIndex(bank)
    active = None if share_active is None else rng.random(n_items) < share_active
    for theta in thetas:
        # Tests ask the best items, so the excluded ones come from the top of the list.
        order = np.argsort(-bank.information(theta), kind="stable")
        asked = set(order[: int(share_asked * n_items)].tolist())
        found = index.best(theta, count=count, asked=asked, active=active)
        assert found == brute_force(bank, theta, count, asked, active)


@given(
    items=st.lists(
        st.tuples(
            st.floats(-1e4, 1e4),
            st.floats(-1e6, 1e6),
            st.floats(0.0, 0.99),
            st.floats(0.001, 1.0),
        ),
        min_size=1,
        max_size=12,
    ),
    k=st.none() | st.floats(1e-6, 10.0),
    copies=st.integers(1, 40),
    theta=st.floats(-70, 70),
    count=st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_extreme_parameters_do_not_mislead_the_index(
    items: list[tuple[float, float, float, float]],
    k: float | None,
    copies: int,
    theta: float,
    count: int,
) -> None:
    a, intercept, c, share = (np.tile(column, copies) for column in zip(*items, strict=True))
    d = c + (1.0 - c) * share
    # Each copy lies a little further out, so some modes are near any theta.
    shift = np.repeat(np.arange(copies) * 0.05, len(items))
    dispersions = None if k is None else np.full(a.size, k)
    bank = ItemBank.from_intercepts(a=a, intercept=intercept - a * shift, c=c, d=d, k=dispersions)
    found = InformationIndex(bank).best(theta, count=count)
    assert found == brute_force(bank, theta, count, set(), None)


@pytest.mark.parametrize("count", [1, 3])
def test_equal_items_are_taken_by_position(count: int) -> None:
    bank = ItemBank.from_difficulties(a=np.full(500, 1.3), b=np.zeros(500))
    found = InformationIndex(bank).best(0.3, count=count, asked={0, 2})
    assert found == [1, 3, 4][:count]


def test_the_bounds_of_a_cell_are_the_largest_information_within_it() -> None:
    index = InformationIndex(clean_bank(1, 2_000))
    for number in (-130, -1, 0, 77):
        cell, within = index._cell(number), (number + np.linspace(0, 1, 65)) / 64
        most = index.bank.information(within).max(axis=0)
        assert -np.array(cell.negated_bounds) == pytest.approx(most[cell.items], rel=1e-4)
        assert -cell.negated_bounds[-1] >= np.delete(most, cell.items).max() * (1 - 1e-4)


def test_nothing_admissible_gives_nothing() -> None:
    bank = ItemBank.from_difficulties(a=[1.0, 1.0], b=[0.0, 1.0])
    assert InformationIndex(bank).best(0.0, asked={0, 1}) == []
    assert InformationIndex(bank).best(0.0, active=np.array([False, False])) == []


def test_largest_breaks_ties_by_position() -> None:
    values = np.array([1.0, 3.0, 3.0, 2.0, 3.0])
    assert largest(values, np.array([True, True, False, True, True]), 2) == [1, 4]
    open_items = ItemBank.from_difficulties(a=np.ones(5), b=np.zeros(5)).open_items({1}, None)
    assert largest(values, open_items, 9) == [2, 4, 3, 0]
