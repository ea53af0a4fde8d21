"""Combined scores: exact where the curves hold, no worse than sampling where they do not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize, root
from scipy.special import expit, logit
from scipy.stats import t as student

from app.calibration.multidimensional.score_curves import fit_curves
from app.engine.adaptive import step_rng
from app.engine.bank import FloatArray, IntArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.design.parts import EstimatorDesign
from app.engine.estimation.estimators import GridEstimator
from app.engine.information_index import index_of
from app.engine.knowledge import CURVES, curves_of, curves_to_dict
from app.engine.prediction import score_estimate
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.p_irt import Certain, Prediction
from app.engine.prediction.score_curves import Located, ScoreCurves
from app.engine.prediction.score_estimate import (
    Explained,
    Explanations,
    ScoreEstimator,
    prior_doubt,
)
from app.engine.prediction.score_model import BlendedScore
from app.engine.prediction.targets import is_askable
from app.engine.selection.base import Ask, Pool
from app.engine.selection.sampled import Sampled
from app.engine.simulation.simulate import take
from app.engine.state import Belief, CatState, Draw, Response, answered
from tests.engine.random_banks import clean_bank
from tests.engine.score_tests import score_test
from tests.values import not_none

N_ITEMS = 160


def drawn_records(thetas: FloatArray, seed: int) -> FloatArray:
    """Draw answers by a 2PL whose items are the same for every seed."""
    items = np.random.default_rng(0)
    a, b = items.lognormal(0.0, 0.3, N_ITEMS), items.normal(0.3, 1.2, N_ITEMS)
    chance = 1 / (1 + np.exp(-a * (thetas[:, None] - b)))
    return (np.random.default_rng(seed).random(chance.shape) < chance).astype(np.float64)


@pytest.fixture(scope="module")
def curves() -> ScoreCurves:
    """Return curves fitted to examinees around 0."""
    return fit_curves(drawn_records(np.random.default_rng(1).normal(0.0, 0.7, 80), 2))


WEIGHTS = np.full(N_ITEMS, 1.0 / N_ITEMS)
EVERY = np.ones(N_ITEMS, dtype=np.bool_)


def explained(curves: ScoreCurves, n_reference: int = 80) -> Explanations:
    """Return the two explanations for curves of so many reference models."""
    return Explanations.of(curves, prior_doubt(n_reference))


def estimator(curves: ScoreCurves, n_reference: int = 80) -> ScoreEstimator:
    """Return an estimator of the score of the whole bank."""
    return ScoreEstimator(explained(curves, n_reference), WEIGHTS)


def answers_to(items: IntArray, scores: FloatArray, *, sampled: bool) -> list[Response]:
    """Return responses in this order, all sampled by an even sample or all chosen."""
    return [
        Response(
            ItemIndex(int(item)),
            float(scores[item]),
            draw=Draw(step, 1.0 / (N_ITEMS + 1 - step) if sampled else 1.0),
        )
        for step, item in enumerate(items, 1)
    ]


def test_doubt_follows_bayes_rule(curves: ScoreCurves) -> None:
    """Compare with sums over a grid of abilities, for curves with one ability."""
    one = ScoreCurves(curves.slopes[:1], curves.intercept)
    explanations = explained(one)
    rng = np.random.default_rng(3)
    items = rng.permutation(N_ITEMS)[:12]
    scores = (rng.random(12) < 0.5).astype(float)
    along = one.intercept - one.intercept.mean()
    bend = along**2 / along.std()
    bend -= bend.mean()
    grid, shrink = np.linspace(-3.5, 3.5, 41), 1.0 / np.sqrt(1.0 + np.pi / 8.0)
    x, u, v = np.meshgrid(np.linspace(-12.0, 12.0, 161), grid, 0.5 * grid, indexing="ij")
    prior = np.exp(-0.5 * ((x / 4.0) ** 2 + u**2 + (v / 0.5) ** 2))

    def likelihood(free: bool) -> float:
        mass = prior.copy()
        for item, score in zip(items, scores, strict=True):
            logit = x * one.slopes[0, item] + one.intercept[item]
            if free:
                logit = shrink * (logit + u * along[item] + v * bend[item])
            chance = 1.0 / (1.0 + np.exp(-logit))
            mass *= chance if score else 1.0 - chance
        return float(mass.sum() / prior.sum())

    answers = [Response(ItemIndex(int(i)), s) for i, s in zip(items, scores, strict=True)]
    exact = np.log(likelihood(True) / likelihood(False))
    evidence = explanations.evidence(*answered(answers))
    assert evidence == pytest.approx(exact, abs=1.0)  # Laplace approximation
    odds = explanations.prior / (1 - explanations.prior) * np.exp(evidence)
    assert explanations.doubt(evidence) == pytest.approx(odds / (1 + odds))


def test_a_level_of_their_own_changes_the_likelihood_as_integrals_do(curves: ScoreCurves) -> None:
    """Compare with sums over a grid of the ability and the level."""
    one, sd = ScoreCurves(curves.slopes[:1], curves.intercept), 0.8
    own = np.arange(N_ITEMS) < 60
    items = np.array([90, 3, 20, 130, 44, 71, 8, 110, 59, 150])
    scores = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    kept = np.union1d(np.flatnonzero(own), items)
    x, level = np.meshgrid(
        np.linspace(-12.0, 12.0, 241), np.linspace(-4.0, 4.0, 161), indexing="ij"
    )
    prior = np.exp(-0.5 * ((x / 4.0) ** 2 + (level / sd) ** 2))

    def mass(free: bool) -> FloatArray:
        logits = x[..., None] * one.slopes[0, items] + one.intercept[items]
        chance = 1.0 / (1.0 + np.exp(-logits - free * level[..., None] * own[items]))
        of_all: FloatArray = np.where(scores == 1.0, chance, 1.0 - chance).prod(axis=-1)
        return of_all * prior

    part = one.with_level(own, sd, kept, items, scores)
    found = part.locate(np.searchsorted(kept, items), scores)
    ratio = found.log_likelihood - one.locate(items, scores).log_likelihood
    assert ratio == pytest.approx(np.log(mass(True).sum() / mass(False).sum()), abs=0.1)
    mode = np.unravel_index(mass(True).argmax(), x.shape)
    assert found.mean == pytest.approx([x[mode], level[mode]], abs=0.1)


def test_a_task_holds_its_interval_for_a_model_good_at_it_alone(curves: ScoreCurves) -> None:
    task = np.arange(N_ITEMS) % 4 == 0
    weights = task / task.sum()
    usual = ScoreEstimator(explained(curves), weights)
    rng, held, errors = np.random.default_rng(11), [], []
    items = np.random.default_rng(0)
    a, b = items.lognormal(0.0, 0.3, N_ITEMS), items.normal(0.3, 1.2, N_ITEMS)
    for theta in np.linspace(-0.8, 0.8, 40):
        chance = 1 / (1 + np.exp(-a * (theta + 2.0 * task - b)))
        scores = (rng.random(N_ITEMS) < chance).astype(np.float64)
        answers = answers_to(rng.permutation(N_ITEMS)[:50], scores, sampled=True)
        truth = float(weights @ scores)
        told = [replace(usual, own_level=own).estimate(answers) for own in (True, False)]
        held.append([each.lo <= truth <= each.hi for each in told])
        errors.append([abs(each.value - truth) for each in told])
    (own, without), (error, error_without) = np.mean(held, axis=0), np.mean(errors, axis=0)
    assert own >= 0.8 > without + 0.1
    assert error < 0.8 * error_without


@pytest.mark.parametrize(
    ("n_reference", "doubt"), [(0, 1.0), (10, 0.8), (40, 0.5), (60, 0.4), (3000, 0.4)]
)
def test_few_reference_models_leave_more_doubt(n_reference: int, doubt: float) -> None:
    assert prior_doubt(n_reference) == pytest.approx(doubt)


def test_sampled_questions_correct_what_the_second_explanation_gets_wrong() -> None:
    """The curves know nothing and the chosen answers are right: the sampled answers correct."""
    curves = ScoreCurves(np.full((1, N_ITEMS), 1e-6), np.zeros(N_ITEMS))
    scores = (np.random.default_rng(4).random(N_ITEMS) < 0.4).astype(float)
    items = np.random.default_rng(5).permutation(N_ITEMS)[:80]
    scores[items[:40]] = 1.0
    of_chosen, last = answers_to(items[:40], scores, sampled=False), items[40:]
    way = estimator(curves, n_reference=0)
    chosen = way.estimate(of_chosen + answers_to(last, scores, sampled=False))
    sampled = way.estimate(of_chosen + answers_to(last, scores, sampled=True))
    assert (chosen.sampled, sampled.sampled) == (0, 40)
    wanted = float(scores[items].sum() + (N_ITEMS - 80) * scores[last].mean()) / N_ITEMS
    assert abs(sampled.value - wanted) < 0.25 * abs(chosen.value - wanted)
    assert sampled.lo <= scores.mean() <= sampled.hi


def test_questions_with_large_weights_are_sampled_without_bias() -> None:
    """Twenty of 420 questions hold half the weight and are right; the others are wrong."""
    weights = np.r_[np.full(20, 0.5 / 20), np.full(400, 0.5 / 400)]
    curves = ScoreCurves(np.full((1, 420), 1e-6), np.zeros(420))
    way = ScoreEstimator(explained(curves, 0), weights)
    test = score_test(way.explanations, weights, 30, np.ones(420, dtype=np.bool_))
    scores = np.r_[np.ones(20), np.zeros(400)]
    taken = [take(test, scores, seed=[seed])[0].responses for seed in range(200)]
    firsts = [responses[0].item < 20 for responses in taken]
    told = [way.estimate(responses) for responses in taken]
    assert np.mean(firsts) == pytest.approx(0.5, abs=0.11)  # three binomial standard errors
    assert np.mean([one.by_sample for one in told]) == pytest.approx(0.5, abs=0.03)
    assert np.mean([one.lo <= 0.5 <= one.hi for one in told]) >= 0.95
    other_order = way.estimate(taken[-1][::-1])
    assert other_order.by_sample == pytest.approx(told[-1].by_sample, rel=1e-12)


def test_a_heavy_question_does_not_change_sampling_of_its_neighbours() -> None:
    """One question of medium difficulty holds half the weight; the forty others are equal."""
    weights = np.r_[np.full(20, 0.5 / 40), 0.5, np.full(20, 0.5 / 40)]
    curves = ScoreCurves(np.full((1, 41), 1e-6), np.linspace(-2.0, 2.0, 41))
    test = score_test(explained(curves, 0), weights, 6, np.ones(41, dtype=np.bool_))
    taken = [take(test, np.ones(41), seed=[seed])[0].responses for seed in range(400)]
    times = np.bincount([one.item for responses in taken for one in responses], minlength=41)
    light = np.delete(times, 20)
    assert times[20] / 400 >= 1 - 0.5**6 - 0.03
    assert light.max() <= light.mean() + 4.0 * np.sqrt(light.mean())
    assert light.min() >= light.mean() - 4.0 * np.sqrt(light.mean())


def test_intervals_hold_where_few_remaining_questions_hold_most_weight() -> None:
    """Weights fall by a fifth from question to question; also with one answer missing."""
    weights = np.float64(0.8) ** np.arange(300.0)
    weights /= weights.sum()
    curves = ScoreCurves(np.full((1, 300), 1e-6), np.zeros(300))
    way = ScoreEstimator(explained(curves, 0), weights)
    test = score_test(way.explanations, weights, 12, np.ones(300, dtype=np.bool_))
    held = []
    for seed in range(100):
        scores = (np.random.default_rng(seed).random(300) < 0.5).astype(float)
        responses = take(test, scores, seed=[seed])[0].responses
        told = way.estimate(responses), way.estimate(responses[1:])
        held.append([one.lo <= weights @ scores <= one.hi for one in told])
    assert np.mean(held, axis=0).min() >= 0.95


@pytest.mark.parametrize("right", [False, True])
def test_no_interval_is_much_wider_than_that_of_the_sampled_questions_alone(
    curves: ScoreCurves, right: bool
) -> None:
    """Curves know next to nothing of examinees with no answer right, or all."""
    scores = np.full(N_ITEMS, float(right))
    items = np.random.default_rng(8).permutation(N_ITEMS)[:40]
    responses = [
        *answers_to(items[:10], scores, sampled=False),
        *answers_to(items[10:], scores, sampled=True),
    ]
    told = estimator(curves).estimate(responses)
    # Agresti and Coull: 2 of 34 for 30 answers with none right, less for the known part.
    left = (N_ITEMS - 40) / (N_ITEMS - 11)
    middle = 2 * left / (30 + 4 * left)
    end = middle + 1.959964 * np.sqrt(middle * (1 - middle) / (30 + 4 * left) * left)
    # A whole number of remaining questions is right; a quarter wider, half of it clipped.
    assert told.hi - told.lo == pytest.approx(9 / 8 * np.ceil(end * (N_ITEMS - 10)) / N_ITEMS)
    assert told.lo <= told.value <= told.hi
    assert told.by_sample_alone


@pytest.mark.parametrize(("n", "alone"), [(4, False), (5, True)])
def test_five_sampled_questions_bound_the_interval_alone(
    curves: ScoreCurves, n: int, alone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A factor this large leaves the score open, so that any bound is narrower."""
    monkeypatch.setattr(score_estimate, "_HELD_WIDTH", 1e6)
    responses = answers_to(np.arange(n), np.zeros(N_ITEMS), sampled=True)
    told = estimator(curves).estimate(responses)
    assert told.by_sample_alone == alone


