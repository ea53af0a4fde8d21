"""Beliefs about uncalibrated items: expected curves, and their update from few answers."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from app.calibration.filters import DropReason
from app.calibration.logistic import beliefs as beliefs_module
from app.calibration.logistic.beliefs import (
    DIFFICULTY_SD,
    GUESS_CORRELATION,
    ItemBeliefs,
    calibrate_beliefs,
    prepared_for_beliefs,
    widening,
    without_answers,
)
from app.calibration.matrix import ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.models.base import FloatArray
from app.errors import InvalidInputError

N, LENGTH = 200, 60
KEYS = tuple(f"q{j}" for j in range(N))


def beliefs(options: int = 0, guesses: object = None) -> ItemBeliefs:
    given = [None] * N if guesses is None else list(np.asarray(guesses, dtype=float))
    return ItemBeliefs.guessed(KEYS, [options] * N, given)


def true_bank(rng: np.random.Generator, c: float) -> ItemBank:
    return ItemBank.from_difficulties(
        a=np.exp(rng.normal(0.4, 0.5, N)),
        b=rng.normal(0, DIFFICULTY_SD, N),
        c=np.full(N, c),
        item_ids=KEYS,
    )


def answers(bank: ItemBank, theta: FloatArray, rng: np.random.Generator) -> FloatArray:
    scores = (rng.random((len(theta), N)) < bank.expected_score(theta)).astype(float)
    for row in scores:
        row[rng.permutation(N)[LENGTH:]] = np.nan
    return scores


def eap(bank: ItemBank, scores: FloatArray) -> tuple[FloatArray, FloatArray]:
    grid = np.linspace(-5, 5, 201)
    p = np.clip(bank.expected_score(grid).T, 1e-12, 1 - 1e-12)
    seen = ~np.isnan(scores)
    right = np.nan_to_num(scores)
    log_mass = right @ np.log(p) + (seen - right) @ np.log1p(-p) - 0.5 * grid**2
    mass = np.exp(log_mass - log_mass.max(axis=1, keepdims=True))
    mass /= mass.sum(axis=1, keepdims=True)
    theta = mass @ grid
    return theta, np.sqrt(mass @ grid**2 - theta**2)


def errors(
    found: tuple[FloatArray, FloatArray], theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return errors of thetas aligned in mean and sd, and standard errors scaled alike."""
    stretch = theta.std() / found[0].std()
    error: FloatArray = (found[0] - found[0].mean()) * stretch - (theta - theta.mean())
    return error, found[1] * stretch


def test_the_expected_curve_is_the_mean_over_possible_curves() -> None:
    found = ItemBeliefs(
        keys=("x", "y"), b=np.array([0.7, -1.0]), se_b=np.array([1.1, 0.3]), c=np.array([0.25, 0.0])
    ).bank()
    rng = np.random.default_rng(5)
    theta = np.linspace(-2.5, 2.5, 11)
    a = np.exp(rng.normal(0.4, 0.5, 40_000))
    for j, (b, se, c) in enumerate(((0.7, 1.1, 0.25), (-1.0, 0.3, 0.0))):
        of_item = expit(a * (theta[:, None] - rng.normal(b, se, 40_000))).mean(axis=1)
        mean = c + (1 - c) * of_item
        assert found.expected_score(theta)[:, j] == pytest.approx(mean, abs=0.025)


