import numpy as np
import pytest

from app.engine.bank import ItemIndex
from app.engine.estimation.estimators import GridEstimator
from app.engine.state import CatState, Response, Usage
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

BELIEF = GridEstimator().start(clean_bank(0, 5))
FIRST, SECOND = ItemIndex(3), ItemIndex(1)


def test_usage_adds_up() -> None:
    total = Usage(usd=0.5, tokens=10, calls=1) + Usage(usd=0.25, tokens=5, calls=2)
    assert total == Usage(usd=0.75, tokens=15, calls=3)


@pytest.mark.parametrize("score", [-0.1, 1.1, np.nan, np.inf])
def test_a_score_outside_0_to_1_is_refused(score: float) -> None:
    with pytest.raises(InvalidInputError, match=r"\[0, 1\]"):
        Response(FIRST, score)


def test_an_item_is_pending_until_it_is_scored_or_closed() -> None:
    start = CatState(belief=BELIEF)
    asked = start.with_pending(FIRST).with_pending(SECOND)
    assert asked.pending == (FIRST, SECOND)
    scored = asked.with_response(Response(SECOND, 1.0, Usage(calls=1)), BELIEF)
    closed = scored.with_unscored(FIRST, Usage(calls=2))
    assert (scored.pending, closed.pending) == ((FIRST,), ())
    assert (closed.n_asked, closed.n_scored, closed.unscored) == (2, 1, (FIRST,))
    assert closed.usage == Usage(calls=3)
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