def test_an_examinee_with_nothing_right_gets_sampled_questions(curves: ScoreCurves) -> None:
    test = score_test(explained(curves), WEIGHTS, 40, EVERY)
    state, _ = take(test, np.zeros(N_ITEMS), seed=[2])
    assert sum(one.draw is not None and one.draw.sampled for one in state.responses) >= 30


def test_with_no_reference_models_every_question_is_sampled() -> None:
    bank = ItemBank.from_intercepts(a=np.ones(N_ITEMS), intercept=np.zeros(N_ITEMS))
    test = Design.from_dict(
        {"selection": {"criterion": "v_optimal"}, "stopping": {"max_items": 40, "se": None}}
    ).build(bank)
    state, _ = take(test, drawn_records(np.array([0.5]), 6)[0], seed=[1])
    assert all(one.draw and one.draw.sampled for one in state.responses)


def test_sampled_positions_follow_the_golden_ratio() -> None:
    """Each is one term of the sequence after the one before, to within the items' widths."""
    n = 2000
    intercept = np.random.default_rng(3).normal(size=n)
    pool = Pool(index_of(clean_bank(1, n)))
    sampled = Sampled.of(ScoreCurves(np.ones((1, n)), intercept), np.full(n, 1.0 / n))
    state, places = CatState(belief=GridEstimator().start(clean_bank(1, n))), []
    for step in range(12):
        chosen = not_none(sampled.select(pool, state, np.random.default_rng([5, step])))
        assert chosen.probability == pytest.approx(1 / (n - step))
        state = state.with_pending(chosen.item, chosen.probability)
        places.append(sampled.position[chosen.item])
    apart = np.diff(places) - (5**0.5 - 1) / 2
    assert np.abs(apart - np.round(apart)).max() < 2 / n
    assert np.argsort(sampled.position) == pytest.approx(np.argsort(intercept))


