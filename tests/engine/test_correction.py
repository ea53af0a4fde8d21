"""Interval corrections learned from other examinees."""

import math
from typing import Any

import numpy as np
import pytest

from app.engine.bank import ItemIndex
from app.engine.design.design import Design
from app.engine.prediction.correction import (
    IntervalCorrection,
    IntervalFactor,
    ReferenceThetas,
    correction_in,
)
from app.engine.prediction.learned_curves import Place, PopulationPosition
from app.engine.state import CatState, Response
from app.engine.stopping import Situation, Stop
from app.errors import InvalidInputError
from tests.engine.corrections import level_factor
from tests.engine.random_banks import clean_bank

BANK = clean_bank(7, 40)
DESIGN = Design.from_dict({"preset": "ability", "stopping": {"se": None, "max_items": 40}})
PLAIN = DESIGN.build(BANK)
KNOWN = IntervalCorrection(
    theta=IntervalFactor(answers=(5, 20), factor=(1.5, 3.0), usual=(1.0, 0.5), power=0.0),
    n_examinees=100,
)
CORRECTED = DESIGN.build(BANK, correction=KNOWN)


def answered(*scores: float) -> CatState:
    return PLAIN.replay(Response(ItemIndex(i), score) for i, score in enumerate(scores))


def stop(document: object, state: CatState, learned: IntervalCorrection | None) -> Stop | None:
    test = Design.from_dict(document).build(BANK, correction=learned)
    return test.stopping.check(Situation(state, test.pool))


def test_a_corrected_interval_keeps_theta_and_shows_the_raw_one() -> None:
    state = answered(1, 1, 0, 1, 0)
    plain, corrected = PLAIN.estimate(state), CORRECTED.estimate(state)
    assert (corrected.theta, corrected.se) == (plain.theta, plain.se)
    assert plain.raw is None
    assert corrected.raw == (plain.lo, plain.hi)
    assert corrected.hi - corrected.theta == pytest.approx(1.5 * (plain.hi - plain.theta))
    assert corrected.theta - corrected.lo == pytest.approx(1.5 * (plain.theta - plain.lo))


def test_a_decision_takes_the_corrected_interval() -> None:
    state = answered(*[1] * 6)
    belief = state.belief
    cut = belief.theta - 2.2 * belief.se
    # A single look would have sufficed; repeated looks need more evidence.
    stopping = {"se": None, "min_items": 6, "max_items": 7, "cut_score": {"theta": cut}}
    document = {"stopping": stopping}
    assert stop(document, state, None) is not None
    assert stop(document, state, KNOWN) is None


def test_corrections_survive_json() -> None:
    knowledge = {"interval_correction": KNOWN.to_dict(), "population": {"mean": [0.0]}}
    assert correction_in(knowledge) == KNOWN
    assert correction_in({}) is None


@pytest.mark.parametrize(
    "change",
    [
        {"answers": (20, 5)},
        {"answers": ()},
        {"answers": (0, 5)},
        {"factor": (1.0,)},
        {"factor": (1.0, float("nan"))},
        {"usual": (0.0, 1.0)},
    ],
)
def test_an_invalid_correction_is_refused(change: dict[str, Any]) -> None:
    good: dict[str, Any] = {"answers": (5, 20), "factor": (1.0, 2.0), "usual": (0.5, 0.2)}
    with pytest.raises(InvalidInputError, match="interval correction"):
        IntervalFactor(**{**good, **change}, power=0.0)


def test_the_farther_of_theta_and_the_curves_position_sets_the_growth() -> None:
    stretch = level_factor(1.5)

    def factor(theta: float, standing: PopulationPosition, position: float) -> float:
        return stretch.at(5, 1.0, theta, Place(standing, False, position))

    above, below = PopulationPosition.ABOVE, PopulationPosition.BELOW
    assert factor(1.5, above, 4.0) == pytest.approx(stretch.at(5, 1.0, 4.0))
    assert factor(5.0, above, 4.0) == stretch.at(5, 1.0, 5.0)
    assert factor(-1.5, below, -4.0) == pytest.approx(stretch.at(5, 1.0, -4.0))
    assert factor(1.5, PopulationPosition.WITHIN, 4.0) == stretch.at(5, 1.0, 1.5)