def test_only_the_order_of_guessed_difficulties_matters() -> None:
    levels = np.repeat([1, 2, 3, 4], N // 4)
    one, other = beliefs(guesses=levels), beliefs(guesses=10.0**levels)
    assert (one.b == other.b).all()
    assert (np.diff(one.b) >= 0).all()
    assert np.std(one.b) < GUESS_CORRELATION * DIFFICULTY_SD
    assert (beliefs(guesses=np.ones(N)).b == 0).all()  # equal guesses have no information
    some = ItemBeliefs.guessed(("a", "b", "c", "d"), [0, 2, 5, 1], [7.0, None, 2.0, 2.0])
    # Ranks 1 and 2 of three are tied: their normal scores stand at 1/3, that of rank 3 at 5/6.
    z = norm.ppf([5 / 6, 0.5, 1 / 3, 1 / 3])
    assert some.b == pytest.approx(0.5 * 1.3 * z)  # a regression on the guess, correlated by 1/2
    assert some.se_b**2 == pytest.approx(1.3**2 * np.array([0.75, 1, 0.75, 0.75]))
    assert some.c.tolist() == [0.0, 0.5, 0.2, 0.0]


@pytest.mark.parametrize(
    ("se_b", "c", "b", "given"),
    [
        (0.0, 0.0, 0.0, ()),
        (np.inf, 0.0, 0.0, ()),
        (1.0, 1.0, 0.0, ()),
        (1.0, -0.1, 0.0, ()),
        (1.0, 0.0, np.inf, ()),
        (1.0, 0.0, 0.0, (1.0, 2.0)),
    ],
)
def test_beliefs_that_are_no_densities_are_refused(
    se_b: float, c: float, b: float, given: tuple[float, ...]
) -> None:
    columns = {name: np.array([value]) for name, value in (("se_b", se_b), ("c", c), ("b", b))}
    with pytest.raises(InvalidInputError, match="Beliefs need"):
        ItemBeliefs(keys=("a",), given=given, **columns)


def test_a_mean_curve_is_replaced_by_the_nearest_logistic_one() -> None:
    """Least squares of the logit, weighted by information and by N(0, 1.5) of theta."""
    rng = np.random.default_rng(8)
    a, intercept = np.exp(rng.normal(0.4, 0.5, (300, 2))), rng.normal([0.5, -1.0], 1.0, (300, 2))
    c = expit(rng.normal(-1.4, 0.5, (300, 2))) * np.array([1, 0])
    found, theta = beliefs_module._expected(a, intercept, c), np.linspace(-4, 4, 33)
    for j in range(2):
        of_draws = expit(a[:, j] * theta[:, None] + intercept[:, j])
        floor = c[:, j].mean()
        p = ((c[:, j] + (1 - c[:, j]) * of_draws).mean(axis=1) - floor) / (1 - floor)
        weights = p * (1 - p) * norm(0, 1.5).pdf(theta)
        line = np.polyfit(theta, np.log(p / (1 - p)), 1, w=weights**0.5)
        assert (found.a[j], found.intercept[j]) == pytest.approx(tuple(line))
        assert (found.c[j], found.d[j]) == (pytest.approx(floor), 1.0)


def test_draws_are_standard_normal_and_uncorrelated() -> None:
    draws = beliefs_module._DRAWS
    shares = np.tile((np.arange(128)[:, None] + 0.5) / 128, 3)
    assert norm.cdf(np.sort(draws, axis=0)) == pytest.approx(shares, abs=0.05)
    assert draws.T @ draws / 128 == pytest.approx(np.eye(3), abs=0.1)


def test_a_version_without_answers_knows_its_beliefs() -> None:
    first = beliefs(4, np.arange(N))
    found = without_answers(first, first.bank())
    assert (found["n_examinees"], found["n_answers"], found["answers_per_item"]) == (0, 0, 0.0)
    assert found["se_b"] == pytest.approx(1.3 * 0.75**0.5)
    again = ItemBeliefs.from_dict(found["beliefs"])
    assert [again.keys, *again.b, *again.c] == [first.keys, *first.b, *first.c]
    # Two copies of each item have twice the information of one, at any theta.
    once = first.start().natural()
    assert once.a == pytest.approx(np.exp(0.4))
    assert -once.intercept / once.a == pytest.approx(first.b)
    assert once.c == pytest.approx(0.25)
    assert once.d == pytest.approx(1.0)
    assert (beliefs(0).start().natural().c == 0).all()
    twice = once._replace(**{name: np.tile(getattr(once, name), 2) for name in ("a", "intercept")})
    twice = twice._replace(c=np.tile(once.c, 2), d=np.tile(once.d, 2))
    bank = ItemBank.from_intercepts(a=once.a, intercept=once.intercept, c=once.c)
    assert widening(bank, once) == pytest.approx(0.0, abs=1e-12)
    assert widening(bank, twice) == pytest.approx(2**0.5 - 1)


def test_answers_are_put_in_the_order_of_the_beliefs() -> None:
    scores = np.array([[1.0, 0.0, 1.0], [np.nan, np.nan, 1.0], [0.0, np.nan, 0.0]])
    matrix = ScoreMatrix.of(scores, examinees=["x", "y", "z"], items=["q7", "q2", "other"])
    found = prepared_for_beliefs(matrix, beliefs())
    assert found.matrix.items == KEYS
    assert found.matrix.examinees == ("x", "z")
    assert found.matrix.scores[:, [2, 7]].tolist() == [[0, 1], [255, 0]]
    assert (np.delete(found.matrix.scores, [2, 7], axis=1) == 255).all()
    assert [(one.name, one.reason) for one in found.items] == [("other", DropReason.NO_PRIOR)]
    assert [(one.name, one.reason) for one in found.examinees] == [("y", DropReason.NO_ANSWERS)]


@pytest.mark.parametrize(("c", "hints"), [(0.0, -0.5), (0.25, 0.5)])
def test_sixty_examinees_bring_guesses_near_the_true_difficulties(c: float, hints: float) -> None:
    """Bars: tau 0.8 for five models before, RMSE after within 1.15 times that of true items."""
    rng = np.random.default_rng(6)
    models = np.linspace(-2, 2, 5)
    taus, squares, covered = [], [], []
    for _ in range(3):
        bank = true_bank(rng, c)
        noise = np.sqrt(1 - hints**2) * rng.normal(size=N)
        first = beliefs(round(1 / c) if c else 0, hints * bank.b / DIFFICULTY_SD + noise)
        found, _ = eap(first.bank(), answers(bank, models, rng))
        rising = np.sign(np.subtract.outer(found, found)) * np.sign(
            np.subtract.outer(models, models)
        )
        taus.append(rising.sum() / 20)  # Kendall's tau of 5 models that differ
        given = answers(bank, rng.normal(size=60), rng)
        learned = calibrate_beliefs(ScoreMatrix.of(given, items=KEYS), first)
        theta = rng.normal(size=120)
        scores = answers(bank, theta, rng)
        (of_truth, _), (after, se) = (
            errors(eap(known, scores), theta) for known in (bank, learned.bank)
        )
        squares.append([(of_truth**2).mean(), (after**2).mean()])
        covered.append((abs(after) < 1.96 * se).mean())
        assert widening(learned.bank, learned.calibration.items) < widening(
            first.bank(), first.start().natural()
        )
    true_rmse, rmse = np.sqrt(np.mean(squares, axis=0))
    assert np.median(taus) >= 0.8
    assert rmse / true_rmse <= 1.15
    assert 0.92 <= np.mean(covered) <= 0.99


@pytest.mark.parametrize("options", [0, 4])
def test_unanswered_items_keep_their_prior_belief(options: int) -> None:
    rng = np.random.default_rng(1)
    first = beliefs(options, guesses=np.arange(N))
    guessing = 1 / options if options else 0.0
    scores = answers(true_bank(rng, guessing), rng.normal(size=30), rng)
    scores[:, :2] = np.nan
    scores[:, 2] = np.where(np.isnan(scores[:, 2]), np.nan, 1.0)  # all right is a hint and no error
    learned = calibrate_beliefs(ScoreMatrix.of(scores, items=KEYS), first)
    found = learned.calibration
    assert found.density.mean == pytest.approx(0, abs=1e-9)
    assert found.density.sd == pytest.approx(1, abs=1e-9)
    assert found.known_errors.b[0] > 1.5 * np.median(found.known_errors.b)
    assert found.b[2] < found.b[1]
    assert learned.bank.c.mean() == pytest.approx(guessing, abs=0.05)
    assert ((learned.bank.c > 0) == (options > 0)).all()