def test_abilities_are_found_where_an_ability_moves_no_answer() -> None:
    """The mode by a general optimizer, and the inverse of the numeric curvature there."""
    rng = np.random.default_rng(9)
    slopes = np.stack([np.zeros(30), rng.normal(1.0, 0.5, 30), rng.normal(0.0, 1.0, 30)])
    known = ScoreCurves(slopes, rng.normal(size=30), dispersion=0.7)
    items, scores = np.arange(12), (rng.random(12) < 0.8).astype(np.float64)
    found = known.locate(items, scores)

    def loss(x: FloatArray) -> float:
        p = expit(x @ slopes[:, items] + known.intercept[items])
        likely = scores @ np.log(p) + (1 - scores) @ np.log1p(-p)
        prior = (x[0] / 4.0) ** 2 + x[1] ** 2 + x[2] ** 2
        return float(-likely / 0.7 + 0.5 * prior)

    best = minimize(loss, np.zeros(3), tol=1e-10)
    assert found.mean == pytest.approx(best.x, abs=1e-5)
    p = expit(found.mean @ slopes[:, items] + known.intercept[items])
    hessian = (slopes[:, items] * p * (1 - p) / 0.7) @ slopes[:, items].T
    assert found.covariance == pytest.approx(np.linalg.inv(hessian + np.diag([1 / 16, 1, 1])))


