"""p-IRT predictions from several abilities."""

from typing import cast

import numpy as np
import pytest
from scipy.special import expit

from app.engine.adaptive import AdaptiveTest, step_rng
from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.models.base import BoolArray
from app.engine.models.multidimensional import (
    estimate_profile,
)
from app.engine.multidimensional import ProfileBelief, ProfilePIrt, abilities_of
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import ScoreEstimator
from app.engine.prediction.score_model import ScoreModel, ScorePredictor, Target, short_form
from app.engine.selection.base import Ask
from app.engine.state import CatState, Response
from app.errors import InvalidInputError
from tests.engine.random_banks import several

N_ITEMS = 60
TAGS = tuple(frozenset({"law" if j % 2 else "maths"}) for j in range(N_ITEMS))
ALL = np.full(N_ITEMS, 1 / N_ITEMS)


def bank_of(seed: int) -> ItemBank:
    return several(seed, n_items=N_ITEMS, dimensions=2)


def drawn(bank: ItemBank, n: int, seed: int) -> FloatArray:
    """Draw answers of examinees from the bank's own population."""
    known, rng = abilities_of(bank), np.random.default_rng(seed)
    abilities = rng.multivariate_normal(known.population.mean, known.population.covariance, size=n)
    expected = known.items.expected_score(abilities)
    return (rng.random(expected.shape) < expected).astype(float)


def state_of(test: AdaptiveTest, scores: FloatArray, n: int) -> CatState:
    return test.replay(Response(ItemIndex(j), float(scores[j])) for j in range(n))


def scores_known(seed: int = 0) -> dict[str, Target]:
    rng = np.random.default_rng(seed)
    model = ScoreModel(
        rng.uniform(0.3, 0.8, N_ITEMS),
        0.2 * rng.normal(size=(3, N_ITEMS)),
        rng.uniform(0.02, 0.2, N_ITEMS),
    )
    law = np.array([float("law" in tags) for tags in TAGS])
    return {"all": Target(model, ALL), "law": Target(model, law / law.sum())}


def test_the_value_is_the_mean_over_the_normal_belief() -> None:
    bank = bank_of(1)
    test = Design.from_dict({"preset": "ability"}).build(bank)
    state = state_of(test, drawn(bank, 1, 2)[0], 12)
    told = ProfilePIrt(ALL).predict(bank, state.responses, state.belief)
    belief = state.belief
    profile = belief.profile  # type: ignore[attr-defined]  # of a bank of several abilities
    points = np.random.default_rng(3).multivariate_normal(profile.mean, profile.covariance, 40_000)
    items = abilities_of(bank).items
    expected = expit(points @ items.slopes[12:].T + items.intercept[12:])
    seen = sum(response.score for response in state.responses)
    assert told.value == pytest.approx((seen + expected.sum(axis=1).mean()) / N_ITEMS, abs=2e-3)
    turned = np.random.default_rng(4).random(expected.shape) < expected
    lo, hi = np.quantile((seen + turned.sum(axis=1)) / N_ITEMS, [0.025, 0.975])
    assert told.lo == pytest.approx(lo, abs=0.02)
    assert told.hi == pytest.approx(hi, abs=0.02)


def test_intervals_hold_for_examinees_of_the_model() -> None:
    bank = bank_of(5)
    known = abilities_of(bank)
    held, missed = 0, []
    rows = drawn(bank, 400, 6)
    for row in rows:
        profile = estimate_profile(known.items, known.population, np.arange(20), row[:20])
        answers = [Response(ItemIndex(j), float(row[j])) for j in range(20)]
        told = ProfilePIrt(ALL).predict(bank, answers, ProfileBelief(profile, known.composite))
        held += told.lo - 1e-12 <= row.mean() <= told.hi + 1e-12
        missed.append(told.value - row.mean())
    assert 0.93 <= held / len(rows) <= 0.98
    assert abs(np.mean(missed)) < 0.01


def test_all_answers_leave_nothing_open() -> None:
    bank, row = bank_of(1), drawn(bank_of(1), 1, 2)[0]
    test = Design.from_dict({"preset": "ability"}).build(bank)
    told = test.predict(state_of(test, row, N_ITEMS))
    assert told.value == told.lo == told.hi == pytest.approx(row.mean())


def test_tasks_that_a_test_is_not_about_alone_have_a_level_of_their_own() -> None:
    bank = bank_of(1)
    whole = Design.from_dict({}).build(bank, tags=TAGS)
    law = Design.from_dict({"selection": {"target": {"law": 1.0}}}).build(bank, tags=TAGS)
    for test, own in ((whole, {"law", "maths"}), (law, {"maths"})):
        estimators = {name: cast(ScoreEstimator, each) for name, each in test.tasks.items()}
        assert {name for name, each in estimators.items() if each.own_level} == own


