"""Placing: whether answers show which reference models an examinee is like."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logit

from app.calibration.multidimensional.score_curves import reference_population
from app.engine.bank import ItemBank, ItemIndex
from app.engine.design.design import Design
from app.engine.estimation.estimators import GridEstimator
from app.engine.information_index import index_of
from app.engine.prediction.correction import (
    IntervalCorrection,
)
from app.engine.prediction.learned_curves import (
    Extrapolation,
    LearnedCurves,
    Place,
    PopulationPosition,
    ReferencePopulation,
    extrapolation,
    share_below,
)
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import ScoreReading
from app.engine.selection.base import Pool
from app.engine.selection.information import MaximumInformation
from app.engine.selection.sampled import Sampled, ThetaThenSampled
from app.engine.selection.selectors import Randomesque
from app.engine.state import CatState, Response
from app.engine.stopping import Situation
from tests.contracts.estimators import responses
from tests.engine.corrections import level_factor
from tests.engine.random_banks import clean_bank
from tests.values import not_none

N_ITEMS = 60
ABOUT_IT, ABOUT_ANOTHER = (1.5, 0.0), (0.05, 1.5)
#: Abilities in standard deviations of the reference models.
QUANTILES = (-2.2, -1.0, 0.0, 1.0, 2.2)
POPULATION = ReferencePopulation(quantiles=QUANTILES, mean=0.0, sd=1.0, n_items=N_ITEMS)


def curves(slopes: tuple[float, float]) -> ScoreCurves:
    """Return curves whose items depend on the general ability by `slopes`."""
    intercept = np.random.default_rng(1).normal(size=N_ITEMS)
    return ScoreCurves(np.tile(np.array(slopes)[:, None], N_ITEMS), intercept)


def placed(known: ScoreCurves, population: ReferencePopulation, answers: list[Response]) -> Place:
    learned = LearnedCurves(curves=known, n_reference=80, population=population)
    return not_none(learned.place(answers))


def place(slopes: tuple[float, float], abilities: tuple[float, float]) -> Place:
    """Return the placing of an examinee with these two abilities by its answers to all items."""
    known = curves(slopes)
    chance = 1 / (1 + np.exp(-(np.array(abilities) @ known.slopes + known.intercept)))
    scores = np.random.default_rng(2).random(N_ITEMS) < chance
    answers = responses(scores)
    return placed(known, POPULATION, answers)


@pytest.mark.parametrize(
    ("general", "standing"),
    [
        (0.0, PopulationPosition.WITHIN),
        (1.0, PopulationPosition.WITHIN),
        (5.0, PopulationPosition.ABOVE),
        (-5.0, PopulationPosition.BELOW),
    ],
)
def test_answers_to_items_about_the_general_ability_place_an_examinee(
    general: float, standing: PopulationPosition
) -> None:
    assert place(ABOUT_IT, (general, 0.0)).standing is standing
    if standing is PopulationPosition.WITHIN:
        assert not place(ABOUT_IT, (general, 0.0)).is_open


@pytest.mark.parametrize("general", [-3.0, 0.0, 3.0])
@pytest.mark.parametrize("other", [-1.0, 1.0])
def test_answers_about_something_else_leave_it_open(general: float, other: float) -> None:
    found = place(ABOUT_ANOTHER, (general, other))
    assert found.is_open
    assert found.standing is PopulationPosition.UNKNOWN


def test_an_unplaced_examinee_has_a_wider_interval_and_a_longer_test() -> None:
    bank = clean_bank(2, N_ITEMS)
    learned = IntervalCorrection(theta=level_factor(1.0), n_examinees=40)
    design = Design.from_dict(
        {"stopping": {"se": None, "min_items": 5, "cut_score": {"theta": -0.32}}}
    )

    def ends(slopes: tuple[float, float]) -> tuple[bool, float, float]:
        """Return whether a test ends, the width of theta's interval, and the curves' position."""
        known = LearnedCurves(curves=curves(slopes), n_reference=80, population=POPULATION)
        test = design.build(bank, correction=learned, curves=known)
        state: CatState = test.start()
        for item in range(20):
            answer = Response(ItemIndex(item), float(item % 3 > 0))
            state = test.tell(state.with_pending(answer.item), answer)
        told = test.estimate(state)
        now = Situation(replace(state, pending=()), test.pool)
        position = not_none(known.place(state.responses)).position
        return test.stopping.check(now) is not None, told.hi - told.lo, position

    (placed, width, _), (open_, wider, position) = ends(ABOUT_IT), ends(ABOUT_ANOTHER)
    assert placed
    assert not open_  # the reported interval decides
    # The examinee may be one standard deviation farther from the mean than its position.
    assert wider == pytest.approx(width * math.exp(0.2 * position))


@pytest.mark.parametrize(("slopes", "samples"), [(ABOUT_IT, 0), (ABOUT_ANOTHER, 24)])
def test_a_test_for_theta_samples_as_many_items_as_it_chose_if_the_place_is_open(
    slopes: tuple[float, float], samples: int
) -> None:
    bank, known = clean_bank(2, N_ITEMS), curves(slopes)
    selector = ThetaThenSampled(
        wanted=Randomesque(criterion=MaximumInformation()),
        sampled=Sampled.of(known, np.full(N_ITEMS, 1 / N_ITEMS)),
        curves=LearnedCurves(curves=known, n_reference=80, population=POPULATION),
    )
    state, pool, sampled = CatState(belief=GridEstimator().start(bank)), Pool(index_of(bank)), []
    for step in range(N_ITEMS - 2):
        chosen = not_none(selector.select(pool, state, np.random.default_rng([1, step])))
        sampled.append(chosen.probability < 1.0)
        state = state.with_pending(chosen.item, chosen.probability)
        state = state.with_response(Response(chosen.item, float(step % 3 > 0)), state.belief)
    assert sampled == [24 <= step < 24 + samples for step in range(N_ITEMS - 2)]


@pytest.mark.parametrize(
    ("percentile", "place"),
    [
        (0.0, "As weak as the weakest of the reference models"),
        (64.4, "Better than 64 % of the reference models"),
        (100.0, "As strong as the strongest of the reference models"),
    ],
)
def test_no_position_within_is_above_all_reference_models(percentile: float, place: str) -> None:
    stands = Extrapolation(
        position=2.3,
        lo=1.2,
        hi=2.8,
        sd=0.4,
        percentile=percentile,
        standing=PopulationPosition.WITHIN,
        difference=None,
        odds=1.0,
    )
    assert stands.detail.startswith(place)
    assert stands.caution is None


def test_curves_from_parameters_match_expected_scores_one_logit_to_each_side() -> None:
    bank = ItemBank.from_difficulties(
        a=np.array([0.7, 1.4, 9.0]), b=np.array([-1.0, 0.3, 0.0]), c=np.array([0.0, 0.25, 0.0])
    )
    made = LearnedCurves.of_parameters(bank)
    at = np.clip(bank.expected_score(np.array([-1.0, 1.0])), 0.001, 0.999)
    for theta, chance in zip((-1.0, 1.0), at, strict=True):
        assert theta * made.curves.slopes[0] + made.curves.intercept == pytest.approx(logit(chance))
    assert (made.curves.slopes[0, 0], made.curves.intercept[0]) == pytest.approx((0.7, 0.7))
    assert (made.n_reference, made.place([])) == (0, None)
    assert made.curves.dispersion == 1.0


def test_curves_from_parameters_have_the_dispersion_of_continuous_scores() -> None:
    a, b = np.ones(200), np.linspace(-2.0, 2.0, 200)
    k = np.tile([0.1, 0.3], 100)
    bank = ItemBank.from_difficulties(a=a, b=b, k=k)
    shares = 1.0 / (1.0 + np.exp(b))
    rng, phi = np.random.default_rng(4), 1.0 / k - 1.0  # beta scores with the variance k p (1 - p)
    scores = rng.beta(phi * shares, phi * (1.0 - shares), size=(2000, 200))
    ratio = scores.var(axis=0).sum() / (shares * (1.0 - shares)).sum()
    assert LearnedCurves.of_parameters(bank).curves.dispersion == pytest.approx(ratio, rel=0.01)
    certain = ItemBank.from_intercepts(a=a, intercept=np.full(200, 90.0), k=k)
    assert LearnedCurves.of_parameters(certain).curves.dispersion == 0.001


def test_an_examinee_is_beyond_by_a_standard_deviation_of_where_it_stands() -> None:
    known = curves(ABOUT_IT)
    answers = [Response(ItemIndex(i), float(i % 5 != 0)) for i in range(25)]
    items, scores = np.arange(25), np.array([one.score for one in answers])
    at = known.locate(items, scores)
    sd = at.covariance[0, 0] ** 0.5
    for edge, standing in ((-0.01, "ABOVE"), (0.01, "WITHIN")):
        strongest = replace(POPULATION, quantiles=(-9.0, at.position - sd + edge))
        found = placed(known, strongest, answers)
        assert found.standing is PopulationPosition[standing]
        assert found.position == pytest.approx(at.position)
        assert not found.is_open
    for edge, standing in ((0.01, "BELOW"), (-0.01, "WITHIN")):
        weakest = replace(POPULATION, quantiles=(at.position + sd + edge, 9.0))
        found = placed(known, weakest, answers)
        assert found.standing is PopulationPosition[standing]


@pytest.mark.parametrize(("score", "slope", "intercept"), [(1.0, 2.0, 1.5), (0.0, 1.0, -2.0)])
def test_the_likelihood_of_an_answer_averages_over_abilities(
    score: float, slope: float, intercept: float
) -> None:
    curve = ScoreCurves(np.array([[slope]]), np.array([intercept]), prior_sd=1.0)
    z = np.linspace(-8.0, 8.0, 2001)
    right = np.average(1 / (1 + np.exp(-(slope * z + intercept))), weights=np.exp(-0.5 * z**2))
    likely = np.exp(curve.locate(np.array([0]), np.array([score])).log_likelihood)
    assert likely == pytest.approx(right if score else 1 - right, abs=0.01)


def reading_of(score: float) -> ScoreReading:
    return ScoreReading(
        value=score,
        lo=score,
        hi=score,
        doubt=0.5,
        evidence=0.0,
        by_curves=score,
        by_sample=score,
        sampled=0,
        position=9.0,
        by_sample_alone=False,
    )


def test_a_reference_model_has_its_own_rank() -> None:
    """Its score, with all questions asked, places it; the curves' own ability would not."""
    rng = np.random.default_rng(4)
    theta, items = rng.normal(size=(40, 1)), rng.normal(size=N_ITEMS)
    scores = (rng.random((40, N_ITEMS)) < 1 / (1 + np.exp(1.5 * (items - theta)))).astype(float)
    population, means = reference_population(scores), scores.mean(axis=1)
    above = Place(PopulationPosition.ABOVE, False, 9.0)
    for score in means:
        known = extrapolation(reading_of(score), above, population, (score, score, score))
        weaker, equal = np.mean(means < score), np.mean(means == score)
        assert weaker - 0.03 <= known.percentile / 100 <= weaker + equal + 0.03
        assert known.standing is PopulationPosition.WITHIN
        assert known.sd == 0.0
    one_more = float(means.max()) + 1 / N_ITEMS
    beyond = extrapolation(reading_of(one_more), above, population, (one_more,) * 3)
    assert beyond.standing is PopulationPosition.ABOVE
    assert beyond.caution is not None
    assert "its ability is extrapolated" in beyond.caution