def test_each_test_selects_from_its_own_part_of_the_bank() -> None:
    n = 900
    intercepts = np.random.default_rng(4).normal(size=n)
    chance = expit(np.random.default_rng(5).normal(size=(40, 1)) + intercepts)
    scores = (np.random.default_rng(6).random(chance.shape) < chance).astype(np.float64)
    large, weights = fit_curves(scores), np.full(n, 1.0 / n)
    sampled = Sampled.of(large, weights)
    start = score_test(explained(large), weights, 50, np.ones(n, dtype=np.bool_)).start()
    parts = np.array([sampled.part(start.with_pending(ItemIndex(i), 0.01)) for i in range(n)])
    assert parts.diagonal().all()
    assert parts.mean(axis=1) == pytest.approx(0.25, abs=3 / n)
    assert parts.mean(axis=0) == pytest.approx(0.25, abs=3 / n)  # no item is favoured
    by_difficulty = parts[:, np.argsort(large.intercept)].reshape(n, 10, n // 10)
    assert by_difficulty.mean(axis=2) == pytest.approx(0.25, abs=0.05)
    test = score_test(explained(large), weights, 50, np.ones(n, dtype=np.bool_))
    state, _ = take(test, scores[0], seed=[1])
    first = state.responses[0]
    assert first.draw is not None
    assert first.draw.sampled
    chosen = [one.item for one in state.responses if one.draw and not one.draw.sampled]
    assert len(chosen) > 20
    assert parts[first.item, chosen].all()


def test_items_without_weight_are_not_sampled(curves: ScoreCurves) -> None:
    weights = np.where(np.arange(N_ITEMS) < 50, 1.0 / 50, 0.0)
    test = score_test(explained(curves, 0), weights, 50, EVERY)
    state, _ = take(test, drawn_records(np.array([0.5]), 6)[0], seed=[1])
    assert {one.item for one in state.responses} == set(range(50))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["reversed", "hardest leaked", "shuffled"])
def test_errors_off_the_curves_are_no_larger_than_with_random_questions(
    curves: ScoreCurves, kind: str
) -> None:
    rng = np.random.default_rng(8)
    records = drawn_records(rng.normal(0.3, 0.5, 72), 9)
    ease = np.argsort(curves.intercept)
    if kind == "reversed":
        records[:, ease] = records[:, ease[::-1]]
    elif kind == "hardest leaked":
        records[:, ease[:48]] = 1.0
    else:
        records = np.stack([row[rng.permutation(N_ITEMS)] for row in records])
    test, way = score_test(explained(curves, 60), WEIGHTS, 40, EVERY), estimator(curves)
    told = [way.estimate(take(test, row, seed=[i])[0].responses) for i, row in enumerate(records)]
    truth = records.mean(axis=1)
    missed = np.mean([abs(one.value - true) for one, true in zip(told, truth, strict=True)])
    random = np.mean(
        [
            np.abs(records[:, rng.permutation(N_ITEMS)[:40]].mean(axis=1) - truth).mean()
            for _ in range(40)
        ]
    )
    assert missed <= 1.25 * random
    held = [one.lo <= true <= one.hi for one, true in zip(told, truth, strict=True)]
    assert np.mean(held) >= 0.85


