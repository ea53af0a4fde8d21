"""The one- to four-parameter logistic model.

    P(theta) = c + (d - c) sigmoid(z),   z = a theta + intercept = a (theta - b)

| symbol | meaning |
|---|---|
| s, t | sigmoid(z), sigmoid(-z): a complement is computed, never subtracted |
| P, Q | probability of a right and of a wrong answer |
| w, v | (d - c) s / P and (d - c) t / Q: 1 without guessing and slipping |

With these, P'/P = a t w and P'/Q = a s v, so that nothing here divides by a vanishing number.

Source: Birnbaum (1968), in Lord & Novick; Barton & Lord (1981) for d.
"""

from typing import NamedTuple

import numpy as np

from app.engine.models.base import (
    Z_MAX,
    FloatArray,
    ItemParameters,
    Peak,
    Slope,
    WarmTerms,
    sigmoids,
)


class _Parts(NamedTuple):
    s: FloatArray
    t: FloatArray
    w: FloatArray
    v: FloatArray


class LogisticModel:
    """1PL to 4PL: fewer parameters are the same formula with c = 0, d = 1 or equal slopes."""

    name = "logistic"
    columns = ("a", "intercept", "c", "d")

    def expected_score(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Probability of a right answer."""
        a, intercept, c, d, _ = parameters
        # Held above exp(-Z_MAX): no overflow, and ratios of two of them stay defined.
        sigmoid = 1 / (1 + np.exp(np.minimum(-(a * theta + intercept), Z_MAX)))
        probability: FloatArray = c + (d - c) * sigmoid
        return probability

    def score_moments(
        self, parameters: ItemParameters, theta: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """P, and the Bernoulli variance P Q."""
        a, intercept, c, d, _ = parameters
        s, t = sigmoids(a * theta + intercept)
        right, wrong = c + (d - c) * s, (1 - d) + (d - c) * t
        return right, right * wrong

    def information(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Fisher information (dP/dtheta)^2 / (P Q), in its true 3PL/4PL form.

        Source: Hambleton, Swaminathan & Rogers (1991), eq. 6.2.
        """
        s, t, w, v = self._parts(parameters, theta)
        information: FloatArray = (parameters.a * parameters.a) * (s * t) * (w * v)
        return information

    def peak(self, parameters: ItemParameters) -> Peak:
        """By bisection, as log I rises up to one mode and falls from there.

        With P between c and d

            log I = const + 2 log(P - c) + 2 log(d - P) - log P - log(1 - P)

        has the derivative 2/(P-c) - 2/(d-P) - 1/P + 1/(1-P), which falls in P everywhere.

        Magis (2013), Applied Psychological Measurement 37, gives the mode in closed form.
        """
        a, _, c, d, _ = parameters
        width = d - c
        # With s = sigmoid(z) the derivative of log I is, up to a positive factor,
        # 2/s - 2/(1-s) - w/P + w/Q. As w/P <= 1/s and w/Q <= 1/(1-s), its zero is in [1/3, 2/3].
        low, high = np.full(c.shape, 1 / 3), np.full(c.shape, 2 / 3)
        for _ in range(54):
            s = 0.5 * (low + high)
            p, q = c + width * s, (1.0 - d) + width * (1.0 - s)
            rising = 2.0 / s - 2.0 / (1.0 - s) - width / p + width / q > 0.0
            low, high = np.where(rising, s, low), np.where(rising, high, s)
        s = 0.5 * (low + high)
        p, q = c + width * s, (1.0 - d) + width * (1.0 - s)
        return Peak(np.log(s) - np.log1p(-s), (a * width * s * (1.0 - s)) ** 2 / (p * q))

    def mutual_information(
        self, parameters: ItemParameters, nodes: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """H(mean P) - mean H(P), H the entropy of a right or wrong answer.

        Source: Weissman (2007), Educational and Psychological Measurement 67, eq. 8.
        """
        expected = self.expected_score(parameters, nodes[:, None])
        gain: FloatArray = _entropy(weights @ expected) - weights @ _entropy(expected)
        return gain

    def draw_scores(
        self, parameters: ItemParameters, theta: float, rng: np.random.Generator
    ) -> FloatArray:
        """1 or 0."""
        expected = self.expected_score(parameters, theta)
        return (rng.random(expected.shape) < expected).astype(np.float64)

    def log_likelihood(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> FloatArray:
        """`score log P + (1 - score) log Q`, finite at any theta."""
        a, intercept, c, d, _ = parameters
        z = a * theta + intercept
        right = np.equal(scores, 1)
        if np.all(right | np.equal(scores, 0)):
            return _log_mixture(np.where(right, c, 1 - d), d - c, np.where(right, -z, z))
        of_right, of_wrong = _log_mixture(c, d - c, -z), _log_mixture(1 - d, d - c, z)
        log_likelihood: FloatArray = scores * of_right + np.subtract(1, scores) * of_wrong
        return log_likelihood

    def item_log_likelihood(
        self, parameters: ItemParameters, item: int, theta: FloatArray, score: float
    ) -> FloatArray:
        """`log_likelihood` of one answer on a grid, in as few passes as it takes."""
        if 0 < score < 1:
            return self.log_likelihood(parameters.take(item), theta, score)
        a, intercept = parameters.a.item(item), parameters.intercept.item(item)
        c, d = parameters.c.item(item), parameters.d.item(item)
        if score == 1:
            return _log_mixture_on_grid(c, d - c, theta * -a - intercept)
        return _log_mixture_on_grid(1 - d, d - c, theta * a + intercept)

    def row_log_likelihood(
        self, parameters: ItemParameters, nodes: FloatArray, scores: FloatArray
    ) -> FloatArray:
        """As two matrix products: the log-likelihood is linear in the scores."""
        items = parameters.column()
        log_right = self.log_likelihood(items, nodes, 1.0)
        log_wrong = self.log_likelihood(items, nodes, 0.0)
        missing = np.isnan(scores)
        right = np.where(missing, 0.0, scores)
        wrong = np.where(missing, 0.0, 1 - scores)
        log_likelihood: FloatArray = right @ log_right + wrong @ log_wrong
        return log_likelihood

    def likelihood_slope(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> Slope:
        """Derivatives of the log-likelihood; minus the second is the observed information."""
        s, t, w, v = self._parts(parameters, theta)
        a = parameters.a
        right, wrong = np.asarray(scores), 1 - np.asarray(scores)
        first = a * (right * (t * w) - wrong * (s * v))
        second = a**2 * (right * (t * w) * (t * (1 - w) - s) - wrong * (s * v) * (t - s * (1 - v)))
        return Slope(first, second)

    def warm_terms(self, parameters: ItemParameters, theta: FloatArray | float) -> WarmTerms:
        """I = P'^2 / (P Q), J = P' P'' / (P Q) = a I (t - s), and their derivatives."""
        s, t, w, v = self._parts(parameters, theta)
        a = parameters.a
        information = a**2 * (s * t) * (w * v)
        skew = t - s
        information_slope = a * information * (2 * skew - (t * w - s * v))
        j = a * information * skew
        j_slope = a * (information_slope * skew - 2 * a * (s * t) * information)
        return WarmTerms(information, information_slope, j, j_slope)

    def _parts(self, parameters: ItemParameters, theta: FloatArray | float) -> _Parts:
        a, intercept, c, d, _ = parameters
        s, t = sigmoids(a * theta + intercept)
        of_right, of_wrong = (d - c) * s, (d - c) * t
        return _Parts(s, t, of_right / (c + of_right), of_wrong / ((1 - d) + of_wrong))


def _entropy(p: FloatArray) -> FloatArray:
    from scipy.special import entr

    entropy: FloatArray = entr(p) + entr(1.0 - p)
    return entropy


def _log_mixture(floor: FloatArray, rise: FloatArray, minus_z: FloatArray) -> FloatArray:
    """log(floor + rise sigmoid(z)); without a floor it falls with z for ever."""
    mixture = np.asarray(np.exp(np.minimum(minus_z, Z_MAX)))
    mixture += 1
    np.divide(rise, mixture, out=mixture)
    mixture += floor
    np.log(mixture, out=mixture)
    bare = floor <= 0
    if bare.any() and np.max(minus_z) > Z_MAX:
        mixture -= bare * np.maximum(minus_z - Z_MAX, 0.0)
    return mixture


def _log_mixture_on_grid(floor: float, rise: float, minus_z: FloatArray) -> FloatArray:
    """`_log_mixture` of one item over ascending nodes; takes `minus_z` for its own use."""
    # Linear in theta, so the largest is at an end.
    if max(minus_z.item(0), minus_z.item(-1)) > Z_MAX:
        return _log_mixture(np.asarray(floor), np.asarray(rise), minus_z)
    np.exp(minus_z, out=minus_z)
    minus_z += 1
    np.divide(rise, minus_z, out=minus_z)
    if floor > 0:
        minus_z += floor
    return np.log(minus_z, out=minus_z)


LOGISTIC = LogisticModel()