def test_it_predicts_what_the_test_is_about() -> None:
    bank, row = bank_of(1), drawn(bank_of(1), 1, 2)[0]
    of_law = {"selection": {"criterion": "v_optimal", "target": {"law": 1.0}}}
    by_p_irt = {"prediction": {"method": "p-irt"}}
    law = Design.from_dict(of_law | by_p_irt).build(bank, tags=TAGS)
    whole = Design.from_dict(by_p_irt).build(bank, tags=TAGS)
    state = state_of(law, row, 30)
    weights = np.array([float("law" in tags) for tags in TAGS]) / 30
    assert law.predict(state) == ProfilePIrt(weights).predict(bank, state.responses, state.belief)
    assert law.predict(state) == law.tasks["law"].predict(bank, state.responses, state.belief)
    assert law.predict(state) != whole.predict(state)
    assert set(law.tasks) == {"all", "law", "maths"}
    # Of the odd items 15 are answered: these bound the score from below, the rest from above.
    seen = float(row[1:30:2].sum()) / 30
    assert seen <= law.predict(state).lo <= law.predict(state).hi <= seen + 15 / 30


def test_the_design_says_how_scores_are_predicted() -> None:
    bank, known = bank_of(1), scores_known()
    methods = {}
    for method in (None, "score-model", "p-irt"):
        design = Design.from_dict({"prediction": {"method": method}})
        assert Design.from_dict(design.to_dict()) == design
        test = design.build(bank, tags=TAGS, targets=known)
        methods[method] = test.predict(test.start()).method
        start, bank_of_test = test.start(), test.bank
        told = (one.predict(bank_of_test, (), start.belief) for one in test.tasks.values())
        assert {one.method for one in told} == {methods[method]}
    assert methods == {None: "combined", "score-model": "score-model", "p-irt": "p-irt"}


def test_a_score_model_that_is_not_there_is_refused() -> None:
    design = Design.from_dict({"prediction": {"method": "score-model"}})
    with pytest.raises(InvalidInputError, match="nested or mirt") as caught:
        design.build(bank_of(1), tags=TAGS)
    assert caught.value.problems[0].pointer == "/prediction/method"


def test_an_unknown_method_is_refused_by_name() -> None:
    with pytest.raises(InvalidInputError, match="did you mean 'p-irt'") as caught:
        Design.from_dict({"prediction": {"method": "p_irt"}})
    assert caught.value.problems[0].pointer == "/prediction/method"


def test_answers_read_for_one_ability_are_refused() -> None:
    bank = bank_of(1)
    plain = ItemBank.from_intercepts(a=bank.a, intercept=bank.intercept)
    state = state_of(Design.from_dict({"preset": "ability"}).build(plain), drawn(bank, 1, 2)[0], 5)
    with pytest.raises(InvalidInputError, match="one ability"):
        ProfilePIrt(ALL).predict(bank, state.responses, state.belief)


def test_the_linear_model_selects_and_predicts_for_a_task_never_asked() -> None:
    rng = np.random.default_rng(5)
    bank, targets = bank_of(1), scores_known()
    curves = LearnedCurves(
        curves=ScoreCurves(rng.lognormal(0.0, 0.3, (1, N_ITEMS)), rng.normal(size=N_ITEMS)),
        n_reference=40,
    )
    maths = np.array(["maths" in tags for tags in TAGS])
    design = Design.from_dict(
        {
            "selection": {"criterion": "v_optimal", "target": {"law": 1.0}},
            "stopping": {"score_margin": None, "min_items": 5, "max_items": 28},
        }
    )

    def built(active: BoolArray | None) -> AdaptiveTest:
        return design.build(bank, active=active, tags=TAGS, targets=targets, curves=curves)

    test, state = built(maths), built(maths).start()
    asked: list[int] = []
    while isinstance(step := test.ask(state, step_rng(3, state)), Ask):
        assert step.probability == 1.0  # items without information on the target are not sampled
        asked.append(step.item)
        state = state.with_pending(step.item, step.probability)
        state = test.tell(state, Response(step.item, 1.0))
    assert asked == short_form(targets["law"], 28, np.where(maths, 1.0, np.inf))
    told, linear = test.predict(state), ScorePredictor(targets["law"])
    by_linear = linear.predict(bank, state.responses, state.belief).value
    free = built(None).predictor.predict(bank, state.responses, state.belief).value
    assert told.method == "combined"
    assert min(free, by_linear) < told.value < max(free, by_linear)
    assert isinstance(built(None).predictor, ScoreEstimator)