def test_the_mode_of_a_running_test_stays_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    curves, n_read = ScoreCurves(np.ones((1, 400)), np.zeros(400)), 0
    read = ScoreCurves._one_more

    def counted(*of: Any) -> Any:
        nonlocal n_read
        n_read += 1
        return read(*of)

    monkeypatch.setattr(ScoreCurves, "_one_more", counted)
    in_use = np.arange(3), np.ones(3)
    first = curves.locate(*in_use)
    for other in range(10, 400):
        curves.locate(np.array([other]), np.ones(1))
        assert curves.locate(*in_use) is first
    assert n_read == 3 + 390


def test_an_examinee_far_above_the_reference_models_is_not_shrunk(curves: ScoreCurves) -> None:
    records = drawn_records(np.full(30, 2.8), 5)
    test = score_test(explained(curves), WEIGHTS, 40, EVERY)
    way = estimator(curves)
    told = [way.estimate(take(test, row, seed=[i])[0].responses) for i, row in enumerate(records)]
    truth = records.mean(axis=1)
    assert abs(np.mean([one.value for one in told] - truth)) < 0.025
    held = [one.lo <= true <= one.hi for one, true in zip(told, truth, strict=True)]
    assert np.mean(held) >= 0.9
    assert min(one.position for one in told) > 1.5


def test_answers_against_the_curves_lead_to_sampled_questions(curves: ScoreCurves) -> None:
    # Hard items are right and easy ones wrong.
    hard = np.argsort(curves.intercept)
    responses = [
        Response(ItemIndex(int(item)), score)
        for pair in zip(hard[:6], hard[-6:], strict=True)
        for item, score in zip(pair, (1.0, 0.0), strict=True)
    ]
    explanations = explained(curves)
    assert explanations.doubt(explanations.evidence(*answered(responses))) > 0.99
    test = score_test(explanations, WEIGHTS, 60, EVERY)
    state = test.replay(responses)
    step = test.ask(state, step_rng(0, state))
    assert isinstance(step, Ask)
    assert step.probability == pytest.approx(1 / (N_ITEMS - 12))
    row = drawn_records(np.array([0.3]), 4)[0]
    answers = take(test, row, seed=[1])[0].responses
    assert explanations.doubt(explanations.evidence(*answered(answers))) < 0.9


def test_a_replayed_test_asks_the_same_next_item(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.4]), 6)[0]
    test = score_test(explained(curves), WEIGHTS, 44, EVERY)
    state, _ = take(test, row, seed=[7], concurrency=5)
    again = test.replay(state.responses)
    assert again.responses == state.responses
    assert test.predict(again) == test.predict(state)
    longer = score_test(explained(replace(curves)), WEIGHTS, 45, EVERY)
    first, second = (longer.ask(one, step_rng(7, one)) for one in (state, again))
    assert isinstance(first, Ask)
    assert first == second


def test_steps_in_flight_tell_whether_they_were_sampled(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.0]), 8)[0]
    test = score_test(explained(curves), WEIGHTS, 40, EVERY)
    state, _ = take(test, row, seed=[9], concurrency=8)
    draws = [one.draw for one in state.responses]
    assert [draw.step for draw in draws if draw] == list(range(1, 41))
    assert {draw.sampled for draw in draws if draw} == {True, False}


def test_a_version_keeps_its_curves(curves: ScoreCurves) -> None:
    ids = tuple(f"i{j}" for j in range(N_ITEMS))
    learned = LearnedCurves(curves=curves, n_reference=80)
    knowledge = {CURVES: curves_to_dict(learned, ids)}
    turned = ItemBank.from_intercepts(
        a=np.ones(N_ITEMS), intercept=np.zeros(N_ITEMS), item_ids=ids[::-1]
    )
    found = curves_of(turned, knowledge)
    assert found is not None
    np.testing.assert_allclose(found.curves.slopes, curves.slopes[:, ::-1], rtol=1e-6)
    unknown = ItemBank.from_intercepts(a=[1.0], intercept=[0.0], item_ids=["new"])
    assert curves_of(unknown, knowledge) is None
    assert curves_of(turned, {}) is None


@pytest.mark.parametrize(("right", "end"), [(True, "hi"), (False, "lo")])
def test_intervals_hold_the_extreme_possible_score(right: bool, end: str) -> None:
    """Scores of 40 items are 1/40 apart; with all answers right the score may be 1."""
    n_items = 40
    curves = ScoreCurves(np.full((1, n_items), 1.2), np.linspace(-1.0, 1.0, n_items))
    way = ScoreEstimator(explained(curves), np.full(n_items, 1 / n_items))
    told = way.estimate([Response(ItemIndex(i), float(right)) for i in range(8, 28)])
    assert getattr(told, end) == float(right)
    assert told.lo < told.value < told.hi
    # Items without weight are not open items.
    of_a_tag = np.where(np.arange(n_items) < 20, 0.0, 1 / 20)
    part = replace(way, weights=of_a_tag).estimate(
        [Response(ItemIndex(i), i % 2) for i in range(20)]
    )
    assert 0.0 < part.lo < part.value < part.hi < 1.0


