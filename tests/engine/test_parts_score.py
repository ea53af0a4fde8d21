"""Tests for theta on banks where theta is not what the score is about."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from app.calibration.multidimensional.score_curves import fit_curves, standings
from app.engine.adaptive import AdaptiveTest, step_rng
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design, quarantined
from app.engine.prediction.combined_score import LearnedCurves
from app.engine.prediction.correction import IntervalCorrection, Stretch, VersionLearning
from app.engine.prediction.design_based import LEAD
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.p_irt import Prediction
from app.engine.prediction.parts_score import PartsScore
from app.engine.prediction.targets import LEAST_DRAWS
from app.engine.selection.by_lot import MOST_DRAWN
from app.engine.simulation.simulate import take
from app.engine.state import CatState

N_ITEMS, N_KNOWN = 480, 40
#: Share of the items that fall with theta. Where none does, an eighth of the items leans.
NONE, MOST = 0.0, 0.55
STRONG, USUAL = 2.2, -0.8
SINGLE = Design.from_dict({"preset": "ability", "stopping": {"se": None}})


def leans(falling: float) -> FloatArray:
    """By how much each item goes with the leaning: those of one label rise, of the other fall."""
    found = np.full(N_ITEMS, 2.0)
    found[: int(falling * N_ITEMS)] = -2.0
    if not falling:  # the others are about the ability alone
        found[N_ITEMS // 8 :] = 0.0
    return found


def records(falling: float, abilities: FloatArray, leanings: FloatArray, seed: int) -> FloatArray:
    """Answers that go with an ability, and on some items more so with a leaning to one label."""
    ease = np.random.default_rng(0).normal(0.3, 0.7, N_ITEMS)
    logits = abilities[:, None] + ease + leanings[:, None] * leans(falling)
    chance = 1.0 / (1.0 + np.exp(-logits))
    return (np.random.default_rng(seed).random(chance.shape) < chance).astype(np.float64)


@lru_cache
def default_test(falling: float) -> AdaptiveTest:
    """On a bank of weak examinees, of whom the leaning is what sets them apart: theta is that."""
    rng = np.random.default_rng(1)
    known = records(falling, rng.normal(USUAL, 0.4, N_KNOWN), rng.normal(0.0, 1.5, N_KNOWN), 2)
    right = (known.sum(axis=0) + 0.5) / (N_KNOWN + 1.0)
    slopes = np.where(leans(falling) == 0.0, 0.2, 1.5 * leans(falling))
    bank = ItemBank.from_intercepts(a=slopes, intercept=np.log(right / (1.0 - right)))
    assert quarantined(bank).mean() == pytest.approx(falling)
    stretch = Stretch(answers=(5,), factor=(1.5,), usual=(0.1,), power=0.0)
    return SINGLE.build(
        bank,
        learned=VersionLearning(
            interval_correction=IntervalCorrection(theta=stretch, accuracy=stretch, n_examinees=40)
        ),
        curves=LearnedCurves(
            curves=fit_curves(known),
            errors={"all": ModelError(0.0, 0.2, 0.2)},
            population=standings(known),
        ),
    )


def measured(falling: float, ability: float, n: int) -> list[tuple[float, Prediction, CatState]]:
    """Real score, prediction and state of so many tests of examinees of one ability."""
    test = default_test(falling)
    rows = records(falling, np.full(n, ability), np.zeros(n), 3)
    states = [take(test, row, seed=[4, i])[0] for i, row in enumerate(rows)]
    return [
        (float(row.mean()), test.predict(state), state)
        for row, state in zip(rows, states, strict=True)
    ]


@pytest.mark.parametrize(("falling", "error"), [(NONE, 0.09), (MOST, 0.45)])
def test_the_score_of_a_strong_examinee_is_within_its_interval(
    falling: float, error: float
) -> None:
    found = measured(falling, STRONG, 20)
    assert np.mean([told.lo <= real <= told.hi for real, told, _ in found]) >= 0.9
    assert np.mean([abs(told.value - real) for real, told, _ in found]) <= error


def test_a_test_that_leaves_open_whom_it_measures_goes_on_by_lot() -> None:
    for _, _, state in measured(NONE, STRONG, 5):
        draws = [one.draw for one in state.responses if one.draw is not None]
        drawn = [draw.step for draw in draws if draw.by_lot]
        assert drawn == list(range(LEAD + 1, LEAD + MOST_DRAWN + 1))


def test_a_test_that_places_its_examinee_draws_nothing() -> None:
    """All items are about the ability: theta is what the score is about."""
    rng = np.random.default_rng(1)
    abilities, ease = rng.normal(0.0, 1.0, N_KNOWN), rng.normal(0.0, 1.0, N_ITEMS)
    chance = 1.0 / (1.0 + np.exp(-1.5 * abilities[:, None] - ease))
    known = (rng.random(chance.shape) < chance).astype(np.float64)
    bank = ItemBank.from_intercepts(a=np.full(N_ITEMS, 1.5), intercept=ease)
    curves = LearnedCurves(curves=fit_curves(known), errors={}, population=standings(known))
    test, plain = SINGLE.build(bank, curves=curves), SINGLE.build(bank)
    for row in known[:5]:
        state = take(test, row, seed=[1])[0]
        assert not any(one.draw and one.draw.by_lot for one in state.responses)
        assert state.asked == take(plain, row, seed=[1])[0].asked


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_draws_tell_of_what_can_be_drawn_and_models_of_the_rest(share: float) -> None:
    _, _, state = measured(NONE, STRONG, 1)[0]
    test = default_test(NONE)
    whole = test.predictor
    assert isinstance(whole, PartsScore)
    askable = np.random.default_rng(5).random(N_ITEMS) < share
    askable[[one.item for one in state.responses]] = True
    parts = replace(whole, drawn=replace(whole.drawn, askable=askable))
    answers, rest = state.responses, np.flatnonzero(~askable).tolist()
    told = parts.predict(test.bank, answers, state.belief)
    one = whole.drawn.predict(test.bank, answers, state.belief, rest)
    if rest:
        other = whole.rest.predict(
            test.bank, answers, state.belief, np.flatnonzero(askable).tolist()
        )
        counts = askable.mean()
        assert told.value == pytest.approx(counts * one.value + (1 - counts) * other.value)
        assert told.lo <= told.value - (1 - counts) * (other.value - other.lo) + 1e-12
        assert told.hi >= told.value + (1 - counts) * (other.hi - other.value) - 1e-12
    else:
        assert told == one
    # Before five were drawn the models tell of all.
    before = answers[: LEAD + LEAST_DRAWS - 1]
    assert parts.predict(test.bank, before, state.belief) == whole.rest.predict(
        test.bank, before, state.belief
    )


def test_sessions_replay_exactly() -> None:
    test = default_test(NONE)
    for _, told, state in measured(NONE, STRONG, 3):
        again = test.replay(state.responses)
        assert test.predict(again) == told
        assert test.ask(again, step_rng(7, again)) == test.ask(state, step_rng(7, state))


@pytest.mark.parametrize(("ability", "leaning"), [(USUAL, 1.0), (STRONG, 0.0)])
def test_a_test_for_a_score_half_of_which_is_never_asked_holds_it(
    ability: float, leaning: float
) -> None:
    test, design = (
        default_test(MOST),
        Design.from_dict(
            {"selection": {"criterion": "v_optimal"}, "stopping": {"score_margin": None}}
        ),
    )
    curves = test.predictor.drawn.curves if isinstance(test.predictor, PartsScore) else None
    assert curves is not None
    learned = LearnedCurves(curves=curves, errors={"all": ModelError(0.0, 0.2, 0.2)})
    for_score = design.build(test.bank, curves=learned)
    held = []
    leanings = np.linspace(-leaning, leaning, 10)
    for i, row in enumerate(records(MOST, np.full(10, ability), leanings, 3)):
        told = for_score.predict(take(for_score, row, seed=[4, i])[0])
        held.append(told.lo <= row.mean() <= told.hi)
    assert np.mean(held) >= 0.9
