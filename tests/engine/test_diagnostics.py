from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import kendalltau, rankdata, spearmanr

from app.engine.bank import FloatArray, ItemBank, ItemIndex
from app.engine.estimation.batch import estimate_many
from app.engine.estimation.estimators import EstimatorName, GridEstimator
from app.engine.inference.diagnostics import (
    exposure_rates,
    inversions,
    jaccard,
    overlap,
    person_fit,
    residuals,
    use_counts,
)
from app.engine.inference.orders import kendall, ranks, spearman
from app.engine.models.multidimensional import (
    Loadings,
    MultidimensionalModel,
    Population,
    estimate_profile,
)
from app.engine.multidimensional import abilities_of
from app.engine.simulation.simulate import draw_scores
from app.engine.state import Response
from app.errors import InvalidInputError
from tests.contracts.estimators import estimate_of, responses
from tests.engine.random_banks import Kind, clean_bank
from tests.values import not_none


@pytest.mark.parametrize(
    ("method", "kind"),
    [*((method, "logistic") for method in EstimatorName), (EstimatorName.EAP, "continuous")],
)
def test_lz_star_of_fitting_answers_is_standard_normal(method: EstimatorName, kind: Kind) -> None:
    bank = clean_bank(0, 60, kind=kind)
    rng = np.random.default_rng(0)
    thetas = rng.normal(0, 1, 400)
    scores = np.array(list(draw_scores(bank, thetas, rng)))
    fits = [
        person_fit(bank, responses(scores[row]), belief.theta)
        for block in estimate_many(bank, scores, GridEstimator(method=method))
        for row, belief in zip(block.rows, block.beliefs, strict=True)
    ]
    values = np.array([fit.lz_star for fit in fits], dtype=np.float64)
    assert values.mean() == pytest.approx(0.0, abs=0.2)
    assert values.std() == pytest.approx(1.0, abs=0.12)
    assert np.mean([fit.flagged for fit in fits]) < 0.03


def test_lz_star_corrects_for_the_estimated_theta() -> None:
    """Snijders (2001), Psychometrika 66, eq. 3 and 4: c = sum of w P' / sum of r P'."""
    bank = ItemBank.from_difficulties(
        a=np.linspace(0.6, 2.0, 12), b=np.linspace(-2, 2, 12), c=np.full(12, 0.2)
    )
    theta, step = 0.4, 1e-5
    scores = np.arange(12) % 3 != 0
    p, above, below = (bank.expected_score(at) for at in (theta, theta + step, theta - step))
    weight, slope = np.log(p / (1 - p)), (above - below) / (2 * step)
    fitted = slope / (p * (1 - p))
    left = weight - (slope @ weight) / (slope @ fitted) * fitted
    expected = ((scores - p) @ left) / np.sqrt(left**2 @ (p * (1 - p)))
    assert person_fit(bank, responses(scores), theta).lz_star == pytest.approx(expected, rel=1e-6)


TWENTY = ItemBank.from_difficulties(a=np.full(20, 1.5), b=np.linspace(-3, 3, 20))
BACKWARDS = [Response(ItemIndex(i), float(i >= 10)) for i in range(20)]
FORWARDS = [Response(ItemIndex(i), float(i < 10)) for i in range(20)]


def test_right_on_hard_and_wrong_on_easy_items_is_flagged() -> None:
    theta = estimate_of(GridEstimator(), TWENTY, BACKWARDS).theta
    fit = person_fit(TWENTY, BACKWARDS, theta)
    assert fit.flagged
    assert not_none(fit.p_value) < 1e-6
    assert not person_fit(TWENTY, FORWARDS, theta).flagged


def test_inversions_and_surprises_are_those_counted_pair_by_pair() -> None:
    bank = clean_bank(8, 120)
    scores = np.random.default_rng(3).choice([0.0, 0.25, 1.0], 120)
    p = bank.expected_score(0.3)
    pairs = [(i, j) for i in range(120) for j in range(120) if p[i] - p[j] >= 0.2]
    found = inversions(bank, responses(scores), 0.3)
    assert found.observed == pytest.approx(sum((1 - scores[i]) * scores[j] for i, j in pairs))
    assert found.expected == pytest.approx(sum((1 - p[i]) * p[j] for i, j in pairs))
    gaps = {item: abs(scores[item] - p[item]) for item in range(120)}
    worst = sorted((item for item in gaps if gaps[item] >= 0.85), key=lambda item: -gaps[item])
    assert [one.item for one in found.surprises] == worst[:5]
    assert [one.score for one in found.surprises] == scores[worst[:5]].tolist()
    assert [one.expected for one in found.surprises] == pytest.approx(p[worst[:5]].tolist())
    assert residuals(bank, responses(scores), 0.3) == pytest.approx(scores - p)
    assert len(worst) > 5
    assert inversions(bank, [], 0.3).observed == 0


