import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import GridEstimator
from app.engine.prediction.correction import IntervalCorrection, IntervalFactor
from app.engine.prediction.p_irt import PIrt
from app.engine.simulation.simulate import draw_scores
from app.engine.state import CatState, Response
from app.engine.stopping import ScoreMargin, Situation
from app.errors import InvalidInputError
from tests.contracts.estimators import answers, fold
from tests.engine.random_banks import Kind, clean_bank, random_bank

EAP = GridEstimator()
predict = PIrt().predict
TWELVE, OF_TWELVE = clean_bank(1, 12), [1.0, 0.0, 0.5, 1.0] * 3
SIXTY = ItemBank.from_difficulties(a=np.full(60, 1.5), b=np.linspace(-2.0, 2.0, 60))
MARKED, UNMARKED = range(6), range(6, 40)


def test_a_fully_answered_bank_is_counted_and_not_predicted() -> None:
    bank = random_bank(1, 40)
    responses = answers(bank, 0.3, 1)
    prediction = predict(bank, responses, fold(EAP, bank, responses))
    share = np.mean([response.score for response in responses])
    assert prediction.value == prediction.lo == prediction.hi == pytest.approx(share)


def test_without_answers_it_is_the_mean_curve_over_the_prior() -> None:
    bank = random_bank(2, 40)
    nodes = np.linspace(-8, 8, 3_201)
    weights = np.exp(-(nodes**2) / 2)
    expected = weights @ bank.expected_score(nodes).mean(axis=1) / weights.sum()
    assert predict(bank, [], EAP.start(bank)).value == pytest.approx(expected, abs=1e-4)


def test_observed_answers_count_as_they_are() -> None:
    bank = clean_bank(3, 10)
    responses = [Response(ItemIndex(0), 1.0), Response(ItemIndex(1), 0.25)]
    belief = fold(EAP, bank, responses)
    rest = belief.weights @ bank.expected_score(belief.nodes, range(2, 10)).sum(axis=1)
    assert predict(bank, responses, belief).value == pytest.approx((1.25 + rest) / 10, abs=1e-4)


def test_excluded_items_do_not_count_answered_or_not() -> None:
    bank = clean_bank(4, 12)
    responses = answers(bank, 0.0, 4)[:6]
    belief = fold(EAP, bank, responses)
    kept = [item for item in range(12) if item not in (0, 11)]
    smaller = ItemBank.from_intercepts(a=bank.a[kept], intercept=bank.intercept[kept])
    moved = [Response(ItemIndex(r.item - 1), r.score) for r in responses[1:]]
    assert predict(bank, responses, belief, exclude=[0, 11]).value == pytest.approx(
        predict(smaller, moved, belief).value
    )
    with pytest.raises(InvalidInputError, match="all were excluded"):
        predict(bank, [], belief, exclude=range(12))


def test_the_published_rule_gives_c_for_slopes_that_are_not_positive() -> None:
    bank = ItemBank.from_difficulties(a=[1.0, -2.0], b=[0.0, 0.5], c=[0.1, 0.3])
    belief = EAP.start(bank)
    by_rule = PIrt(method="p-irt-c").predict(bank, [], belief)
    assert by_rule.value == pytest.approx((bank.expected_score(belief.theta)[0] + 0.3) / 2)
    assert by_rule.lo <= by_rule.value <= by_rule.hi
    assert by_rule.method == "p-irt-c"


def test_a_result_is_plain_json() -> None:
    bank = clean_bank(5, 10)
    responses = answers(bank, 0.0, 5)[:4]
    prediction = predict(bank, responses, fold(EAP, bank, responses))
    assert json.loads(json.dumps(asdict(prediction))) == asdict(prediction)


def covered(bank: ItemBank, n_answered: int, seed: int, n: int = 1_000) -> float:
    """Return the share of examinees whose true score lies in the interval."""
    rng = np.random.default_rng(seed)
    thetas = rng.normal(0, 1, n)
    full = np.array(list(draw_scores(bank, thetas, rng)))
    scores = full.copy()
    scores[:, n_answered:] = np.nan
    held = []
    for block in estimate_many(bank, scores, EAP):
        predictions = PIrt().predict_rows(
            bank,
            scores[block.rows],
            np.array([belief.theta for belief in block.beliefs]),
            block.beliefs[0].nodes,
            np.array([belief.weights for belief in block.beliefs]),
        )
        for row, prediction in zip(block.rows, predictions, strict=True):
            held.append(prediction.lo <= full[row].mean() <= prediction.hi)
    return float(np.mean(held))


