"""The steps of EM against direct sums and finite differences, and its guarantees."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from scipy.stats import norm, rankdata

from app.calibration.logistic import em, maximization
from app.calibration.logistic.curves import Curves, Family, probabilities, slopes_of_curves
from app.calibration.logistic.em import Anderson, EmSettings, Progress, maximise
from app.calibration.logistic.expectation import Expectation, LatentDensity, expect, population
from app.calibration.logistic.maximization import (
    START_DAMPING,
    Problem,
    candidate_values,
    candidates,
    climb,
    distance_left,
    first_counts,
    leave_poor_optima,
    objective,
)
from app.calibration.logistic.priors import Normal, Priors, Steepness
from app.calibration.matrix import ScoreMatrix
from app.engine.models.base import FloatArray, ItemParameters
from app.engine.models.logistic import LOGISTIC
from app.errors import InvalidInputError
from tests.calibration.simulated import answer, draw_items, simulate
from tests.values import not_none

NODES = LatentDensity.normal()


def _curves(seed: int, *, log_slope: bool, n_items: int = 5) -> Curves:
    rng = np.random.default_rng(seed)
    items = draw_items(rng, Family.FOUR_PL, n_items)
    return Curves.from_natural(items, log_slope=log_slope)


@given(
    a=st.floats(0.05, 10),
    b=st.floats(-5, 5),
    c=st.floats(0, 0.6),
    span=st.floats(0.05, 1),
)
def test_coordinates_hold_the_items_they_were_made_from(
    a: float, b: float, c: float, span: float
) -> None:
    d = c + (1 - c) * span
    items = ItemParameters(*(np.array([v]) for v in (a, -a * b, c, d)))
    for log_slope in (True, False):
        back = Curves.from_natural(items, log_slope=log_slope).natural()
        for before, after in zip(items, back, strict=True):
            assert after == pytest.approx(before, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("log_slope", [True, False])
def test_derivatives_of_the_curves_match_finite_differences(log_slope: bool) -> None:
    curves = _curves(1, log_slope=log_slope)
    theta = np.linspace(-3, 3, 7)
    _, _, derivatives = slopes_of_curves(curves, theta, range(4))
    step = 1e-6
    for column, move in enumerate(step * np.eye(4)):
        up, down = (
            probabilities(Curves(curves.x + m, log_slope).natural(), theta)[0]
            for m in (move, -move)
        )
        assert derivatives[:, column] == pytest.approx((up - down) / (2 * step), abs=1e-7)


def test_the_e_step_equals_a_sum_over_every_examinee_and_node() -> None:
    rng = np.random.default_rng(2)
    items = draw_items(rng, Family.THREE_PL, 6)
    matrix = answer(rng, items, rng.normal(size=40), missing=0.3)
    counts = expect(matrix, items, NODES)
    right, seen = np.zeros((6, 61)), np.zeros((6, 61))
    total = 0.0
    for row in matrix.scores:
        answered = np.flatnonzero(row != 255)
        terms = LOGISTIC.log_likelihood(
            items.take(answered), NODES.nodes[:, None], row[answered].astype(float)
        )
        joint = NODES.weights * np.exp(terms.sum(axis=1))
        total += np.log(joint.sum())
        posterior = joint / joint.sum()
        seen[answered] += posterior
        right[answered[row[answered] == 1]] += posterior
    assert counts.log_likelihood == pytest.approx(total, rel=1e-12)
    assert counts.right == pytest.approx(right, abs=1e-10)
    assert counts.seen == pytest.approx(seen, abs=1e-10)


@pytest.mark.parametrize("log_slope", [True, False])
def test_the_gradient_of_the_m_step_is_that_of_the_marginal_log_posterior(log_slope: bool) -> None:
    data = simulate(3, Family.FOUR_PL, 60, 5, missing=0.1)
    priors = Priors(guessing=Normal(-1.0, 0.5), ceiling=Normal(2.0, 1.0), slope=Steepness(0.7))
    if log_slope:
        own = Normal(0.1, 0.4), Normal(0.2, 2.0)
        priors = replace(priors, slope=None, log_slope=own[0], difficulty=own[1])
    problem = Problem(family=Family.FOUR_PL, log_slope=log_slope, priors=priors)
    curves = _curves(4, log_slope=log_slope)

    def log_posterior(x: FloatArray) -> float:
        at = Curves(x, log_slope)
        return expect(data.matrix, at.natural(), NODES).log_likelihood + float(
            priors.terms(at).value.sum()
        )

    counts = expect(data.matrix, curves.natural(), NODES)
    at = objective(problem, curves.x, counts, NODES.nodes)
    gradient = at.gradient
    # The search for starts maximises the same objective, for each item and curve.
    of_all = candidate_values(problem, curves.x, counts, NODES.nodes)
    assert np.diagonal(of_all) == pytest.approx(at.value, rel=1e-9)
    step = 1e-5
    for item, column in np.ndindex(5, 4):
        move = np.zeros((5, 4))
        move[item, column] = step
        slope = (log_posterior(curves.x + move) - log_posterior(curves.x - move)) / (2 * step)
        assert gradient[item, column] == pytest.approx(slope, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("log_slope", [True, False])
def test_information_is_the_curvature_where_the_counts_are_the_expected_ones(
    log_slope: bool,
) -> None:
    curves, nodes = _curves(5, log_slope=log_slope), NODES.nodes
    problem = Problem(family=Family.FOUR_PL, log_slope=log_slope, priors=Priors.none())
    seen = np.random.default_rng(5).uniform(1.0, 9.0, (5, len(nodes)))
    p, _ = probabilities(curves.natural(), nodes)
    counts = Expectation(0.0, seen * p, seen, seen[0])
    found = objective(problem, curves.x, counts, nodes).information
    step = 1e-5
    for column in range(4):
        move = step * np.eye(4)[column]
        up, down = (objective(problem, curves.x + m, counts, nodes) for m in (move, -move))
        slope = (up.gradient - down.gradient) / (2 * step)
        assert found[:, column] == pytest.approx(-slope, rel=1e-5, abs=1e-6)


def test_a_priors_precision_is_that_of_its_standard_scores() -> None:
    """A normal density of z(x) has the Gauss-Newton curvature z'(x) z'(x)'."""
    curves, step = _curves(6, log_slope=True), 1e-6
    priors = Priors(
        log_slope=Normal(None, 0.4),
        difficulty=Normal(0.2, np.array([2.0, 1.0, 0.5, 3.0, 0.7])),
        guessing=Normal(-1.0, 0.5),
        ceiling=Normal(2.0, 0.3),
    )

    def scores(x: FloatArray) -> FloatArray:
        b = -x[:, 1] / np.exp(x[:, 0])
        sds = np.array([2.0, 1.0, 0.5, 3.0, 0.7])
        return np.stack([x[:, 0] / 0.4, b / sds, x[:, 2] / 0.5, x[:, 3] / 0.3])

    moves = step * np.eye(4)
    slopes = np.stack([(scores(curves.x + m) - scores(curves.x - m)) / (2 * step) for m in moves])
    expected = np.einsum("azj,bzj->jab", slopes, slopes)
    assert priors.terms(curves).precision == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_floating_scale_of_steepness_is_the_most_probable_one() -> None:
    a = np.array([-3.0, 0.0, 0.4, 1.0, 1.7, 20.0])
    scale = not_none(Steepness().settled(a).scale)

    def log_density(of: float) -> FloatArray:
        r = np.sqrt(a**2 + 1e-6) / of
        return 0.2 * np.log(r) - np.log1p(r**2)

    scales = scale * np.exp(np.linspace(-3, 3, 6001))
    best = scales[np.argmax([log_density(of).sum() for of in scales])]
    assert scale == pytest.approx(best, rel=1e-3)
    x = np.zeros((6, 4))
    x[:, 0] = a
    found = Priors(slope=Steepness(scale)).terms(Curves(x, log_slope=False))
    assert found.value == pytest.approx(log_density(scale))
    # Curvatures of the parabolas through log r and -log(1 + r^2), as functions of a^2.
    assert found.precision[:, 0, 0] == pytest.approx(
        0.2 / (a**2 + 1e-6) + 2 / (scale**2 + a**2 + 1e-6)
    )