@pytest.mark.parametrize(
    ("by_curves", "score", "standing"),
    [
        (PopulationPosition.ABOVE, 0.95, PopulationPosition.ABOVE),
        (PopulationPosition.WITHIN, 0.95, PopulationPosition.WITHIN),
        (PopulationPosition.ABOVE, 0.6, PopulationPosition.WITHIN),
        (PopulationPosition.UNKNOWN, 0.6, PopulationPosition.UNKNOWN),
    ],
)
def test_score_and_curves_agree_that_an_examinee_is_beyond(
    by_curves: PopulationPosition, score: float, standing: PopulationPosition
) -> None:
    place = Place(by_curves, by_curves is PopulationPosition.UNKNOWN, 2.0)
    ends = (score, score - 0.04, score + 0.04)
    found = extrapolation(reading_of(score), place, POPULATION, ends)
    assert found.standing is standing
    # A position is the logit of the score, here with mean 0 and standard deviation 1.
    assert found.position == pytest.approx(logit((N_ITEMS * score + 0.5) / (N_ITEMS + 1)))
    assert found.sd == pytest.approx(0.04 / (score * (1 - score)) / 1.96, rel=0.25)


def test_shares_between_quantiles_are_interpolated() -> None:
    positions = (-9.0, -2.2, -1.6, 0.0, 2.2, 9.0)
    shares = [share_below(one, QUANTILES) for one in positions]
    assert shares == pytest.approx([0.0, 0.0, 0.125, 0.5, 1.0, 1.0])


@pytest.mark.parametrize(("intercept", "score"), [(900.0, 0.0), (-900.0, 1.0), (9.0, 0.0)])
def test_no_answer_is_less_likely_than_one_in_a_thousand(intercept: float, score: float) -> None:
    curve = ScoreCurves(np.array([[1.0]]), np.array([intercept]), prior_sd=0.1)
    likely = np.exp(curve.locate(np.array([0]), np.array([score])).log_likelihood)
    assert likely == pytest.approx(0.001)
