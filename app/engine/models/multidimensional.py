"""Logistic models of several abilities.

| model | probability of a right answer |
|---|---|
| mirt | sigmoid(a (<Theta, K> - delta)) |
| nested | sigmoid(a (theta_g + <Theta, K> - delta)) |

Both are P(x) = sigmoid(<x, s> + intercept). The abilities x are Theta, or theta_g followed by
Theta. The slopes s are a K, or a (1, K). The intercept is -a delta, which stays finite where a
vanishes.

| symbol | meaning |
|---|---|
| x | abilities, shape (D,): D = K for mirt, K + 1 for nested |
| s | slopes of an item, shape (D,) |
| m, V | mean and covariance of the belief about x |
| w = P Q | information of an answer about its logit |

Source: McKinley & Reckase (1982) for mirt; the nested model is that of the WILD study.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from app.engine.models.base import FloatArray, IntArray
from app.errors import InvalidInputError

#: General slope of an item that depends on the other abilities only: negligible, but not 0.
_NO_GENERAL_SLOPE = 1e-9
_TOLERANCE = 1e-9  # gradient of the log-posterior at which a mode is found, logits
_MAX_STEPS = 100
_LEAST_WEIGHT = 1e-10  # weight of a certain answer: negligible, and it avoids a division by 0


@dataclass(frozen=True, slots=True, eq=False)
class Loadings:
    """How the items of a bank depend on several abilities.

    Attributes:
        a: Discriminations, shape (n_items,).
        intercept: Logits where all abilities are 0, shape (n_items,).
        loadings: Loadings K of each item, shape (n_items, K).
        nested: Whether there is a general ability in addition to the K others.
        slopes: Slopes in all abilities, shape (n_items, D), the general one first.
        across: Slopes transposed, shape (D, n_items), for fast passes over a whole bank.

    Raises:
        InvalidInputError: Shapes that do not fit, or a number that is not finite.
    """

    a: FloatArray
    intercept: FloatArray
    loadings: FloatArray
    nested: bool
    slopes: FloatArray = field(init=False, repr=False)
    across: FloatArray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n_items = self.a.size
        if self.intercept.shape != (n_items,) or self.loadings.shape[:-1] != (n_items,):
            raise InvalidInputError(
                f"Loadings need one row for each of {n_items} items, got shapes "
                f"{self.intercept.shape} and {self.loadings.shape}."
            )
        slopes = self.a[:, None] * self.loadings
        if self.nested:
            slopes = np.column_stack([self.a, slopes])
        if not (np.isfinite(slopes).all() and np.isfinite(self.intercept).all()):
            raise InvalidInputError("Loadings, slopes and intercepts must be finite numbers.")
        object.__setattr__(self, "slopes", slopes)
        object.__setattr__(self, "across", np.ascontiguousarray(slopes.T))

    @classmethod
    def from_slopes(cls, slopes: FloatArray, intercept: FloatArray, *, nested: bool) -> "Loadings":
        """Loadings from slopes, shape (n_items, D), the general ability first if `nested`."""
        if not nested:
            return cls(np.ones(len(slopes)), intercept, slopes, nested=False)
        # An item may depend on its dimensions alone: without some a its loadings are undefined.
        alone = (slopes[:, 0] == 0.0) & slopes[:, 1:].any(axis=1)
        a = np.where(alone, _NO_GENERAL_SLOPE, slopes[:, 0])
        loadings = slopes[:, 1:] / np.where(a == 0.0, 1.0, a)[:, None]
        return cls(a, intercept, loadings, nested=True)

    def take(self, items: IntArray) -> "Loadings":
        """The loadings of some of the items, by position."""
        return Loadings(self.a[items], self.intercept[items], self.loadings[items], self.nested)

    @property
    def n_abilities(self) -> int:
        """Number D of abilities."""
        return int(self.slopes.shape[1])

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the abilities, in their order."""
        count = self.loadings.shape[1]
        numbered = tuple(f"dimension_{k + 1}" for k in range(count))
        return ("general", *numbered) if self.nested else numbered

    def expected_score(self, abilities: FloatArray) -> FloatArray:
        """Probability of a right answer: shape (n_items,), or (n_examinees, n_items)."""
        from scipy.special import expit

        probability: FloatArray = expit(abilities @ self.slopes.T + self.intercept)
        return probability


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Normal distribution of the abilities of a bank's reference models.

    Attributes:
        mean: Mean of the abilities, shape (D,).
        covariance: Covariance of the abilities, shape (D, D).
    """

    mean: FloatArray
    covariance: FloatArray

    def along(self, direction: FloatArray) -> tuple[float, float]:
        """Mean and standard deviation of a weighted sum of the abilities."""
        spread = float(np.sqrt(direction @ self.covariance @ direction))
        return float(direction @ self.mean), spread

    def draw(self, direction: FloatArray, theta: float, rng: np.random.Generator) -> FloatArray:
        """Draw abilities, shape (D,), whose weighted sum is `theta`.

        Moving a free draw along its regression on the sum gives exactly the conditional one.
        """
        free = rng.multivariate_normal(self.mean, self.covariance)
        shared = self.covariance @ direction
        moved: FloatArray = free + shared * (theta - direction @ free) / (direction @ shared)
        return moved


@dataclass(frozen=True, eq=False)
class MultidimensionalModel:
    """Several abilities of a bank.

    Attributes:
        items: Loadings of the items.
        population: Distribution of the abilities of the reference models.
    """

    items: Loadings
    population: Population

    def take(self, items: IntArray) -> "MultidimensionalModel":
        """The model of some of the items, by position."""
        return MultidimensionalModel(self.items.take(items), self.population)

    @cached_property
    def composite(self) -> FloatArray:
        """Weights of the abilities in the main one, shape (D,), of length 1.

        The main ability is the general ability of a nested model; otherwise the direction in which
        the mean score of the bank rises fastest at the population's mean.
        """
        if self.items.nested:
            first: FloatArray = np.eye(self.items.n_abilities)[0]
            return first
        expected = self.items.expected_score(self.population.mean)
        rise = (expected * (1.0 - expected)) @ self.items.slopes
        length = float(np.linalg.norm(rise))
        return rise / length if length > 0.0 else np.eye(rise.size)[0]


def standardised(abilities: MultidimensionalModel) -> MultidimensionalModel:
    """The same curves and population, expressed in abilities z that are standard normal.

    With abilities mu + L z, L L' = Sigma, the slopes in z are s' L and the intercepts t + s' mu. L
    is lower triangular, so that the general ability stays the first.
    """
    items, population = abilities.items, abilities.population
    d = items.n_abilities
    turned = items.slopes @ np.linalg.cholesky(population.covariance)
    intercept = items.intercept + items.slopes @ population.mean
    return MultidimensionalModel(
        Loadings.from_slopes(turned, intercept, nested=items.nested),
        Population(mean=np.zeros(d), covariance=np.eye(d)),
    )


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """Normal (Laplace) approximation of the posterior of the abilities.

    Attributes:
        mean: Posterior mode, shape (D,).
        covariance: Inverse of minus the Hessian of the log-posterior there, shape (D, D).
    """

    mean: FloatArray
    covariance: FloatArray

    @property
    def se(self) -> FloatArray:
        """Standard error of each ability, shape (D,)."""
        errors: FloatArray = np.sqrt(np.diag(self.covariance))
        return errors


def with_answer(covariance: FloatArray, slope: FloatArray, weight: float) -> FloatArray:
    """Covariance of the abilities after one more answer, which does not depend on the answer.

    The answer adds w s s' to the precision; by the rank-one identity
    (V^-1 + w s s')^-1 = V - V s s' V w / (1 + w s' V s), in O(D^2).

    Args:
        covariance: Covariance V before the answer, shape (D, D).
        slope: Slopes s of the item, shape (D,).
        weight: Weight w = P Q at the current abilities.

    Source: Sherman & Morrison (1950), Annals of Mathematical Statistics 21.
    """
    direction = covariance @ slope
    shrunk: FloatArray = covariance - np.outer(direction, direction) * (
        weight / (1.0 + weight * float(slope @ direction))
    )
    return shrunk


def estimate_profile(
    items: Loadings,
    population: Population,
    asked: IntArray,
    scores: FloatArray,
    start: FloatArray | None = None,
) -> Profile:
    """Posterior mode of the abilities by a trust-region Newton method.

    Args:
        items: Loadings of the bank.
        population: The prior N(mu, Sigma).
        asked: Positions of the answered items, shape (n,).
        scores: Scores of these items in [0, 1], shape (n,).
        start: Abilities to start at, shape (D,); by default the population's mean.

    Source: Nocedal & Wright (2006), Numerical Optimization, section 4.3.
    """
    from scipy.special import expit

    slopes, intercept = items.slopes[asked], items.intercept[asked]
    prior = np.linalg.inv(population.covariance)

    def objective(x: FloatArray) -> float:
        logit = slopes @ x + intercept
        away = x - population.mean
        return float(np.sum(np.logaddexp(0.0, logit) - scores * logit) + 0.5 * away @ prior @ away)

    x = population.mean.copy() if start is None else start.copy()
    value, radius = objective(x), 1.0
    hessian = prior
    for _ in range(_MAX_STEPS):
        expected = expit(slopes @ x + intercept)
        gradient = slopes.T @ (expected - scores) + prior @ (x - population.mean)
        weight = np.maximum(expected * (1.0 - expected), _LEAST_WEIGHT)
        hessian = prior + slopes.T @ (weight[:, None] * slopes)
        if np.abs(gradient).max() < _TOLERANCE:
            break
        step = _trust_region_step(hessian, gradient, radius)
        predicted = -float(gradient @ step + 0.5 * step @ hessian @ step)
        new = objective(x + step)
        gained = value - new
        if gained >= 0.0:
            x, value = x + step, new
        if gained < 0.25 * predicted:
            if predicted <= 1e-12 * (1.0 + abs(value)):
                break  # further steps would only follow rounding errors
            radius = 0.25 * float(np.linalg.norm(step))
        elif gained > 0.75 * predicted:
            radius *= 2.0
    return Profile(mean=x, covariance=np.linalg.inv(hessian))


def _trust_region_step(hessian: FloatArray, gradient: FloatArray, radius: float) -> FloatArray:
    """Minimum of the quadratic model within the radius; the Hessian is positive definite."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    along = vectors.T @ gradient

    def length(damping: float) -> float:
        return float(np.linalg.norm(along / (eigenvalues + damping)))

    damping = 0.0
    if length(0.0) > radius:
        low, high = 0.0, float(np.linalg.norm(gradient)) / radius
        for _ in range(60):
            damping = 0.5 * (low + high)
            low, high = (damping, high) if length(damping) > radius else (low, damping)
    step: FloatArray = -vectors @ (along / (eigenvalues + damping))
    return step