@pytest.mark.parametrize("log_slope", [True, False])
def test_curves_on_another_scale_are_the_same_curves(log_slope: bool) -> None:
    curves, density = _curves(7, log_slope=log_slope), LatentDensity.normal(mean=0.4, sd=1.3)
    moved = em._on_scale(curves.x, density, log_slope=log_slope)
    z = (NODES.nodes - density.mean) / density.sd
    before, after = (
        probabilities(of.natural(), theta)[0]
        for of, theta in ((curves, NODES.nodes), (Curves(moved, log_slope), z))
    )
    assert after == pytest.approx(before)


@pytest.mark.parametrize(
    ("location", "scale", "is_off"),
    [(0.03, 1.0, True), (0.0, 1.03, True), (0.01, 1.0, False), (0.0, 1.005, False)],
)
def test_items_half_a_standard_error_off_the_examinees_are_rescaled(
    location: float, scale: float, is_off: bool
) -> None:
    data = simulate(12, Family.TWO_PL, 1000, 20)
    run = em._Run(
        data.matrix,
        Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none()),
        EmSettings(),
    )
    items = maximise(data.matrix, run.problem, NODES, EmSettings(tolerance=1e-6)).curves.natural()
    items = items._replace(a=items.a * scale, intercept=items.intercept + location * items.a)
    before = run.at(Curves.from_natural(items, log_slope=True).x, NODES)
    after, moved = run._rescaled(before)
    assert moved is is_off is (after.log_posterior > before.log_posterior)


