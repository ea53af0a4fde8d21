"""Scores by curves and draws: right where the model is right, and mended where it is not."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.calibration.multidimensional.curve_errors import score_test
from app.calibration.multidimensional.score_curves import fit_curves
from app.engine.adaptive import Ask, step_rng
from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.design.parts import EstimatorDesign, PredictionMethod
from app.engine.multidimensional.curve_knowledge import CURVES, curves_of, curves_to_dict
from app.engine.prediction.blended_score import BlendedScore
from app.engine.prediction.combined_score import (
    CombinedScore,
    DesignScore,
    LearnedCurves,
    Told,
)
from app.engine.prediction.correction import (
    CorrectedPredictor,
    IntervalCorrection,
    Stretch,
    VersionLearning,
)
from app.engine.prediction.design_based import LEAD, discrepancy
from app.engine.prediction.envelope_score import EnvelopeScore
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.p_irt import PIrt, Prediction
from app.engine.prediction.parts_score import PartsScore
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.selection.by_lot import contradicted
from app.engine.simulation.simulate import take
from app.engine.state import Belief, Draw, Response
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

N_ITEMS = 160


def drawn_records(thetas: FloatArray, seed: int) -> FloatArray:
    """Answers by a 2PL whose items are the same for every seed."""
    items = np.random.default_rng(0)
    a, b = items.lognormal(0.0, 0.3, N_ITEMS), items.normal(0.3, 1.2, N_ITEMS)
    chance = 1 / (1 + np.exp(-a * (thetas[:, None] - b)))
    return (np.random.default_rng(seed).random(chance.shape) < chance).astype(np.float64)


@pytest.fixture(scope="module")
def curves() -> ScoreCurves:
    """Learned from examinees around 0."""
    return fit_curves(drawn_records(np.random.default_rng(1).normal(0.0, 0.7, 80), 2))


WEIGHTS = np.full(N_ITEMS, 1.0 / N_ITEMS)
EVERY = np.ones(N_ITEMS, dtype=np.bool_)


@pytest.mark.slow
def test_draws_estimate_without_bias_what_a_model_gets_wrong() -> None:
    n, asked = 14, 7
    rng = np.random.default_rng(3)
    # A model without a clue, that learns next to nothing: what it gets wrong is all there is.
    model = ScoreCurves(np.full((1, n), 1e-6), rng.normal(size=n))
    scores, weights = rng.random(n), rng.dirichlet(np.ones(n))
    liked = rng.random(n) + 0.2
    frame = np.ones(n, dtype=np.bool_)
    found = []
    for _ in range(4000):
        left = list(range(n))
        responses: list[Response] = []
        for step in range(1, asked + 1):
            chances = liked[left] * (1.0 + 2.0 * (len(responses) % 2) * scores[left])
            chances /= chances.sum()
            at = int(rng.choice(len(left), p=chances))
            item = left.pop(at)
            draw = Draw(step, float(chances[at]))
            responses.append(Response(ItemIndex(item), float(scores[item]), draw=draw))
        items = np.array([one.item for one in responses])
        at_ = model.locate(items, scores[items])
        told = discrepancy(model, at_, weights, responses, frame)
        assert told is not None
        residual = weights * (scores - model.expected(at_))
        found.append((told.value - residual[left].sum(), told.variance))
    error, variance = np.array(found).T
    assert abs(error.mean()) < 4.0 * error.std() / np.sqrt(error.size)
    assert variance.mean() > 0.8 * error.var()


def test_too_few_draws_say_nothing(curves: ScoreCurves) -> None:
    responses = [Response(ItemIndex(i), 1.0, draw=Draw(i + 1, 0.5)) for i in range(4)]
    at = curves.locate(np.arange(4), np.ones(4))
    assert discrepancy(curves, at, WEIGHTS, responses, EVERY) is None
    told = DesignScore(curves, WEIGHTS, ModelError()).told(responses)
    assert told.hi - told.lo == pytest.approx(1 - 4 / N_ITEMS)


def test_where_a_test_in_use_stood_is_not_forgotten_for_many_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_an_examinee_far_above_those_calibrated_is_not_drawn_back(curves: ScoreCurves) -> None:
    records = drawn_records(np.full(30, 2.8), 5)
    test = score_test(curves, WEIGHTS, 40, EVERY)
    way = CombinedScore(curves, WEIGHTS, ModelError(above=0.2))
    told = [way.told(take(test, row, seed=[i])[0].responses) for i, row in enumerate(records)]
    truth = records.mean(axis=1)
    assert abs(np.mean([one.value for one in told] - truth)) < 0.015
    held = [one.lo <= true <= one.hi for one, true in zip(told, truth, strict=True)]
    assert np.mean(held) >= 0.9
    assert min(one.position for one in told) > 1.5


def test_draws_mend_the_score_of_an_examinee_like_no_other(curves: ScoreCurves) -> None:
    # Knows what is hard, and fails what is easy: no curve that rises follows that.
    scores = np.zeros(N_ITEMS)
    scores[np.argsort(curves.intercept)[:60]] = 1.0
    test = score_test(curves, WEIGHTS, 60, EVERY)
    way = CombinedScore(curves, WEIGHTS, ModelError())
    ends = [take(test, scores, seed=[seed])[0] for seed in range(12)]
    told = [way.told(state.responses) for state in ends]
    truth = float(scores.mean())
    missed = np.mean([abs(one.value - truth) for one in told])
    by_model = np.mean([abs(one.by_model - truth) for one in told])
    assert missed < 0.6 * by_model
    assert np.mean([one.lo <= truth <= one.hi for one in told]) >= 0.6
    assert np.mean([one.hi - one.lo for one in told]) > 6 * np.mean([one.model_sd for one in told])


def test_answers_that_contradict_the_model_are_asked_for_by_lot_alone(curves: ScoreCurves) -> None:
    # Knows what is hard, and fails what is easy.
    hard = np.argsort(curves.intercept)
    responses = [
        Response(ItemIndex(int(item)), score)
        for pair in zip(hard[:6], hard[-6:], strict=True)
        for item, score in zip(pair, (1.0, 0.0), strict=True)
    ]
    test = score_test(curves, WEIGHTS, 60, EVERY)
    state = test.replay(responses)
    assert contradicted(curves, state)
    step = test.ask(state, step_rng(0, state))
    assert isinstance(step, Ask)
    assert step.probability == pytest.approx(1 / (N_ITEMS - 12))
    row = drawn_records(np.array([0.3]), 4)[0]
    assert not contradicted(curves, take(test, row, seed=[1])[0])


def test_a_test_goes_on_from_its_answers_as_it_would_have(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.4]), 6)[0]
    test = score_test(curves, WEIGHTS, 44, EVERY)
    state, _ = take(test, row, seed=[7], concurrency=5)
    again = test.replay(state.responses)
    assert again.responses == state.responses
    assert test.predict(again) == test.predict(state)
    longer = score_test(replace(curves), WEIGHTS, 45, EVERY)
    first, second = (longer.ask(one, step_rng(7, one)) for one in (state, again))
    assert isinstance(first, Ask)
    assert first == second
    assert 0.0 < first.probability < 1.0


def test_steps_in_flight_tell_the_probability_given_what_was_asked(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.0]), 8)[0]
    test = score_test(curves, WEIGHTS, 40, EVERY)
    state, _ = take(test, row, seed=[9], concurrency=8)
    draws = [one.draw for one in state.responses]
    assert [draw.step for draw in draws if draw] == list(range(1, 41))
    assert all(draw and draw.by_lot == (draw.step > LEAD) for draw in draws)


def test_a_version_keeps_its_curves(curves: ScoreCurves) -> None:
    ids = tuple(f"i{j}" for j in range(N_ITEMS))
    learned = LearnedCurves(curves=curves, errors={"all": ModelError(-0.1, 0.2, 0.3)})
    knowledge = {CURVES: curves_to_dict(learned, ids)}
    turned = ItemBank.from_intercepts(
        a=np.ones(N_ITEMS), intercept=np.zeros(N_ITEMS), item_ids=ids[::-1]
    )
    found = curves_of(turned, knowledge)
    assert found is not None
    assert found.errors == learned.errors
    np.testing.assert_allclose(found.curves.slopes, curves.slopes[:, ::-1], rtol=1e-6)
    unknown = ItemBank.from_intercepts(a=[1.0], intercept=[0.0], item_ids=["new"])
    assert curves_of(unknown, knowledge) is None
    assert curves_of(turned, {}) is None


@pytest.mark.parametrize(
    ("learned", "expected"),
    [
        (
            {},
            [
                (0.7705026052597146, 0.5086419483101308, 0.975),
                (0.6739781531294309, 0.5600845375913278, 0.7940041592004439),
            ],
        ),
        (
            {"degrees": 8.0, "curved": True},
            [
                (0.7705026052597146, 0.5344137204410111, 0.975),
                (0.6733850829777911, 0.5651702448510354, 0.7858585865832304),
            ],
        ),
    ],
    ids=["by slopes", "by curves"],
)
def test_a_version_of_before_predicts_as_it_did(
    learned: dict[str, Any], expected: list[tuple[float, float, float]]
) -> None:
    n_items = 80
    at = np.arange(n_items)
    slopes = np.vstack([1.0 + 0.5 * np.cos(at), 0.4 * np.sin(3.0 * at)])
    stored = ModelError.from_dict({"within": -0.1, "above": 0.2, "below": 0.3, **learned})
    way = CombinedScore(
        ScoreCurves(slopes, np.linspace(-2.0, 2.0, n_items)), np.full(n_items, 1 / n_items), stored
    )
    answers = [
        Response(
            ItemIndex(7 * i % n_items),
            float(i % 3 > 0),
            draw=Draw(i + 1, 1.0 if i < LEAD else 1.0 / (n_items - i)),
        )
        for i in range(32)
    ]
    told = [way.told(answers[:count]) for count in (6, 32)]
    np.testing.assert_allclose([(one.value, one.lo, one.hi) for one in told], expected, rtol=1e-9)
    today = replace(way, error=replace(stored, of_logits=True)).told(answers)
    assert today.lo != pytest.approx(told[1].lo, rel=1e-3)


@pytest.mark.parametrize("n_wrong", [1, 2, 3])
def test_who_was_lucky_keeps_the_way_down(n_wrong: int) -> None:
    """Up where the score's curve is flat an interval by its slope is too short on one side."""
    n_items, n_answers, slope = 400, 12, 1.2
    curves = ScoreCurves(np.full((1, n_items), slope), np.linspace(-2.0, 2.0, n_items))
    items = (31 * np.arange(n_answers) + 9) % n_items
    scores = np.where(np.isin(np.arange(n_answers), 1 + 3 * np.arange(n_wrong)), 0.0, 1.0)
    x = np.linspace(-20.0, 20.0, 4001)
    chance = 1 / (1 + np.exp(-(x[:, None] * slope + curves.intercept)))
    asked = chance[:, items]
    mass = np.where(scores > 0.0, asked, 1.0 - asked).prod(axis=1)
    mass *= np.exp(-0.5 * (x / curves.prior_sd) ** 2)
    score = (chance.sum(axis=1) - asked.sum(axis=1) + scores.sum()) / n_items
    exact_lo, exact_hi = np.interp([0.025, 0.975], np.cumsum(mass) / mass.sum(), score)
    answers = [Response(ItemIndex(i), s) for i, s in zip(items.tolist(), scores, strict=True)]
    error = ModelError(0.0, 0.0, 0.0, degrees=100.0)

    def told(error: ModelError) -> Told:
        return CombinedScore(curves, np.full(n_items, 1 / n_items), error).told(answers)

    of_logits, of_scores = told(error), told(replace(error, of_logits=False))
    assert of_logits.lo < exact_lo < of_scores.lo
    assert of_logits.hi < exact_hi < of_scores.hi
    assert of_logits.value == pytest.approx(of_scores.value, abs=0.001)


