"""Person fit and when it is flagged, surprising answers, and how evenly tests use the bank."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from app.engine.bank import FloatArray, IntArray, ItemBank, ItemIndex
from app.engine.models.base import sigmoids
from app.engine.state import Response, answered
from app.errors import InvalidInputError

CLEARLY_HARDER = 0.2  # least difference of two expected scores at which an item counts as harder
SURPRISING = 0.85  # least absolute residual of a surprising score
MAX_SURPRISES = 5
FLAG_BELOW = 0.01  # one-sided p-value: unlikely answers make lz negative
#: Prior standard deviations of a slope and an intercept.
_SLOPE_SD, _INTERCEPT_SD = 0.5, 2.0
#: Weight of a reference model, below 1 because its ability is estimated from the same answers.
_REFERENCE = 0.5
_NODES, _DRAWS = 21, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonFit:
    """Whether one examinee's answers fit the response model of the bank.

    Attributes:
        lz: Standardised log-likelihood of the answers; None if its variance is 0.
        lz_star: lz corrected for the estimation of theta from the same answers. It is N(0, 1) for
            answers that fit, and very negative if hard items are right and easy items wrong.
        p_value: Probability of an `lz_star` this low or lower.
        flagged: Whether `p_value` is below 0.01.
    """

    lz: float | None
    lz_star: float | None
    p_value: float | None
    flagged: bool
    n_items: int


def person_fit(
    bank: ItemBank,
    responses: Iterable[Response],
    theta: float | FloatArray,
    n_reference: int | None = None,
) -> PersonFit:
    """The lz and lz* of some answers at the theta estimated from them.

    With few reference models estimated slopes may be too steep or too flat: answers that fit the
    true curves look unlikely then. Each logit is therefore divided by sqrt(1 + pi s^2 / 8), with
    s^2 its variance given the number of reference models (the mean of a probit, nearly a logit's).

    With W = sum (X - P) w, w = log(P / Q), r = P' / (P Q) and k = sum P' w / sum P' r, the weights
    w - k r remove from W what the fit of theta removed. Snijders adds k r0, where r0 is the prior
    term of the estimator. As r0 = -sum (X - P) r at the estimate, the sum of (X - P)(w - k r) is
    valid for MAP, MLE, WLE and approximately EAP. For several abilities r and k are vectors, and k
    solves (sum P Q r r') k = sum P Q r w.

    Args:
        bank: The bank.
        responses: Scored answers.
        theta: Ability estimated from them; for several abilities all of them, shape (D,).
        n_reference: Number of reference models; None takes the curves as known.

    Sources: Drasgow, Levine & Williams (1985), Br. J. Math. Stat. Psychol. 38, for lz; Snijders
        (2001), Psychometrika 66, eq. 10-16, for lz*; Hong, Lin & Cheng (2021), Psychometrika 86,
        for several abilities.
    """
    answers = list(responses)
    items, scores = answered(answers)
    expected = _expected(bank, items, theta, n_reference)
    residual = scores - expected.score
    scaled = expected.slope * np.sqrt(expected.variance)[:, None]
    k = np.linalg.lstsq(scaled, expected.weight * np.sqrt(expected.variance), rcond=None)[0]
    lz = _standardised(residual, expected.weight, expected.variance)
    lz_star = _standardised(residual, expected.weight - expected.slope @ k, expected.variance)
    p_value = None if lz_star is None else 0.5 * math.erfc(-lz_star / math.sqrt(2))
    return PersonFit(
        lz=lz,
        lz_star=lz_star,
        p_value=p_value,
        flagged=p_value is not None and p_value < FLAG_BELOW,
        n_items=len(answers),
    )


@dataclass(frozen=True, slots=True)
class _Expected:
    """Moments of the scores on some items at given abilities.

    Attributes:
        score: Mean score, shape (n,).
        variance: Variance of the score, shape (n,).
        weight: Derivative of the log-likelihood in the score: log(P / Q), shape (n,).
        slope: Derivative of `weight` in each ability: P' / (P Q), shape (n, D).
    """

    score: FloatArray
    variance: FloatArray
    weight: FloatArray
    slope: FloatArray


def _expected(
    bank: ItemBank, items: IntArray, theta: float | FloatArray, n_reference: int | None = None
) -> _Expected:
    if bank.abilities is not None:
        population, loadings = bank.abilities.population, bank.abilities.items
        slopes, intercept = loadings.slopes[items], loadings.intercept[items]
        if n_reference is not None:
            draws = np.random.default_rng(0).multivariate_normal(
                population.mean, population.covariance, _DRAWS
            )
            weights = np.full(_DRAWS, 1.0 / _DRAWS)
            flatter = _flatter(slopes, intercept, np.asarray(theta), draws, weights * n_reference)
            slopes, intercept = slopes * flatter[:, None], intercept * flatter
        logit = slopes @ np.asarray(theta) + intercept
        score, wrong = sigmoids(logit)
        return _Expected(score, score * wrong, logit, slopes)
    parameters, model = bank.parameters.take(items), bank.model
    at = float(theta)
    if n_reference is not None:
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        weights *= n_reference / weights.sum()
        a, intercept = parameters.a, parameters.intercept
        flatter = _flatter(a[:, None], intercept, np.array([at]), nodes[:, None], weights)
        parameters = parameters._replace(a=a * flatter, intercept=intercept * flatter)
    # The log-likelihood is linear in the score; continuous scores lie between c and d.
    lo, hi = parameters.c, parameters.d
    weight = (
        model.log_likelihood(parameters, at, hi) - model.log_likelihood(parameters, at, lo)
    ) / (hi - lo)
    slope = (
        model.likelihood_slope(parameters, at, hi).first
        - model.likelihood_slope(parameters, at, lo).first
    ) / (hi - lo)
    return _Expected(
        model.expected_score(parameters, at),
        model.score_moments(parameters, at)[1],
        weight,
        slope[:, None],
    )


def _flatter(
    slopes: FloatArray,
    intercept: FloatArray,
    theta: FloatArray,
    nodes: FloatArray,
    counts: FloatArray,
) -> FloatArray:
    """Factor on the logits at an ability that allows for the curves' uncertainty, shape (n,).

    Args:
        slopes: Slopes of the items, shape (n, D).
        intercept: Intercepts of the items, shape (n,).
        theta: The ability, shape (D,).
        nodes: Abilities of reference models, shape (n_nodes, D).
        counts: Number of reference models at each node, shape (n_nodes,).
    """
    p = expit(nodes @ slopes.T + intercept)
    weights = _REFERENCE * counts[:, None] * p * (1.0 - p)
    design = np.column_stack([nodes, np.ones(len(nodes))])
    prior = np.full(len(theta) + 1, _SLOPE_SD**-2)
    prior[-1] = _INTERCEPT_SD**-2
    precision = np.einsum("kn,kd,ke->nde", weights, design, design) + np.diag(prior)
    at = np.append(theta, 1.0)
    variance = np.einsum("d,nde,e->n", at, np.linalg.inv(precision), at)
    factor: FloatArray = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * variance)
    return factor


def residuals(
    bank: ItemBank, responses: Iterable[Response], theta: float | FloatArray
) -> FloatArray:
    """Scores minus expected scores at theta, in the order of the answers, shape (n,).

    Args:
        bank: The items.
        responses: Scored answers.
        theta: Ability, logits; for several abilities all of them, shape (D,).
    """
    answers = list(responses)
    items, scores = answered(answers)
    return scores - _expected(bank, items, theta).score


@dataclass(frozen=True, slots=True)
class Surprise:
    """An answer with a large residual.

    Attributes:
        expected: Expected score of examinees of this ability on the item.
    """

    item: ItemIndex
    score: float
    expected: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Inversions:
    """Pairs of a right hard item and a wrong easy item: the pattern of memorised items.

    Attributes:
        observed: Pairs of answers with the clearly harder item right and the easier item wrong.
        expected: Mean number of such pairs for an examinee of this ability on these items.
        surprises: Answers with the largest residuals, largest first.
    """

    observed: float
    expected: float
    surprises: tuple[Surprise, ...]


def inversions(
    bank: ItemBank,
    responses: Iterable[Response],
    theta: float | FloatArray,
    n_reference: int | None = None,
) -> Inversions:
    """Count the pairs of answers in which the harder item is right and the easier item wrong.

    A pair counts if the expected scores of its items at theta differ by `CLEARLY_HARDER` or more;
    scores between 0 and 1 count partly. The counts illustrate person fit; the statistical test is
    `person_fit`, which has the same arguments.

    Source: Guttman errors, as in Meijer & Sijtsma (2001), Appl. Psychol. Meas. 25.
    """
    answers = list(responses)
    items, scores = answered(answers)
    expected = _expected(bank, items, theta, n_reference).score
    pairs = expected[:, None] - expected[None, :] >= CLEARLY_HARDER  # easier item, harder item
    wrong_way = (1 - scores)[:, None] * scores
    likely = (1 - expected)[:, None] * expected
    gap = np.abs(scores - expected)
    worst = [j for j in np.argsort(-gap, kind="stable").tolist() if gap[j] >= SURPRISING]
    return Inversions(
        observed=float(wrong_way[pairs].sum()),
        expected=float(likely[pairs].sum()),
        surprises=tuple(
            Surprise(answers[j].item, float(scores[j]), float(expected[j]))
            for j in worst[:MAX_SURPRISES]
        ),
    )


def use_counts(tests: Sequence[Sequence[int] | IntArray], n_items: int) -> IntArray:
    """How many tests used each item, shape (n_items,).

    Raises:
        InvalidInputError: A position outside the bank.
    """
    used = np.array([item for test in tests for item in test], dtype=np.intp)
    if len(used) and not (used.min() >= 0 and used.max() < n_items):
        raise InvalidInputError(
            f"Items are positions in [0, {n_items}), got {used.min()} to {used.max()}."
        )
    return np.bincount(used, minlength=n_items)


def exposure_rates(tests: Sequence[Sequence[int] | IntArray], n_items: int) -> FloatArray:
    """Share of the tests that used each item, shape (n_items,); zeros without tests."""
    return use_counts(tests, n_items) / max(len(tests), 1)


def overlap(counts: IntArray, n_tests: int) -> float:
    """Expected share of a test's items that another test also used; 0 with fewer than two tests.

    sum m (m - 1) / ((N - 1) sum L), m the use count of an item, L the length of a test, N the
    number of tests. For tests of one length this is N sum r^2 / (L (N - 1)) - 1 / (N - 1) with
    exposure rates r.

    Args:
        counts: Number of tests that used each item, shape (n_items,).
        n_tests: Number of tests.

    Source: Chen, Ankenmann & Spray (2003), J. Educ. Meas. 40; Chen (2005), Appl. Psychol. Meas. 29.
    """
    administered = int(counts.sum())
    if n_tests < 2 or administered == 0:
        return 0.0
    return int(counts @ (counts - 1)) / ((n_tests - 1) * administered)


def jaccard(tests: Sequence[Sequence[int] | IntArray], n_items: int) -> float:
    """Mean over all pairs of tests of |A and B| / |A or B|; 0 with fewer than two tests.

    Source: Jaccard (1912), New Phytologist 11.
    """
    if len(tests) < 2:
        return 0.0
    used = np.zeros((len(tests), n_items), dtype=np.float32)
    for row, test in zip(used, tests, strict=True):
        row[np.asarray(test, dtype=np.intp)] = 1.0
    common, length = used @ used.T, used.sum(axis=1)
    first, second = np.triu_indices(len(tests), 1)
    shared = common[first, second]
    either = length[first] + length[second] - shared
    return float(np.divide(shared, either, out=np.zeros_like(shared), where=either > 0).mean())


def _standardised(residual: FloatArray, weight: FloatArray, variance: FloatArray) -> float | None:
    spread = float((weight * weight) @ variance)
    # Theta fits one answer, or answers to equal items, exactly: what is left is rounding.
    if spread <= 1e-12 * len(weight):
        return None
    return float(weight @ residual) / math.sqrt(spread)