@pytest.mark.parametrize("log_slope", [True, False])
def test_the_distance_left_counts_items_location_and_scale(log_slope: bool) -> None:
    """Steps in standard errors: of one item, and of theta's mean and log sd, which move all."""
    n, n_items, step = 3000, 40, 1e-5
    data = simulate(12, Family.TWO_PL, n, n_items)
    problem = Problem(family=Family.TWO_PL, log_slope=log_slope, priors=Priors.none())
    good = maximise(data.matrix, problem, NODES, EmSettings(tolerance=1e-6)).curves
    found, expected = [], []
    for location, scale, of_one in ((0.1, 1.0, 0.0), (0.0, 1.2, 0.0), (0.0, 1.0, 0.3)):
        items = good.natural()
        intercept = items.intercept + location * items.a
        intercept[3] += of_one
        x = Curves.from_natural(
            items._replace(a=items.a * scale, intercept=intercept), log_slope=log_slope
        ).x
        counts = expect(data.matrix, Curves(x, log_slope).natural(), NODES)
        at = objective(problem, x, counts, NODES.nodes)
        found.append(distance_left(problem, x, at, n))

        def slope(move: FloatArray, x: FloatArray = x) -> float:
            up, down = (
                expect(data.matrix, Curves(x + m, log_slope).natural(), NODES).log_likelihood
                for m in (step * move, -step * move)
            )
            return abs(up - down) / (2 * step)

        moves = np.zeros((2, n_items, 4))
        moves[0, :, 1] = Curves(x, log_slope).a
        moves[1, :, 0] = 1.0 if log_slope else Curves(x, log_slope).a
        of_item = [
            (g @ np.linalg.solve(i, g)) ** 0.5
            for g, i in zip(at.gradient[:, :2], at.information[:, :2, :2], strict=True)
        ]
        expected.append((max(of_item), slope(moves[0]) / n**0.5, slope(moves[1]) / (2 * n) ** 0.5))
        fixed = replace(problem, fixed=tuple(range(1, n_items)))  # these hold the scale
        assert distance_left(fixed, x, at, n) == pytest.approx(of_item[0], rel=1e-5)
    assert np.argmax(expected, axis=1).tolist() == [1, 2, 0]
    assert found == pytest.approx(np.max(expected, axis=1), rel=1e-4)


@pytest.mark.parametrize(("slope", "left"), [(3.0, 2.0), (-3.0, 13**0.5)])
def test_a_slope_at_its_bound_counts_only_if_it_may_move_inwards(slope: float, left: float) -> None:
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none(), fixed=(1,))
    x = np.array([[np.log(50.0), 0.0, -1e3, 1e3], [0.0, 0.0, -1e3, 1e3]])
    gradient = np.array([[slope, 2.0, 0.0, 0.0], [9.0, 9.0, 0.0, 0.0]])
    at = maximization.Objective(np.zeros(2), gradient, np.tile(np.eye(4), (2, 1, 1)))
    assert distance_left(problem, x, at, 100) == pytest.approx(left)


