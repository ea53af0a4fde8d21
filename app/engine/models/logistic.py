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

from app.engine.models.base import FloatArray, ItemParameters, LikelihoodSlope, WarmTerms

# Keeps ratios such as s / P defined where the sigmoid underflows (|z| > 745).
_SMALLEST = 1e-300


class _Parts(NamedTuple):
    s: FloatArray
    t: FloatArray
    w: FloatArray
    v: FloatArray


class LogisticModel:
    """1PL to 4PL: fewer parameters are the same formula with c = 0, d = 1 or equal slopes."""

    name = "logistic"

    def expected_score(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Probability of a right answer."""
        a, intercept, c, d = parameters
        probability: FloatArray = c + (d - c) * _sigmoid(a * theta + intercept)
        return probability

    def score_variance(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """P Q, the Bernoulli variance."""
        a, intercept, c, d = parameters
        z = a * theta + intercept
        variance: FloatArray = (c + (d - c) * _sigmoid(z)) * ((1 - d) + (d - c) * _sigmoid(-z))
        return variance

    def information(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Fisher information (dP/dtheta)^2 / (P Q), in its true 3PL/4PL form.

        Source: Hambleton, Swaminathan & Rogers (1991), eq. 6.2.
        """
        s, t, w, v = self._parts(parameters, theta)
        information: FloatArray = parameters.a**2 * (s * t) * (w * v)
        return information

    def log_likelihood(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> FloatArray:
        """`score log P + (1 - score) log Q`, finite at any theta.

        P = (c + d e^z) / (1 + e^z) and Q = ((1 - c) + (1 - d) e^z) / (1 + e^z), in log space.
        """
        a, intercept, c, d = parameters
        z = a * theta + intercept
        right = np.equal(scores, 1)
        with np.errstate(divide="ignore"):  # log 0 = -inf: that term of the sum is absent
            if np.all(right | np.equal(scores, 0)):
                low, high = np.where(right, c, 1 - c), np.where(right, d, 1 - d)
                log_odds: FloatArray = np.logaddexp(np.log(low), np.log(high) + z)
            else:
                log_odds = scores * np.logaddexp(np.log(c), np.log(d) + z)
                log_odds += np.subtract(1, scores) * np.logaddexp(np.log(1 - c), np.log(1 - d) + z)
        return log_odds - np.logaddexp(0.0, z)

    def likelihood_slope(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> LikelihoodSlope:
        """Derivatives of the log-likelihood; minus the second is the observed information."""
        s, t, w, v = self._parts(parameters, theta)
        a = parameters.a
        right, wrong = np.asarray(scores), 1 - np.asarray(scores)
        first = a * (right * (t * w) - wrong * (s * v))
        second = a**2 * (right * (t * w) * (t * (1 - w) - s) - wrong * (s * v) * (t - s * (1 - v)))
        return LikelihoodSlope(first, second)

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
        a, intercept, c, d = parameters
        z = a * theta + intercept
        s = np.maximum(_sigmoid(z), _SMALLEST)
        t = np.maximum(_sigmoid(-z), _SMALLEST)
        rise = d - c
        return _Parts(s, t, rise * s / (c + rise * s), rise * t / ((1 - d) + rise * t))


def _sigmoid(z: FloatArray) -> FloatArray:
    # exp(-|z|) cannot overflow, and numpy vectorises it where scipy's expit is not.
    small = np.exp(-np.abs(z))
    sigmoid: FloatArray = np.where(np.less(z, 0), small, 1.0) / (1 + small)
    return sigmoid


LOGISTIC = LogisticModel()