@pytest.mark.parametrize(
    ("n_answered", "kind"),
    [(5, "logistic"), (30, "logistic"), (90, "logistic"), (30, "continuous")],
)
def test_the_interval_holds_as_often_as_it_says(n_answered: int, kind: Kind) -> None:
    share = covered(clean_bank(6, 120, kind=kind), n_answered, 6)
    assert share == pytest.approx(0.95, abs=0.021)


def test_one_examinee_gets_what_a_table_gives() -> None:
    bank = random_bank(7, 60)
    scores = np.full((1, 60), np.nan)
    responses = answers(bank, 0.8, 7)[:25]
    scores[0, :25] = [response.score for response in responses]
    (block,) = estimate_many(bank, scores, EAP)
    belief = block.beliefs[0]
    (together,) = PIrt().predict_rows(
        bank, scores, np.array([belief.theta]), belief.nodes, belief.weights[None, :]
    )
    alone = predict(bank, responses, fold(EAP, bank, responses))
    assert (alone.value, alone.lo, alone.hi) == pytest.approx(
        (together.value, together.lo, together.hi), abs=1e-3
    )


def answered(test: AdaptiveTest, n: int) -> CatState:
    return test.replay(Response(ItemIndex(i), OF_TWELVE[i]) for i in range(n))


def test_the_score_of_all_items_is_their_mean() -> None:
    test = Design.from_dict({}).build(TWELVE)
    known = test.predict(answered(test, 12))
    assert (known.method, known.lo, known.value, known.hi) == ("all_items", 0.625, 0.625, 0.625)
    assert test.predict(answered(test, 11)).method != "all_items"


def test_items_that_do_not_count_need_no_answer() -> None:
    design = Design.from_dict({})
    test = design.build(TWELVE)
    target = np.array([0.25] * 4 + [0.0] * 8)
    of_law = replace(test, weights=target)
    assert of_law.predict(answered(of_law, 4)).method == "all_items"
    assert of_law.predict(answered(of_law, 4)).value == pytest.approx(0.625)
    assert of_law.predict(answered(of_law, 3)).method != "all_items"


def test_an_item_without_a_score_leaves_the_score_open() -> None:
    test = Design.from_dict({}).build(TWELVE)
    state = answered(test, 11)
    state = state.with_pending(ItemIndex(11)).with_unscored(ItemIndex(11))
    assert test.predict(state).method != "all_items"


def asked(test: AdaptiveTest, *, unmarked: range) -> CatState:
    state = test.start()
    for item in (*MARKED, *unmarked):
        state = state.with_pending(ItemIndex(item))
    for item in MARKED:
        state = test.tell(state, Response(ItemIndex(item), float(item % 2)))
    for item in unmarked:
        state = state.with_unscored(ItemIndex(item))
    return state


def test_unscored_answers_lower_the_lower_end() -> None:
    test = Design.from_dict({"preset": "ability"}).build(SIXTY)
    full, holes = (asked(test, unmarked=part) for part in (range(0), UNMARKED))

    told, open_ = test.predict(full), test.predict(holes)

    assert told.nonresponse == 0.0
    assert open_.nonresponse == pytest.approx(34 / 40)
    assert (open_.value, open_.hi) == (told.value, told.hi)
    assert open_.lo == pytest.approx(max(told.lo * 6 / 40, 3 / 60))  # three are right
    assert test.estimate(holes) == test.estimate(full)


def test_failed_answers_take_nothing_from_what_was_scored() -> None:
    test = Design.from_dict({"preset": "ability"}).build(TWELVE)
    state = answered(test, 8)
    for item in range(8, 12):
        state = state.with_pending(ItemIndex(item)).with_unscored(ItemIndex(item))
    right = sum(response.score for response in state.responses)

    told = test.predict(state)

    assert told.nonresponse == pytest.approx(1 / 3)
    assert told.lo == pytest.approx(right / 12)


def test_learned_corrections_are_reported_apart_from_unscored_answers() -> None:
    stretch = IntervalFactor(answers=(5,), factor=(1.5,), usual=(0.2,), power=0.0)
    learned = IntervalCorrection(theta=stretch, n_examinees=80)
    test = Design.from_dict({"preset": "ability"}).build(SIXTY, correction=learned)

    told, open_ = (test.predict(asked(test, unmarked=part)) for part in (range(0), UNMARKED))

    assert open_.raw == told.raw
    assert open_.lo == pytest.approx(max(told.lo * 6 / 40, 3 / 60))


def test_a_test_ends_only_at_the_reported_margin() -> None:
    test = Design.from_dict({"preset": "ability"}).build(SIXTY)
    full, holes = (asked(test, unmarked=part) for part in (range(0), UNMARKED))
    told = test.predict(full)
    rule = ScoreMargin(margin=told.margin + 1e-6, predictor=test.predictor)

    assert rule.check(Situation(full, test.pool)) is not None
    assert rule.check(Situation(holes, test.pool)) is None