def test_first_counts_are_those_of_the_ranks_normal_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.calibration.matrix.BLOCK_CELLS", 70)  # ten rows
    scores = simulate(13, Family.TWO_PL, 50, 7, missing=0.3).matrix.scores.copy()
    scores[:20] %= 2  # two blocks without a missing answer
    matrix = ScoreMatrix.of(scores)
    answered, right = matrix.scores != 255, matrix.scores == 1
    means = right.sum(axis=0) / answered.sum(axis=0)
    spread = (answered * means * (1 - means)).sum(axis=1)
    raw = (right - answered * means).sum(axis=1) / np.sqrt(spread + 0.25)
    theta = norm.ppf((rankdata(np.round(raw, 9)) - 0.5) / 50)
    weights = norm(theta[:, None], 0.15).pdf(NODES.nodes)
    weights /= weights.sum(axis=1, keepdims=True)
    found = first_counts(matrix, NODES)
    assert found.right == pytest.approx(right.T @ weights, abs=1e-9)
    assert found.seen == pytest.approx(answered.T @ weights, abs=1e-9)
    assert found.mass == pytest.approx(weights.sum(axis=0))


@pytest.mark.parametrize("log_slope", [True, False])
@pytest.mark.parametrize("family", [Family.TWO_PL, Family.THREE_PL, Family.FOUR_PL])
def test_the_search_tries_every_combination_of_curves(family: Family, log_slope: bool) -> None:
    problem = Problem(family=family, log_slope=log_slope, priors=Priors.none())
    items = Curves(candidates(problem), log_slope).natural()
    curves = np.stack([items.a, -items.intercept / items.a, items.c, items.d], axis=1).round(9)
    values = [np.unique(column) for column in curves.T]
    of_steps = np.unique(Curves(candidates(problem), log_slope).x[:, 3])
    assert len(np.unique(curves, axis=0)) == len(curves)
    assert len(curves) == len(values[0]) * len(values[1]) * len(values[2]) * len(of_steps)
    assert values[1] == pytest.approx(-values[1][::-1])
    if not log_slope:
        assert values[0] == pytest.approx(-values[0][::-1])
    if family is Family.TWO_PL:
        assert (values[2].tolist(), values[3].tolist()) == ([0.0], [1.0])


def test_a_profile_of_guessing_is_the_best_fit_at_each_guess() -> None:
    data = simulate(14, Family.THREE_PL, 800, 6)
    problem = Problem(
        family=Family.THREE_PL, log_slope=True, priors=Priors.default(Family.THREE_PL), fixed=(1,)
    )
    curves = Curves.from_natural(data.items, log_slope=True)
    counts = expect(data.matrix, data.items, NODES)
    found = maximization._profiles(problem, curves, counts, NODES.nodes)
    estimated = [0, 2, 3, 4, 5]
    log_a, b = curves.x[estimated, 0].mean(), data.b[estimated].mean()
    for row, item in ((1, 2), (4, 5)):
        for place in (8, 14, 20):
            c = expit(-8.0 + 0.5 * place)

            def loss(x: FloatArray, item: int = item, c: float = c) -> float:
                z = np.exp(x[0]) * NODES.nodes + x[1]
                right, wrong = counts.right[item], counts.seen[0] - counts.right[item]
                likely = right @ np.log(c + (1 - c) * expit(z))
                likely += wrong @ (np.log(1 - c) + log_expit(-z))
                away = (x[0] - log_a) / 0.75, (-x[1] / np.exp(x[0]) - b) / 10
                return float(-likely + 0.5 * (away[0] ** 2 + away[1] ** 2))

            best = minimize(loss, curves.x[item, :2], method="Nelder-Mead", tol=1e-9)
            assert -best.fun - 0.05 < found[row, place] < -best.fun + 1e-6  # in a few steps


