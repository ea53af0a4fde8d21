from dataclasses import replace

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.design import Design
from app.engine.estimation import GridEstimator
from app.engine.learning import Learned, ResidualRegression, learn
from app.engine.prediction import PIrt
from app.engine.simulation import Taken, judge, simulate
from app.engine.state import Estimate, Response
from app.errors import InvalidInputError
from tests.engine.random_banks import clean_bank

DESIGN = Design.from_dict({"stopping": {"se": None, "max_items": 25}})


def two_skills(bank: ItemBank, n_examinees: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Answers where odd items also take a second skill that the bank's model does not know."""
    rng = np.random.default_rng(seed)
    theta, second = rng.normal(size=(2, n_examinees))
    odd = np.arange(bank.n_items) % 2
    z = bank.a * (theta[:, None] - bank.b) + 1.2 * odd * second[:, None]
    scores = (rng.random(z.shape) < 1 / (1 + np.exp(-z))).astype(np.float64)
    return scores, theta


def study(
    bank: ItemBank, learned_from: int, tested: int
) -> tuple[Learned, list[Taken], list[Taken], FloatArray]:
    """What was learned, and tests of new examinees judged without and with it."""
    test = DESIGN.build(bank)
    scores, thetas = two_skills(bank, learned_from, seed=1)
    taken = simulate(test, scores, seed=1)
    learned = learn(bank, scores, thetas, dict(enumerate(taken)))
    new_scores, new_thetas = two_skills(bank, tested, seed=2)
    plain = simulate(test, new_scores, seed=2)
    better = [
        judge(replace(test, predictor=learned.predictor), row, one.state, one.stop)
        for row, one in zip(new_scores, plain, strict=True)
    ]
    return learned, plain, better, new_thetas


def score_coverage(taken: list[Taken]) -> float:
    return float(np.mean([t.prediction.lo <= t.accuracy <= t.prediction.hi for t in taken]))


def test_intervals_that_were_too_narrow_hold_after_learning() -> None:
    learned, plain, better, thetas = study(clean_bank(1, 120), 120, 120)
    estimates = [one.estimate for one in plain]
    stretched = [learned.stretched(estimate) for estimate in estimates]

    def coverage(estimates: list[Estimate]) -> float:
        pairs = zip(estimates, thetas, strict=True)
        return float(np.mean([one.lo <= theta <= one.hi for one, theta in pairs]))

    # Both the quantile and the test of it rest on 120 examinees: 3 % standard error.
    assert coverage(estimates) < 0.85
    assert coverage(stretched) > 0.88
    assert score_coverage(better) > 0.88
    assert [e.theta for e in stretched] == [e.theta for e in estimates]
    assert all(0 <= t.prediction.lo <= t.prediction.value <= t.prediction.hi <= 1 for t in better)
    assert better[0].prediction.method == "residual-regression"


def test_what_goes_together_in_the_records_corrects_the_prediction() -> None:
    # Odd items take a second skill too. Half of the 40 items asked are odd; the score is over
    # the odd ones, whose skill shows in the residuals of the odd ones asked.
    bank = clean_bank(1, 120)
    scores, thetas = two_skills(bank, 300, seed=1)
    regression = ResidualRegression.fit(bank, scores, thetas, ridge=0.3)
    even = list(range(0, 120, 2))
    new_scores, _ = two_skills(bank, 40, seed=2)
    errors = []
    for row in new_scores:
        responses = [Response(ItemIndex(i), float(row[i])) for i in range(40)]
        belief = GridEstimator().start(bank)
        for response in responses:
            belief = GridEstimator().update(bank, belief, response)
        predictions = [p.predict(bank, responses, belief, even) for p in (PIrt(), regression)]
        errors.append([abs(one.value - row[1::2].mean()) for one in predictions])
    plain, corrected = np.mean(errors, axis=0)
    assert corrected < 0.85 * plain


def test_missing_answers_are_neither_learned_nor_counted() -> None:
    bank = clean_bank(1, 60)
    scores, thetas = two_skills(bank, 30, seed=3)
    scores[:, 50:] = np.nan
    taken = simulate(DESIGN.build(bank), scores, seed=1)
    learned = learn(bank, scores, thetas, dict(enumerate(taken)))
    assert not learned.predictor.residuals[:, 50:].any()
    one = taken[0]
    prediction = learned.predictor.predict(
        bank, one.state.responses, one.state.belief, list(range(50, 60))
    )
    assert abs(prediction.value - float(np.nanmean(scores[0]))) < 0.3


def test_too_few_examinees_teach_nothing() -> None:
    bank = clean_bank(1, 60)
    scores, thetas = two_skills(bank, 19, seed=3)
    taken = simulate(DESIGN.build(bank), scores, seed=1)
    with pytest.raises(InvalidInputError, match="at least 20 examinees, got 19"):
        learn(bank, scores, thetas, dict(enumerate(taken)))