@pytest.mark.parametrize(("right", "end"), [(True, "hi"), (False, "lo")])
def test_what_is_just_possible_is_within_where_half_an_item_is_missing(
    right: bool, end: str
) -> None:
    """Scores of 40 items are 1/40 apart: who has had all right may have all of them."""
    n_items = 40
    curves = ScoreCurves(np.full((1, n_items), 1.2), np.linspace(-1.0, 1.0, n_items))
    error = ModelError(0.0, 0.0, 0.0)
    way = CombinedScore(curves, np.full(n_items, 1 / n_items), error)
    told = way.told([Response(ItemIndex(i), float(right)) for i in range(8, 28)])
    assert getattr(told, end) == float(right)
    assert told.lo < told.value < told.hi
    # Items that do not count are no open ones.
    of_a_tag = np.where(np.arange(n_items) < 20, 0.0, 1 / 20)
    part = replace(way, weights=of_a_tag).told([Response(ItemIndex(i), i % 2) for i in range(20)])
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
    assert curves.doubt(at, left, expected, curved=False) < exact(curves.prior_sd)
    assert exact(curves.prior_sd) < curves.doubt(at, left, expected) < exact(1.0)


def test_a_bank_with_curves_predicts_by_them_unless_told_otherwise(curves: ScoreCurves) -> None:
    bank = ItemBank.from_intercepts(a=np.ones(N_ITEMS), intercept=curves.intercept)
    learned = LearnedCurves(curves=curves, errors={})
    names = {
        method: Design.from_dict({"preset": "ability", "prediction": {"method": method}})
        .build(bank, curves=learned)
        .predictor.name
        for method in (None, "combined", "design", "p-irt")
    }
    assert names == {None: "combined", "combined": "combined", "design": "design", "p-irt": "p-irt"}
    assert Design.from_dict({"preset": "ability"}).build(bank).predictor.name == "p-irt"
    with pytest.raises(InvalidInputError, match="learned score curves"):
        Design.from_dict({"prediction": {"method": "design"}}).build(bank)