@pytest.mark.parametrize("slope", [0.2, 5.0])
@pytest.mark.parametrize("family", [Family.TWO_PL, Family.THREE_PL])
def test_steps_reach_the_maximum_from_far_away(family: Family, slope: float) -> None:
    data = simulate(15, family, 2000, 12)
    problem = Problem(family=family, log_slope=True, priors=Priors.default(family))
    counts = expect(data.matrix, data.items, NODES)
    far = data.items._replace(a=np.full(12, slope), intercept=np.full(12, slope))
    x = Curves.from_natural(far, log_slope=True).x
    settled = problem.settled(x)
    found = climb(settled, x, counts, NODES.nodes, np.full(12, START_DAMPING), 40)
    assert np.abs(found.at.gradient[:, list(family.free)]).max() < 1e-3


def test_the_evidence_for_a_spread_of_guessing_is_that_of_normal_densities() -> None:
    """The answers to each item say its logit c with a normal error, so all has a closed form."""
    middle, error = np.array([-2.5, -1.0, -1.5, 0.3]), np.array([0.4, 0.6, 0.5, 0.8])
    grid = maximization._FINE
    likelihood = np.exp(-0.5 * ((grid - middle[:, None]) / error[:, None]) ** 2)

    def expected(sd: float) -> float:
        spread = np.hypot(error, sd)
        by_mean = [
            (-0.5 * ((middle - mean) / spread) ** 2 - np.log(spread)).sum()
            for mean in np.linspace(-6, 2, 81)
        ]
        return float(max(by_mean) - 0.5 * np.log(sd / 0.5) ** 2)

    found = [maximization._evidence(likelihood, sd) for sd in (0.5, 0.9, 1.4)]
    assert np.diff(found) == pytest.approx(
        np.diff([expected(sd) for sd in (0.5, 0.9, 1.4)]), abs=1e-3
    )


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), family=st.sampled_from(Family))
def test_the_objective_of_an_item_never_falls(seed: int, family: Family) -> None:
    data = simulate(seed, family, 80, 6)
    problem = Problem(family=family, log_slope=True, priors=Priors.none())
    x = Curves.from_natural(draw_items(np.random.default_rng(seed), family, 6), log_slope=True).x
    counts = first_counts(data.matrix, NODES)
    before = objective(problem, x, counts, NODES.nodes).value
    after = climb(problem, x, counts, NODES.nodes, np.full(6, START_DAMPING), 6).at.value
    if family is Family.RASCH:  # the common slope may lower one item and raise the others
        assert after.sum() >= before.sum()
    else:
        assert (after >= before).all()


@pytest.mark.parametrize("family", Family)
def test_the_log_posterior_never_falls_and_ends_where_its_gradient_is_zero(family: Family) -> None:
    seen: list[Progress] = []
    data = simulate(5, family, 500, 12, missing=0.2)
    problem = Problem(family=family, log_slope=True, priors=Priors.default(family))
    result = maximise(data.matrix, problem, NODES, EmSettings(), watch=seen.append)
    gains = [line.gain for line in seen]
    assert result.converged
    assert min(gains) > -1e-9
    assert result.distance < 0.05


def test_acceleration_ends_where_plain_em_ends() -> None:
    data = simulate(7, Family.TWO_PL, 300, 8)
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none())
    result = maximise(
        data.matrix, problem, NODES, EmSettings(tolerance=1e-8, gradient_tolerance=1e-4)
    )
    x = result.curves.x
    for _ in range(30):
        counts = expect(data.matrix, Curves(x, log_slope=True).natural(), NODES)
        x = climb(problem, x, counts, NODES.nodes, np.full(8, START_DAMPING), 5).x
    assert x == pytest.approx(result.curves.x, abs=2e-4)


def test_anderson_solves_a_slow_linear_map_in_few_steps() -> None:
    rng = np.random.default_rng(8)
    contraction = np.diag([0.99, 0.9, 0.5, 0.1])
    target = rng.normal(size=4)
    accelerate = Anderson()
    x = np.zeros(4)
    for _ in range(15):
        mapped = target + contraction @ (x - target)
        mixed = accelerate.propose(x, mapped, np.ones(4))
        x = mapped if mixed is None else mixed
    assert x == pytest.approx(target, abs=1e-4)


