import dataclasses

import numpy as np
import pytest

from app.engine.bank import ItemBank
from app.errors import ItemBankError, UnknownNameError


def bank() -> ItemBank:
    return ItemBank.from_difficulties(
        a=[1.0, 2.0, -0.5], b=[0.0, 1.0, 2.0], c=[0.0, 0.2, 0.0], item_ids=["x", "y", "z"]
    )


def test_difficulties_and_intercepts_describe_the_same_bank() -> None:
    by_intercept = ItemBank.from_intercepts(
        a=[1.0, 2.0, -0.5], intercept=[0.0, -2.0, 1.0], c=[0.0, 0.2, 0.0]
    )
    assert bank().b.tolist() == [0.0, 1.0, 2.0]
    assert bank().intercept.tolist() == by_intercept.intercept.tolist()
    assert by_intercept.item_ids == ("1", "2", "3")


def test_an_item_without_slope_has_no_difficulty() -> None:
    flat = ItemBank.from_intercepts(a=[0.0, 1.0], intercept=[1.0, 1.0])
    assert np.isnan(flat.b[0])
    assert flat.b[1] == -1.0


def test_parameters_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        bank().a[0] = 3.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        bank().scale = "other"  # type: ignore[misc]  # that it is refused is the point


def test_changing_the_arrays_a_bank_was_made_of_leaves_it_as_it_was() -> None:
    a = np.array([1.0, 1.0])
    made = ItemBank.from_intercepts(a=a, intercept=[0.0, 0.0])
    a[0] = 9.0
    assert made.a[0] == 1.0


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"a": [1.0, np.nan, 1.0]}, "/items/1/a", "'y': a is nan"),
        ({"b": [0.0, 0.0, np.inf]}, "/items/2/b", "'z': b is inf"),
        ({"a": [1.0, 1e300, 1.0], "b": [0.0] * 3}, "/items/1/a", "'y': a is 1e+300, expected at"),
        ({"b": [0.0, 0.0, -1e10]}, "/items/2/intercept", "'z': intercept is 1e+10"),
        ({"c": [0.0, 0.0, -0.1]}, "/items/2", "c=-0.1"),
        ({"c": [1.2, 0.0, 0.0]}, "/items/0", "c=1.2"),
        ({"d": [1.0, 1.0, 1.1]}, "/items/2", "d=1.1"),
        ({"k": [0.1, 0.0, 1.0]}, "/items/1", "'y': need k >= 1e-09, got k=0"),
        ({"k": [0.1, 0.1, 1e-300]}, "/items/2", "got k=1e-300"),
        ({"c": [0.5, 0.0, 0.0], "d": [0.5, 1.0, 1.0]}, "/items/0", "0 <= c < d <= 1"),
        ({"item_ids": ["x", "y", "x"]}, "/items/2/id", "'x' occurs already at 0"),
    ],
)
def test_faulty_items_are_refused_by_name_field_and_value(
    changes: dict[str, list[float]], pointer: str, words: str
) -> None:
    columns = {"a": [1.0, 1.0, 1.0], "b": [0.0, 0.0, 0.0], "item_ids": ["x", "y", "z"], **changes}
    with pytest.raises(ItemBankError) as refused:
        ItemBank.from_difficulties(**columns)  # type: ignore[arg-type]  # a mix of columns
    assert refused.value.problems[0].pointer == pointer
    assert words in refused.value.problems[0].detail
    assert words in refused.value.detail


def test_every_faulty_item_is_listed() -> None:
    with pytest.raises(ItemBankError) as refused:
        ItemBank.from_intercepts(a=[np.nan, 1, np.nan], intercept=[0, np.inf, 0], c=[0, 0, 2])
    assert [p.pointer for p in refused.value.problems] == [
        "/items/0/a",
        "/items/2/a",
        "/items/1/intercept",
        "/items/2",
    ]


@pytest.mark.parametrize(
    ("wanted", "near"), [("algebra-2", ["algebra-1"]), ("?", ["algebra-1", "b", "c", "d", "e"])]
)
def test_an_unknown_item_is_refused_with_similar_names_or_the_first(
    wanted: str, near: list[str]
) -> None:
    known = ItemBank.from_difficulties(
        a=np.ones(6), b=np.zeros(6), item_ids=["algebra-1", "b", "c", "d", "e", "f"]
    )
    with pytest.raises(UnknownNameError) as refused:
        known.index_of(wanted)
    assert refused.value.detail.endswith(f" Known: {', '.join(near)}.")
    assert known.index_of("b") == 1


def test_lengths_that_differ_and_empty_banks_are_refused() -> None:
    with pytest.raises(ItemBankError, match="one length"):
        ItemBank.from_difficulties(a=[1.0, 1.0], b=[0.0])
    with pytest.raises(ItemBankError, match="at least one item"):
        ItemBank.from_difficulties(a=[], b=[])
    with pytest.raises(ItemBankError, match="expected numbers"):
        ItemBank.from_difficulties(a=["steep"], b=[0.0])
    with pytest.raises(ItemBankError, match="shape"):
        ItemBank.from_difficulties(a=[[1.0]], b=[0.0])


def test_curves_have_the_shape_of_theta_and_then_of_items() -> None:
    assert bank().expected_score(0.0).shape == (3,)
    assert bank().information(np.zeros(5)).shape == (5, 3)
    assert bank().information(np.zeros(5), [2, 0]).shape == (5, 2)
    np.testing.assert_array_equal(
        bank().expected_score(0.7, [2, 0]), bank().expected_score(0.7)[[2, 0]]
    )