def test_the_atlas_preset_keeps_its_published_prediction() -> None:
    design = Design.from_dict({"preset": "atlas"})
    assert design.prediction.method is PredictionMethod.P_IRT


def test_a_task_never_asked_takes_the_distribution_of_those_calibrated(curves: ScoreCurves) -> None:
    asked = np.arange(N_ITEMS) < 40
    target = np.where(asked, 0.0, 1.0 / 120)
    assert curves.towards(target, asked).prior_sd == 1.0
    assert curves.towards(target, EVERY) is curves
    assert curves.towards(WEIGHTS, None) is curves
    # Of a part that can be asked draws tell: nobody is drawn back to those calibrated.
    assert curves.towards(WEIGHTS, np.arange(N_ITEMS) < 5) is curves
    assert curves.towards(WEIGHTS, np.arange(N_ITEMS) < 4).prior_sd == 1.0


@dataclass(frozen=True)
class _Says:
    """A predictor that always says the same."""

    value: float
    half: float
    least: float = 0.0
    name: str = "p-irt"

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
    free = CombinedScore(curves, WEIGHTS, ModelError())
    alike = CombinedScore(curves.of_the_like(), WEIGHTS, ModelError())
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    return BlendedScore((alike, free), own).predict(bank, answers, belief)


def test_a_test_without_draws_weighs_both_models_by_what_each_knows(curves: ScoreCurves) -> None:
    row = drawn_records(np.array([0.3]), 9)[0]
    answers = [Response(ItemIndex(i), float(row[i])) for i in range(0, N_ITEMS, 4)]
    free = CombinedScore(curves, WEIGHTS, ModelError()).alone(answers)[0]
    sure, unsure = (
        _blended(curves, _Says(0.9, 0.01), answers),
        _blended(curves, _Says(0.9, 0.4), answers),
    )
    assert free < unsure.value < sure.value < 0.9
    assert sure.value > 0.85
    assert unsure.value == pytest.approx(free, abs=0.05)
    # Two models that contradict each other widen the interval.
    agreeing = _blended(curves, _Says(free, 0.06), answers)
    apart = _blended(curves, _Says(free + 0.2, 0.06), answers)
    assert apart.hi - apart.lo > 1.5 * (agreeing.hi - agreeing.lo)