def nested(a: FloatArray, intercept: FloatArray, loadings: FloatArray) -> ItemBank:
    """Return a bank of one general ability and independent further ones."""
    n_abilities = 1 + loadings.shape[1]
    population = Population(mean=np.zeros(n_abilities), covariance=np.eye(n_abilities))
    items = Loadings(a, intercept, loadings, nested=True)
    return ItemBank.from_abilities(
        MultidimensionalModel(items, population), [*map(str, range(a.size))]
    )


@pytest.mark.parametrize("n_models", [5, 60])
@pytest.mark.parametrize("several", [False, True])
def test_few_reference_models_flatten_the_curves_by_a_probits_mean(
    n_models: int, several: bool
) -> None:
    a, intercept, theta = np.array([0.8, 1.5, 2.5, 1.0]), np.array([0.5, -1.0, 0.0, 2.0]), 1.4
    nodes = np.linspace(-8, 8, 4001)
    normal = np.exp(-0.5 * nodes**2)
    normal /= normal.sum()
    logits = []
    for slope, at_zero in zip(a, intercept, strict=True):
        p = expit(slope * nodes + at_zero)
        told = 0.5 * n_models * normal * p * (1 - p)  # each model counts half
        known = [[told @ nodes**2, told @ nodes], [told @ nodes, told.sum()]]
        variance = np.linalg.inv(np.array(known) + np.diag([0.5**-2, 2.0**-2]))
        spread = np.array([theta, 1.0]) @ variance @ [theta, 1.0]
        logits.append((slope * theta + at_zero) / np.sqrt(1 + np.pi / 8 * spread))
    p, scores = expit(np.array(logits)), np.array([0.0, 1.0, 1.0, 0.0])
    expected = ((scores - p) @ logits) / np.sqrt(np.square(logits) @ (p * (1 - p)))
    bank = ItemBank.from_intercepts(a=a, intercept=intercept)
    if several:
        bank = nested(a, intercept, np.zeros((4, 0)))
    at = np.array([theta]) if several else theta
    found = person_fit(bank, responses(scores), at, n_models).lz
    assert found == pytest.approx(expected, abs=0.02 if several else 1e-4)  # 200 draws


def test_lz_is_the_standardised_log_likelihood() -> None:
    # Drasgow, Levine & Williams (1985): (l0 - E l0) / sd l0, sums over all answer patterns.
    bank = clean_bank(3, 6)
    theta = 0.4
    p = bank.expected_score(theta)
    patterns = np.array([[(k >> i) & 1 for i in range(6)] for k in range(64)], dtype=np.float64)
    log_likelihoods = patterns @ np.log(p) + (1 - patterns) @ np.log(1 - p)
    mass = np.exp(log_likelihoods)
    mean = mass @ log_likelihoods
    deviation = np.sqrt(mass @ (log_likelihoods - mean) ** 2)
    given_answers = [Response(ItemIndex(i), float(i % 2)) for i in range(6)]
    observed = bank.log_likelihood(theta, range(6), [answer.score for answer in given_answers])
    assert person_fit(bank, given_answers, theta).lz == pytest.approx((observed - mean) / deviation)


def test_lz_star_allows_for_several_abilities() -> None:
    # A model good at one task and bad at another fits where the bank knows both abilities.
    rng = np.random.default_rng(9)
    task = np.eye(2)[np.arange(60) % 2]
    bank = nested(rng.uniform(0.8, 1.8, 60), rng.normal(size=60), 1.2 * task)
    abilities = abilities_of(bank)
    found, turned = [], []
    for true in rng.normal(size=(300, 3)) + np.array([0.0, 1.0, -1.0]):
        scores = (rng.random(60) < abilities.items.expected_score(true)).astype(np.float64)
        answers = responses(scores)
        estimate = estimate_profile(abilities.items, abilities.population, np.arange(60), scores)
        found.append(person_fit(bank, answers, estimate.mean))
        turned.append(inversions(bank, answers, true))

    stars = np.array([fit.lz_star for fit in found], dtype=np.float64)
    assert abs(stars.mean()) < 0.15
    assert 0.85 < stars.std() < 1.15
    assert np.mean([fit.flagged for fit in found]) < 0.03
    observed = sum(one.observed for one in turned)
    assert abs(observed / sum(one.expected for one in turned) - 1) < 0.05


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_answers_are_not_judged(n: int) -> None:
    bank = clean_bank(4, 3)
    fit = person_fit(bank, [Response(ItemIndex(i), 1.0) for i in range(n)], 0.0)
    assert (fit.lz_star, fit.p_value, fit.flagged, fit.n_items) == (None, None, False, n)


