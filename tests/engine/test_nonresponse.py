"""Answers without a score widen only the interval of the predicted score."""

import numpy as np
import pytest

from app.engine import AdaptiveTest, CatState, Design, ItemBank, ItemIndex, Response
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.engine.stopping import ScoreMargin, Situation

MARKED, UNMARKED = range(6), range(6, 40)


@pytest.fixture(scope="module")
def bank() -> ItemBank:
    difficulties = np.linspace(-2.0, 2.0, 60)
    return ItemBank.from_difficulties(a=np.full(60, 1.5), b=difficulties)


def asked(test: AdaptiveTest, *, unmarked: range) -> CatState:
    state = test.start()
    for item in (*MARKED, *unmarked):
        state = test.administer(state, ItemIndex(item))
    for item in MARKED:
        state = test.tell(state, Response(ItemIndex(item), float(item % 2)))
    for item in unmarked:
        state = test.skip(state, ItemIndex(item))
    return state


def test_unscored_answers_lower_the_lower_end(bank: ItemBank) -> None:
    test = Design.from_dict({"preset": "ability"}).build(bank)
    full, holes = (asked(test, unmarked=part) for part in (range(0), UNMARKED))

    told, open_ = test.predict(full), test.predict(holes)

    assert told.nonresponse == 0.0
    assert open_.nonresponse == pytest.approx(34 / 40)
    assert (open_.value, open_.hi) == (told.value, told.hi)
    assert open_.lo == pytest.approx(told.lo * 6 / 40)
    assert test.estimate(holes) == test.estimate(full)


def test_learned_corrections_are_reported_apart_from_unscored_answers(bank: ItemBank) -> None:
    stretch = IntervalFactor(answers=(5,), factor=(1.5,), usual=(0.2,), power=0.0)
    correction = IntervalCorrection(theta=stretch, n_examinees=80)
    learned = correction
    test = Design.from_dict({"preset": "ability"}).build(bank, correction=learned)

    told, open_ = (test.predict(asked(test, unmarked=part)) for part in (range(0), UNMARKED))

    assert open_.raw == told.raw
    assert open_.lo == pytest.approx(told.lo * 6 / 40)


def test_a_test_ends_only_at_the_reported_margin(bank: ItemBank) -> None:
    test = Design.from_dict({"preset": "ability"}).build(bank)
    full, holes = (asked(test, unmarked=part) for part in (range(0), UNMARKED))
    told = test.predict(full)
    rule = ScoreMargin(margin=told.margin + 1e-6, predictor=test.predictor)

    assert rule.check(Situation(full, test.pool)) is not None
    assert rule.check(Situation(holes, test.pool)) is None