def test_an_interval_that_answers_have_cut_off_makes_nobody_surer(curves: ScoreCurves) -> None:
    answers = [Response(ItemIndex(i), float(i % 2)) for i in range(40)]
    whole, cut = (_blended(curves, _Says(0.3, 0.06, least), answers) for least in (0.0, 0.3))
    assert cut == whole


def test_score_curves_count_little_where_their_prior_decides(curves: ScoreCurves) -> None:
    """All right on a few items: alike or beyond, the two priors are far apart."""
    answers = [Response(ItemIndex(i), 1.0) for i in range(6)]
    alike, free = (
        CombinedScore(one, WEIGHTS, ModelError()).alone(answers)[0]
        for one in (curves.of_the_like(), curves)
    )
    assert free - alike > 0.1
    told = _blended(curves, _Says(0.6, 0.08), answers)
    assert abs(told.value - 0.6) < 0.25 * abs((free + alike) / 2 - 0.6)
    assert told.lo >= 6 / N_ITEMS


@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, N_ITEMS),
    said=st.floats(0.0, 1.0),
    half=st.floats(0.0, 0.5),
)
@settings(max_examples=25, deadline=None)
def test_where_nothing_is_drawn_an_interval_holds_what_any_model_does(
    curves: ScoreCurves, seed: int, count: int, said: float, half: float
) -> None:
    rng = np.random.default_rng(seed)
    items = rng.permutation(N_ITEMS)[:count]
    answers = [Response(ItemIndex(int(i)), float(rng.random() < 0.7)) for i in items]
    models = [CombinedScore(one, WEIGHTS, ModelError()) for one in (curves.of_the_like(), curves)]
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    own = _Says(said, half)
    told = EnvelopeScore(models[0], models[1], own).predict(bank, answers, belief)
    right = sum(one.score for one in answers) / N_ITEMS
    least, most = right, right + 1.0 - count / N_ITEMS
    assert least - 1e-9 <= told.lo <= told.value <= told.hi <= most + 1e-9
    values = [said, *(one.alone(answers)[0] for one in models)]
    assert told.value == pytest.approx(float(np.clip(np.median(values), least, most)), abs=1e-9)
    for value in values:
        assert told.lo - 1e-9 <= float(np.clip(value, least, most)) <= told.hi + 1e-9