def test_five_right_answers_of_five_leave_something_open() -> None:
    slopes, n_answers = np.full((1, 50), 1.2), 5
    curves = ScoreCurves(slopes, np.linspace(-1.5, 1.5, 50))
    at = curves.locate(np.arange(n_answers), np.ones(n_answers))
    left = np.where(np.arange(50) < n_answers, 0.0, 1 / 50)
    x = np.linspace(-20.0, 20.0, 4001)[:, None]
    chance = 1 / (1 + np.exp(-(x * slopes + curves.intercept)))
    likelihood = chance[:, :n_answers].prod(axis=1)

    def exact(prior_sd: float) -> float:
        mass = np.exp(-0.5 * (x[:, 0] / prior_sd) ** 2) * likelihood
        return float(mass @ (chance @ left - curves.expected(at) @ left) ** 2 / mass.sum())

    expected = curves.expected(at)
    assert exact(curves.prior_sd) < curves.doubt(at, left, expected) < exact(1.0)


def test_a_bank_with_curves_predicts_by_them_unless_told_otherwise(curves: ScoreCurves) -> None:
    bank = ItemBank.from_intercepts(a=np.ones(N_ITEMS), intercept=curves.intercept)
    learned = LearnedCurves(curves=curves, n_reference=80)
    tests = {
        method: Design.from_dict({"prediction": {"method": method}}).build(bank, curves=learned)
        for method in (None, "combined", "design", "p-irt")
    }
    names = {method: test.predict(test.start()).method for method, test in tests.items()}
    assert names == {
        None: "combined",
        "combined": "combined",
        "design": "design",
        "p-irt": "p-irt",
    }


def test_a_task_never_asked_has_the_prior_of_the_reference_models(curves: ScoreCurves) -> None:
    asked = np.arange(N_ITEMS) < 40
    target = np.where(asked, 0.0, 1.0 / 120)
    assert curves.towards(target, asked).prior_sd == 1.0
    assert curves.towards(target, EVERY) is curves
    assert curves.towards(WEIGHTS, None) is curves
    # A task that can be asked is sampled, so nothing is shrunk to the reference models.
    assert curves.towards(WEIGHTS, np.arange(N_ITEMS) < 5) is curves
    assert curves.towards(WEIGHTS, np.arange(N_ITEMS) < 4).prior_sd == 1.0


def test_three_fifths_of_a_scores_weight_must_be_askable() -> None:
    weights = np.array([0.5, 0.1, 0.4])
    masks: list[list[bool]] = [[True, True, False], [True, False, False], [False, True, True]]
    assert is_askable(weights, None)
    assert [is_askable(weights, np.array(mask)) for mask in masks] == [True, False, False]


@dataclass(frozen=True)
class _Says:
    """A predictor with a fixed prediction."""

    value: float
    half: float
    least: float = 0.0

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        lo = max(self.value - self.half, self.least)
        return Prediction(value=self.value, lo=lo, hi=self.value + self.half, method="p-irt")


def _blended(curves: ScoreCurves, own: _Says, answers: list[Response]) -> Prediction:
    free = estimator(curves)
    alike = estimator(curves.of_the_like())
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    return BlendedScore((alike, free), own).predict(bank, answers, belief)


def test_a_clipped_interval_does_not_gain_weight(curves: ScoreCurves) -> None:
    answers = [Response(ItemIndex(i), float(i % 2)) for i in range(40)]
    whole, cut = (_blended(curves, _Says(0.3, 0.06, least), answers) for least in (0.0, 0.3))
    assert cut == whole


def test_score_curves_count_little_where_their_prior_decides(curves: ScoreCurves) -> None:
    """With all of a few items right the two priors lead far apart."""
    answers = [Response(ItemIndex(i), 1.0) for i in range(6)]
    alike, free = (
        estimator(one).by_curves(answers).value for one in (curves.of_the_like(), curves)
    )
    assert free - alike > 0.1
    told = _blended(curves, _Says(0.6, 0.08), answers)
    assert abs(told.value - 0.6) < 0.25 * abs((free + alike) / 2 - 0.6)
    assert told.lo >= 6 / N_ITEMS


def test_with_all_items_asked_the_prediction_is_the_score(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.3]), 9)[0]
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    answers = [Response(ItemIndex(i), float(row[i])) for i in range(N_ITEMS)]
    told = estimator(curves).predict(bank, answers, belief)
    assert told.lo == told.value == told.hi == pytest.approx(row.mean())
    # Items that cannot be answered do not count: only the others do.
    part = estimator(curves).predict(bank, answers[:60], belief, range(60, N_ITEMS))
    assert part.lo == part.value == part.hi == pytest.approx(row[:60].mean())