def test_a_falling_item_is_found_where_slopes_may_be_negative() -> None:
    data = simulate(9, Family.TWO_PL, 800, 10)
    scores = data.matrix.scores.copy()
    scores[:, 0] = 1 - scores[:, 0]
    problem = Problem(family=Family.TWO_PL, log_slope=False, priors=Priors.none())
    result = maximise(ScoreMatrix.of(scores), problem, NODES, EmSettings())
    assert result.curves.a[0] < -0.5
    assert (result.curves.a[1:] > 0).all()


def test_an_item_in_a_poor_optimum_is_moved() -> None:
    data = simulate(10, Family.THREE_PL, 1000, 10)
    problem = Problem(family=Family.THREE_PL, log_slope=False, priors=Priors.none())
    good = maximise(data.matrix, problem, NODES, EmSettings())
    x = good.curves.x.copy()
    x[0, :3] = 20.0, 60.0, -8.0  # so steep and easy that nearly every gradient is 0
    counts = expect(data.matrix, good.curves.natural(), NODES)
    alone = climb(problem, x, counts, NODES.nodes, np.full(10, START_DAMPING), 100).x
    assert np.abs(alone[0] - good.curves.x[0]).max() > 10
    moved, jumps = leave_poor_optima(problem, x, counts, NODES.nodes)
    assert jumps == 1
    assert moved[0, 0] == pytest.approx(good.curves.x[0, 0], abs=0.2)


def test_an_estimated_density_fits_a_skewed_population_better() -> None:
    rng = np.random.default_rng(11)
    items = draw_items(rng, Family.TWO_PL, 25)
    theta = (rng.chisquare(2, 1500) - 2) / 2
    matrix = answer(rng, items, theta)
    problem = Problem(family=Family.TWO_PL, log_slope=True, priors=Priors.none())
    normal = maximise(matrix, problem, NODES, EmSettings())
    free = maximise(matrix, problem, NODES, EmSettings(estimate_density=True))
    assert free.log_likelihood > normal.log_likelihood + 20
    assert free.density.mean == pytest.approx(0, abs=1e-8)
    assert free.density.sd == pytest.approx(1, abs=1e-8)
    again = expect(matrix, free.curves.natural(), free.density).log_likelihood
    assert again == pytest.approx(free.log_likelihood, rel=1e-10)


def test_the_population_of_known_items_is_recovered() -> None:
    rng = np.random.default_rng(12)
    items = draw_items(rng, Family.TWO_PL, 30)
    matrix = answer(rng, items, rng.normal(0.8, 0.6, 2000))
    density, posteriors = population(matrix, items, NODES)
    assert density.mean == pytest.approx(0.8, abs=0.06)
    assert density.sd == pytest.approx(0.6, abs=0.05)
    # At the maximum the examinees' posteriors have the density's own moments.
    assert posteriors.mean(axis=0) @ NODES.nodes == pytest.approx(density.mean, abs=1e-5)


@pytest.mark.parametrize("size", [0.0, -1.0, float("nan"), float("inf")])
def test_priors_without_a_spread_and_coarse_grids_are_refused(size: float) -> None:
    with pytest.raises(InvalidInputError, match="sd > 0"):
        Normal(0.0, size)
    with pytest.raises(InvalidInputError, match="scale > 0"):
        Steepness(size)
    with pytest.raises(InvalidInputError, match="at least 5 nodes"):
        LatentDensity.normal(n_nodes=4)
    with pytest.raises(InvalidInputError, match="a bound > 0"):
        LatentDensity.normal(bound=-1.0)
    assert LatentDensity.normal(n_nodes=5, bound=0.5).nodes.tolist() == [-0.5, -0.25, 0, 0.25, 0.5]


def test_a_density_on_every_third_node_has_the_same_mass_mean_and_spread() -> None:
    thin = LatentDensity.normal(n_nodes=181, mean=0.4, sd=0.9).thinned()
    assert len(thin.nodes) == 61
    assert (thin.weights.sum(), thin.mean, thin.sd) == pytest.approx((1.0, 0.4, 0.9), abs=1e-6)