def test_a_model_that_is_sure_and_wrong_neither_moves_the_score_nor_closes_its_interval(
    curves: ScoreCurves,
) -> None:
    """The bank's own curves were those of weaker examinees: sure of 0.3, where it is 0.8."""
    bank = clean_bank(3, N_ITEMS)
    belief = EstimatorDesign().build().start(bank)
    row = drawn_records(np.array([2.0]), 9)[0]
    answers = [Response(ItemIndex(i), float(row[i])) for i in range(0, N_ITEMS, 4)]
    stretch = Stretch(answers=(5,), factor=(0.01,), usual=(0.1,), power=0.0)
    sure = VersionLearning(
        interval_correction=IntervalCorrection(theta=stretch, accuracy=stretch, n_examinees=40)
    )
    learned = LearnedCurves(curves=curves, errors={})
    predictor = (
        Design.from_dict({"preset": "ability"}).build(bank, learned=sure, curves=learned).predictor
    )
    own = sure.predicting(PIrt()).predict(bank, answers, belief)
    told = predictor.predict(bank, answers, belief)
    assert own.hi < row.mean() - 0.1
    assert told.lo <= row.mean() <= told.hi
    assert abs(told.value - row.mean()) < 0.1


def test_only_tests_that_draw_leave_the_curves_alone(curves: ScoreCurves) -> None:
    bank = clean_bank(3, N_ITEMS)
    stretch = Stretch(answers=(5,), factor=(1.5,), usual=(0.1,), power=0.0)
    known = VersionLearning(
        interval_correction=IntervalCorrection(theta=stretch, accuracy=stretch, n_examinees=40)
    )

    def predictor(document: dict[str, Any], learned: VersionLearning | None = known) -> object:
        design = Design.from_dict({"preset": "ability", **document})
        curves_of_all = LearnedCurves(curves=curves, errors={})
        return design.build(bank, learned=learned, curves=curves_of_all).predictor

    assert isinstance(predictor({}), PartsScore)
    # How wrong the item curves are, nobody has measured.
    assert isinstance(predictor({}, None), CombinedScore)
    assert isinstance(predictor({"selection": {"criterion": "v_optimal"}}), CombinedScore)
    assert isinstance(predictor({"selection": {"criterion": "random"}}), CombinedScore)
    assert isinstance(predictor({"prediction": {"method": "design"}}), DesignScore)
    assert isinstance(predictor({"prediction": {"method": "p-irt"}}), CorrectedPredictor)