def test_exposure_is_the_share_of_tests_that_used_an_item() -> None:
    tests = [[0, 1], [0, 2], [0, 1, 2]]
    assert use_counts(tests, 4).tolist() == [3, 2, 2, 0]
    assert exposure_rates(tests, 4) == pytest.approx([1, 2 / 3, 2 / 3, 0])
    assert exposure_rates([], 2).tolist() == [0.0, 0.0]
    with pytest.raises(InvalidInputError, match=r"\[0, 2\)"):
        use_counts(tests, 2)


@given(st.lists(st.sets(st.integers(0, 19), min_size=6, max_size=6), min_size=2, max_size=12))
def test_overlap_is_the_mean_share_in_common(tests: list[set[int]]) -> None:
    in_common = [len(one & other) / 6 for one, other in combinations(tests, 2)]
    counts = use_counts([sorted(test) for test in tests], 20)
    assert overlap(counts, len(tests)) == pytest.approx(np.mean(in_common))


@given(st.lists(st.sets(st.integers(0, 19), min_size=1), min_size=2, max_size=9))
def test_jaccard_overlap_is_the_mean_over_pairs(tests: list[set[int]]) -> None:
    shared = [len(one & other) / len(one | other) for one, other in combinations(tests, 2)]
    assert jaccard([sorted(test) for test in tests], 20) == pytest.approx(np.mean(shared), rel=1e-5)


def test_a_single_test_overlaps_with_none() -> None:
    assert overlap(use_counts([[0, 1]], 3), 1) == jaccard([[0, 1]], 3) == 0.0
    assert overlap(use_counts([], 3), 0) == 0.0


@pytest.mark.parametrize("several", [False, True])
def test_uncertain_curves_of_few_reference_models_cause_no_misfit(several: bool) -> None:
    # The curves have the estimation errors of so many models with known abilities.
    rng, n_items, n_models = np.random.default_rng(3), 150, 25
    a, intercept = np.exp(rng.normal(0.1, 0.4, n_items)), rng.normal(0.0, 1.3, n_items)
    nodes = rng.normal(size=2000)
    spread = expit(np.outer(nodes, a) + intercept)
    spread *= (1.0 - spread) * n_models / nodes.size
    known = [spread.sum(axis=0), nodes @ spread, nodes**2 @ spread]
    wrong = np.array(
        [
            rng.multivariate_normal(
                [0.0, 0.0], np.linalg.inv([[s2 + 4.0, s1], [s1, s0 + 0.25]]), 1
            )[0]
            for s0, s1, s2 in np.transpose(known)
        ]
    )
    estimated = (a + wrong[:, 0], intercept + wrong[:, 1])
    bank = ItemBank.from_intercepts(a=estimated[0], intercept=estimated[1])
    if several:
        bank = nested(*estimated, np.zeros((n_items, 1)))
    flagged = []
    for theta in rng.normal(size=150):
        scores = rng.random(n_items) < expit(a * theta + intercept)
        answers, at = responses(scores), np.array([theta, 0.0]) if several else float(theta)
        flagged.append([person_fit(bank, answers, at, n).flagged for n in (None, n_models)])
    certain, open_ = np.mean(flagged, axis=0)
    assert open_ < 0.1 < 0.2 < certain


@pytest.mark.parametrize("n_values", [3, 8, 1000])
def test_ranks_and_their_correlations_are_those_of_scipy_with_ties_and_without(
    n_values: int,
) -> None:
    rng = np.random.default_rng(n_values)
    for _ in range(20):
        n = int(rng.integers(3, 60))
        first = rng.integers(0, n_values, n) / 7.0
        second = first + rng.integers(0, n_values, n) / 7.0
        first[0], second[0] = -1.0, -1.0  # neither is constant
        np.testing.assert_array_equal(ranks(first), rankdata(first))
        assert spearman(first, second) == pytest.approx(spearmanr(first, second).statistic)
        assert kendall(first, second) == pytest.approx(kendalltau(first, second).statistic)


def test_constant_values_have_no_order() -> None:
    order, constant = np.arange(4.0), np.ones(4)
    assert spearman(order, constant) is spearman(constant, order) is None
    assert kendall(order, constant) is kendall(constant, order) is None
    assert kendall(np.ones(1), np.ones(1)) is None