@pytest.mark.parametrize(("n_sampled", "binary"), [(0, 0), (2, 0), (8, 0), (8, 1)])
def test_a_reading_matches_direct_sums(curves: ScoreCurves, n_sampled: int, binary: int) -> None:
    """Cover answers in between, and binary ones, which vary more than the curves state."""
    rng = np.random.default_rng(12)
    held = ScoreCurves(curves.slopes[:2], curves.intercept, dispersion=0.7)
    weights = rng.random(N_ITEMS)
    weights /= weights.sum()
    items = rng.permutation(N_ITEMS)[:14]
    scores = rng.random(14)
    if binary:
        scores = (scores < 0.5).astype(float)
    chance = np.where(np.arange(14) < n_sampled, rng.uniform(0.01, 0.1, 14), 1.0)
    chance[1] = 0.5 if n_sampled >= 3 else chance[1]
    along = held.intercept - held.intercept.mean()
    bend = along**2 / along.std()
    flatter = 1 / np.sqrt(1 + np.pi / 8)
    wide = flatter * np.vstack([held.slopes, np.ones(N_ITEMS), along, bend - bend.mean()])
    left = weights.copy()
    left[items] = 0.0
    certain = weights[items] @ scores

    def explained_by(
        slopes: FloatArray, intercept: FloatArray, sds: FloatArray
    ) -> tuple[float, float, FloatArray, FloatArray, FloatArray]:
        across = slopes[:, items]

        def slope(x: FloatArray) -> FloatArray:
            p = expit(x @ across + intercept[items])
            return np.asarray(across @ (scores - p) / 0.7 - x / sds**2)

        mode = root(slope, np.zeros(len(sds)), tol=1e-12).x
        p = expit(mode @ slopes + intercept)
        information = (across * (p * (1 - p))[items] / 0.7) @ across.T + np.diag(sds**-2)
        covariance = np.linalg.inv(information)
        # One standard deviation to each side along the direction that moves the score most.
        rise = slopes @ (left * p * (1 - p))
        step = covariance @ rise / np.sqrt(rise @ covariance @ rise)
        ends = [left @ expit((mode + side * step) @ slopes + intercept) for side in (1, -1)]
        variance = (ends[0] - ends[1]) ** 2 / 4 + 0.7 * np.sum(left**2 * p * (1 - p))
        return float(certain + left @ p), float(variance), mode, covariance, p

    value, variance, mode, _, p_held = explained_by(
        held.slopes, held.intercept, np.array([4.0, 1.0])
    )
    free_value, free_variance, _, covariance, p = explained_by(
        wide, flatter * held.intercept, np.array([4.0, 1.0, 1.0, 1.0, 0.5])
    )
    squares = [
        np.sum((scores - each[items]) ** 2) / np.sum(0.7 * (each * (1 - each))[items])
        for each in (p_held, p)
    ]
    wider = min(max((8 + 14 * min(squares)) / (8 + 14), 1.0), 1 / 0.7)
    assert (wider > 1.05) == bool(binary)
    variance, free_variance = wider * variance, wider * free_variance
    some, bias = items[:n_sampled], 1.5 * free_variance
    if n_sampled >= 3:
        # In proportion to the widths, with this total, and each at most once.
        widths = np.array([chance[j] * np.prod(1 - chance[:j]) for j in range(n_sampled)])

        def sampled_by(rate: float) -> FloatArray:
            return np.minimum(rate * widths, 1.0)

        rest = 1.0 - widths.sum()
        rate = brentq(lambda r: sampled_by(r).sum() + r * rest - n_sampled, 0.0, 1e4, xtol=1e-13)
        share = weights[some] * (1 / sampled_by(rate) - 1)
        assert np.count_nonzero(share) == 6  # two of them were certain to be sampled
        share /= share.sum()
        spread = p[some] * (1 - p[some])
        told = np.array([wide[:, i] @ covariance @ wide[:, i] for i in some]) * spread / 0.7
        residual = (scores[:n_sampled] - p[some]) / np.maximum(1 - told, 0.2)
        noise = max(np.sum((share * residual) ** 2), np.sum(share**2 * spread * 0.7))
        noise *= n_sampled / (n_sampled - 1) * left.sum()
        seen = left.sum() * (share @ residual)
        bias = max(bias, seen**2 - noise)
        free_value += bias / (bias + noise) * seen
        bias *= noise / (bias + noise)
    free_variance += bias

    answers = [
        Response(ItemIndex(int(i)), float(s), draw=Draw(n, float(c)))
        for n, (i, s, c) in enumerate(zip(items, scores, chance, strict=True), 1)
    ]
    both = explained(held, 60)
    told_score = ScoreEstimator(both, weights).estimate(answers)
    free, own_way = (one.locate(items, scores).log_likelihood for one in (both.free, held))
    assert told_score.evidence == pytest.approx((free - own_way) / wider, abs=1e-6)
    assert told_score.by_curves == pytest.approx(value, abs=1e-6)
    assert told_score.by_sample == pytest.approx(free_value, abs=1e-6)
    assert told_score.position == pytest.approx(mode[0], abs=1e-6)
    assert told_score.sampled == n_sampled

    doubt = told_score.doubt
    assert doubt == pytest.approx(expit(logit(0.4) + told_score.evidence))
    factor = 0.75 * np.exp(0.2 * min(max(abs(mode[0]) - 1.0, 0.0), 6.0))
    own = student(8.0, logit(value), factor * variance**0.5 / (value * (1 - value)))
    other_sd = 0.8 * free_variance**0.5 / (free_value * (1 - free_value))
    other = student(8.0, logit(free_value), other_sd)

    def below(x: float) -> float:
        return float((1 - doubt) * own.cdf(x) + doubt * other.cdf(x))

    first, last = logit(certain), logit(certain + left.sum())
    for level, found in ((0.5, told_score.value), (0.025, told_score.lo), (0.975, told_score.hi)):
        wanted = below(first) + level * (below(last) - below(first))
        end = brentq(lambda x, wanted=wanted: below(x) - wanted, first, last)
        assert found == pytest.approx(expit(end), abs=1e-5)