@pytest.mark.parametrize(
    ("longest", "answers", "half", "factor"),
    [
        (160, 160, 0.25, 0.2),
        (160, 160, 0.5, 0.6),  # as wide as usual after 40 answers
        (160, 160, 0.125**0.5, (0.36 - 0.32 / 3) ** 0.5),  # as after 80
        (160, 160, 2.0, 0.9),
        (160, 40, 0.25, 0.6),
        (80, 60, 0.5, 0.6),
        (80, 60, 0.9, 1.25 * 0.25**0.5),  # a quarter of the bank is left
        (80, 80, 0.9, 0.2),
    ],
)
def test_an_interval_as_wide_as_after_fewer_answers_has_their_factor(
    longest: int, answers: int, half: float, factor: float
) -> None:
    stretch = IntervalFactor(
        answers=(10, 40, longest), factor=(0.9, 0.6, 0.2), usual=(1.0, 0.5, 0.25), power=0.0
    )
    assert stretch.at(answers, half) == pytest.approx(factor)
    by_chosen = stretch.at(answers, half, chosen=True)
    assert by_chosen == pytest.approx(stretch.at(answers, 0.2))


def test_a_stored_correction_without_growth_is_read() -> None:
    document = {"answers": [5], "factor": [1.5], "usual": [1.0], "power": 0.0}
    assert IntervalFactor.from_dict(document).at(5, 1.0, 9.0) == pytest.approx(1.5)


def test_a_stored_correction_keeps_of_an_old_growth_the_reference_models_alone() -> None:
    old = {"above": 0.9, "below": 0.1, "leaning_above": 3.0, "doubt_above": 2.0, "adrift": 4.0}
    document = {"answers": [5], "factor": [1.5], "usual": [1.0], "power": 0.0}
    beyond = {"centre": 0.0, "spread": 2.0}
    read = IntervalFactor.from_dict({**document, "beyond": {**beyond, **old}})
    assert read.to_dict() == {**document, "beyond": beyond}
    assert read.at(5, 1.0, 6.0) == pytest.approx(1.5 * math.exp(0.2 * 2.0))


@pytest.mark.parametrize("change", [{"spread": 0.0}, {"spread": math.inf}, {"centre": math.nan}])
def test_thetas_of_reference_models_that_are_no_distribution_are_refused(
    change: dict[str, float],
) -> None:
    with pytest.raises(InvalidInputError, match="thetas of reference models"):
        ReferenceThetas(**{"centre": 0.0, "spread": 1.0, **change})


@pytest.mark.parametrize("power", [-0.6, 0.0, 0.4])
@pytest.mark.parametrize("factors", [(1.2, 2.0), (0.5, 0.8)])
def test_a_factor_follows_its_formula(power: float, factors: tuple[float, float]) -> None:
    stretch = IntervalFactor(
        answers=(10, 40),
        factor=factors,
        usual=(0.8, 0.3),
        power=power,
        reference=ReferenceThetas(centre=0.5, spread=0.8),
    )
    assert stretch.at(20, math.inf) == 1.0
    assert stretch.at(20, 1e-300) == stretch.at(20, 1e-9) > 0
    for answers in (5, 20, 80):
        share = np.clip(np.log(answers / 10) / np.log(4), 0, 1)
        factor = np.interp(answers, (10, 40), np.square(factors)) ** 0.5
        usual = 0.8 * (0.3 / 0.8) ** share
        for half in usual * np.exp([-2.0, -0.7, 0.7, 2.0]):
            ratio = half / usual
            of_known = factor * np.exp(np.clip(np.log(ratio), -1.5, 1.5)) ** power
            if ratio > 1 and power < 0:  # only errors that add in squares shrink a factor
                of_known = (1 + (factor**2 - 1) / ratio**2) ** 0.5 if factor > 1 else factor
            assert stretch.at(answers, half) == pytest.approx(of_known)
            for theta in (-1.5, 2.7):
                far = abs(theta - 0.5) / 0.8 - 1
                told = stretch.at(answers, half, theta)
                assert told == pytest.approx(of_known * np.exp(0.2 * far))
