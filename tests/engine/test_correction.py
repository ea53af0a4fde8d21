"""Intervals corrected by what other examinees taught."""

import pytest

from app.engine.bank import ItemIndex
from app.engine.correction import IntervalCorrection, Spread, VersionLearning
from app.engine.design import Design
from app.engine.state import CatState, Response
from app.engine.stopping import Situation, Stop
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

BANK = clean_bank(7, 40)
DESIGN = Design.from_dict({"stopping": {"se": None, "max_items": 40}})
PLAIN = DESIGN.build(BANK)
KNOWN = VersionLearning(
    interval_correction=IntervalCorrection(
        theta=Spread(scale=1.5, floor=0.1),
        accuracy=Spread(scale=2.0, floor=0.05),
        n_examinees=100,
    )
)
CORRECTED = DESIGN.build(BANK, learned=KNOWN)


def answered(*scores: float) -> CatState:
    return PLAIN.replay(Response(ItemIndex(i), score) for i, score in enumerate(scores))


def stop(document: object, state: CatState, learned: VersionLearning | None) -> Stop | None:
    test = Design.from_dict(document).build(BANK, learned=learned)
    return test.stopping.check(Situation(state, test.pool))


def test_a_corrected_interval_keeps_theta_and_shows_the_raw_one() -> None:
    state = answered(1, 1, 0, 1, 0)
    plain, corrected = PLAIN.estimate(state), CORRECTED.estimate(state)
    assert (corrected.theta, corrected.se) == (plain.theta, plain.se)
    assert plain.raw is None
    assert corrected.raw == (plain.lo, plain.hi)
    assert corrected.hi - corrected.theta == pytest.approx(
        ((1.5 * (plain.hi - plain.theta)) ** 2 + (1.959964 * 0.1) ** 2) ** 0.5
    )
    assert corrected.theta - corrected.lo == pytest.approx(
        ((1.5 * (plain.theta - plain.lo)) ** 2 + (1.959964 * 0.1) ** 2) ** 0.5
    )


def test_a_corrected_prediction_keeps_its_value_and_stays_possible() -> None:
    state = answered(*[1] * 20, *[0] * 10)
    plain, corrected = PLAIN.predict(state), CORRECTED.predict(state)
    assert corrected.value == plain.value
    assert corrected.raw == (plain.lo, plain.hi)
    assert 20 / 40 <= corrected.lo < plain.lo
    assert plain.hi < corrected.hi <= 30 / 40


def test_a_bank_answered_to_the_end_leaves_no_doubt_about_its_score() -> None:
    corrected = CORRECTED.predict(answered(*[1] * 25, *[0] * 15))
    assert (corrected.lo, corrected.value, corrected.hi) == (25 / 40, 25 / 40, 25 / 40)


def test_items_that_do_not_count_bound_the_corrected_score_neither() -> None:
    state = answered(*[1] * 20)
    corrected = CORRECTED.predict(state, range(20, 40))
    assert (corrected.lo, corrected.hi) == (1.0, 1.0)


def test_a_test_that_stops_at_a_width_stops_at_the_corrected_one() -> None:
    state = answered(*[1] * 12, *[0] * 12)
    plain = PLAIN.predict(state)
    width = 1.01 * (plain.hi - plain.lo)
    document = {"stopping": {"se": None, "min_items": 1, "prediction_width": width}}
    assert stop(document, state, None) is not None
    assert stop(document, state, KNOWN) is None


def test_a_decision_takes_the_corrected_interval() -> None:
    state = answered(*[1] * 6)
    belief = state.belief
    cut = belief.theta - 2.2 * belief.se
    document = {"stopping": {"se": None, "min_items": 1, "cut_score": {"theta": cut}}}
    assert stop(document, state, None) is not None
    assert stop(document, state, KNOWN) is None


def test_knowledge_comes_back_from_json_as_it_was() -> None:
    correction = KNOWN.interval_correction
    assert correction is not None
    knowledge = {"interval_correction": correction.to_dict(), "population": {"mean": [0.0]}}
    assert VersionLearning.from_dict(knowledge) == KNOWN
    assert VersionLearning.from_dict({}) == VersionLearning()


@pytest.mark.parametrize(("scale", "floor"), [(0.0, 0.1), (float("nan"), 0.1), (1.0, -0.1)])
def test_a_correction_that_makes_no_sense_is_refused(scale: float, floor: float) -> None:
    with pytest.raises(InvalidInputError, match="interval correction"):
        Spread(scale=scale, floor=floor)