def test_curves_err_more_the_farther_they_extrapolate(curves: ScoreCurves) -> None:
    for position, factor in ((0.0, 1.0), (-0.9, 1.0), (3.0, np.exp(0.4))):
        place = np.zeros(len(curves.slopes))
        place[0] = position
        at = Located(place, np.diag(1.0 / curves.precision))
        held = Explained(curves, at, WEIGHTS, np.full(N_ITEMS, 0.5), value=0.5, variance=0.01)
        assert held.extrapolation_factor == pytest.approx(factor)


@pytest.mark.parametrize(("right", "far"), [(3, False), (20, True)])
def test_a_blend_weights_by_precision_and_adds_the_variance_between_models(
    right: int, far: bool
) -> None:
    rng = np.random.default_rng(8)
    shape = ScoreCurves(rng.lognormal(0.0, 0.2, (1, N_ITEMS)), rng.normal(size=N_ITEMS))
    answers = [Response(ItemIndex(i), float(i % right != 0)) for i in range(20)]
    both = [estimator(one) for one in (shape.of_the_like(), shape)]
    held = [one.by_curves(answers) for one in both]
    growth = np.exp(0.2 * (min(max(abs(held[1].at.position), 1.0), 7.0) - 1.0))
    assert (growth > 1.2) == far
    m1, m2 = (one.value for one in held)
    s1, s2 = (one.variance * (1.6 * one.extrapolation_factor) ** 2 for one in held)
    curves_mean, curves_variance = (m1 + m2) / 2, (s1 + s2) / 2 + ((m1 - m2) / 2) ** 2
    own_mean, own_variance = 0.55, (growth * 0.08 / 1.959964) ** 2
    precision = np.array([1 / curves_variance, 1 / own_variance])
    share = precision / precision.sum()
    mean = share @ [curves_mean, own_mean]
    # Variance within both models plus variance between them, as in a mixture of two.
    variance = share @ [curves_variance, own_variance]
    variance += share @ (np.array([curves_mean, own_mean]) - mean) ** 2
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    told = BlendedScore((both[0], both[1]), _Says(0.55, 0.08)).predict(bank, answers, belief)
    assert told.value == pytest.approx(mean)
    half = 1.959964 * variance**0.5
    ends = mean - half, min(mean + half, 1.0 - (20 - sum(r.score for r in answers)) / N_ITEMS)
    assert (told.lo, told.hi) == pytest.approx(ends, abs=1e-6)


def test_an_examinee_off_flat_curves_is_measured() -> None:
    """All reference models guess; on flat curves no ability moves the score."""
    flat = ScoreCurves(np.full((1, N_ITEMS), 1e-3), np.zeros(N_ITEMS))
    row = (np.random.default_rng(22).random(N_ITEMS) < 0.9).astype(float)
    told = estimator(flat).estimate(answers_to(np.arange(0, N_ITEMS, 4), row, sampled=True))
    assert told.doubt > 0.99
    assert told.lo <= row.mean() <= told.hi
    assert told.value == pytest.approx(row.mean(), abs=0.07)


def test_equal_items_are_not_sampled_in_file_order() -> None:
    """A file may go from easy to hard in each topic, in step with the sequence."""
    n = 440
    flat = ScoreCurves(np.ones((1, n)), np.zeros(n))
    position = Sampled.of(flat, np.full(n, 1.0 / n)).position
    assert abs(np.corrcoef(position, np.arange(n))[0, 1]) < 0.15
    assert sorted(position) == pytest.approx((np.arange(n) + 0.5) / n)


def test_a_bank_that_is_answered_right_has_a_score_of_1() -> None:
    weights = np.full(49, 1 / 49) * (1 + 1e-15)
    certain = Certain.after(weights, np.arange(49), np.ones(49))
    assert (certain.least, certain.most) == (1.0, 1.0)
