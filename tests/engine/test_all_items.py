"""When all items were asked, the score is known and not predicted."""

import numpy as np
import pytest

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemIndex
from app.engine.design.design import Design
from app.engine.state import CatState, Response
from tests.engine.random_banks import clean_bank

BANK = clean_bank(1, 12)
SCORES = [1.0, 0.0, 0.5, 1.0] * 3


def answered(test: AdaptiveTest, n: int) -> CatState:
    return test.replay(Response(ItemIndex(i), SCORES[i]) for i in range(n))


def test_the_score_of_all_items_is_their_mean() -> None:
    test = Design.from_dict({}).build(BANK)
    known = test.predict(answered(test, 12))
    assert (known.method, known.lo, known.value, known.hi) == ("all_items", 0.625, 0.625, 0.625)
    assert test.predict(answered(test, 11)).method != "all_items"


def test_items_that_do_not_count_need_no_answer() -> None:
    design = Design.from_dict({})
    test = design.build(BANK)
    target = np.array([0.25] * 4 + [0.0] * 8)
    of_law = AdaptiveTest(
        pool=test.pool,
        estimator=test.estimator,
        selector=test.selector,
        stopping=test.stopping,
        predictor=test.predictor,
        weights=target,
    )
    assert of_law.predict(answered(of_law, 4)).method == "all_items"
    assert of_law.predict(answered(of_law, 4)).value == pytest.approx(0.625)
    assert of_law.predict(answered(of_law, 3)).method != "all_items"


def test_an_item_without_a_score_leaves_the_score_open() -> None:
    test = Design.from_dict({}).build(BANK)
    state = answered(test, 11)
    state = test.skip(test.administer(state, ItemIndex(11)), ItemIndex(11))
    assert test.predict(state).method != "all_items"
