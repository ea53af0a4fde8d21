"""Continuous scores between two bounds: the heteroskedastic normal model.

    mean      m = c + (d - c) mu,   mu = sigmoid(z),   z = a theta + intercept = a (theta - b)
    variance  v = k (d - c)^2 mu (1 - mu)

| symbol | meaning |
|---|---|
| c, d | lowest and highest score of the item; mostly 0 and 1 |
| k | dispersion: 1 for the variance of right and wrong answers, 0.1 for a tenth of it |
| y | (score - c) / (d - c), clipped to [0, 1] |
| s, t | sigmoid(z), sigmoid(-z): a complement is computed, never subtracted |

Real scores (a judge's grades, ROUGE, F1) have such a mean and variance, but no normal shape: they
end at 0 and 1, and often lie there. So the estimators use the first two moments of the model only,
by the quasi-likelihood

    log L = (y log mu + (1 - y) log(1 - mu)) / k,      d log L / d theta = a (y - mu) / k.

Its information is the published one, a^2 mu (1 - mu) / k (there with a = 1). The variance of its
maximum is the inverse of that information, whatever the shape of the scores. It treats a score as
the share of right answers among 1 / k; with k = 1 it is the logistic model. Scores of exactly 0 and
1 need no correction, because the slope of log L is bounded.

The likelihood of the normal density itself would add a^2 (1 - 2 mu)^2 / 2 to the information of
each item, because the *spread* of a normal score depends on theta. The spread of bounded scores is
less informative, so that standard errors would be too small.

Sources: Balkir et al. (2026), arXiv 2601.13885, for mean and variance; Wedderburn (1974),
Biometrika 61, for the quasi-likelihood; Warm (1989), Psychometrika 54, eq. 8.
"""

import numpy as np

from app.engine.models.base import FloatArray, ItemParameters, Peak, Slope, WarmTerms, sigmoids

_LEAST_SHAPE = 1e-12  # shape parameter of a beta density below which all its mass is at the ends


class ContinuousModel:
    """Scores in [c, d] with a logistic mean and a variance of k times the Bernoulli one."""

    name = "continuous"
    columns = ("a", "intercept", "c", "d", "k")

    def expected_score(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Mean score."""
        a, intercept, c, d, _ = parameters
        mean: FloatArray = c + (d - c) * sigmoids(a * theta + intercept)[0]
        return mean

    def score_moments(
        self, parameters: ItemParameters, theta: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Mean, and the Bernoulli variance times k (d - c)^2: k (d - c)^2 mu (1 - mu)."""
        a, intercept, c, d, k = parameters
        s, t = sigmoids(a * theta + intercept)
        return c + (d - c) * s, k * (d - c) ** 2 * (s * t)

    def information(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """(dm/dtheta)^2 / v = a^2 mu (1 - mu) / k, whatever the bounds."""
        a, intercept, _, _, k = parameters
        s, t = sigmoids(a * theta + intercept)
        information: FloatArray = (a * a / k) * (s * t)
        return information

    def peak(self, parameters: ItemParameters) -> Peak:
        """The maximum is a^2 / (4 k), in the middle of the curve."""
        a, k = parameters.a, parameters.k
        return Peak(np.zeros_like(a), a * a / k * 0.25)

    def mutual_information(
        self, parameters: ItemParameters, nodes: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """log(1 + Var(m) / E(v)) / 2, as for normal scores of that mean and variance.

        Source: Cover & Thomas (2006), Elements of Information Theory, section 9.1.
        """
        expected, variance = self.score_moments(parameters, nodes[:, None])
        spread = weights @ (expected - weights @ expected) ** 2
        # Both vanish for an item whose curve is flat at its end; it is not informative.
        gain: FloatArray = 0.5 * np.log1p(spread / np.maximum(weights @ variance, 1e-300))
        return gain

    def draw_scores(
        self, parameters: ItemParameters, theta: float, rng: np.random.Generator
    ) -> FloatArray:
        """Beta distributed scores, which have this mean and variance within the bounds.

        Normal scores that are clipped at the bounds do not: for mu = 0.9 and k = 0.1 their mean is
        0.007 too low, and abilities shrink. No bounded score has a larger variance than that of
        k = 1; from there on one of the two bounds is drawn.
        """
        a, intercept, c, d, k = parameters
        s, t = sigmoids(a * theta + intercept)
        precision = 1 / k - 1
        share = rng.beta(
            np.maximum(s * precision, _LEAST_SHAPE), np.maximum(t * precision, _LEAST_SHAPE)
        )
        at_end = (rng.random(s.shape) < s).astype(np.float64)
        scores: FloatArray = c + (d - c) * np.where(precision > 0, share, at_end)
        return scores

    def log_likelihood(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> FloatArray:
        """`(y log mu + (1 - y) log(1 - mu)) / k`, finite at any theta."""
        a, intercept, c, d, k = parameters
        z = a * theta + intercept
        log_likelihood: FloatArray = (_share(scores, c, d) * z - _softplus(z)) / k
        return log_likelihood

    def item_log_likelihood(
        self, parameters: ItemParameters, item: int, theta: FloatArray, score: float
    ) -> FloatArray:
        """`log_likelihood` of one answer on a grid."""
        a, intercept, c, d, k = (column.item(item) for column in parameters)
        z = a * theta + intercept
        y = min(max((score - c) / (d - c), 0.0), 1.0)
        log_likelihood: FloatArray = (y * z - _softplus(z)) / k
        return log_likelihood

    def row_log_likelihood(
        self, parameters: ItemParameters, nodes: FloatArray, scores: FloatArray
    ) -> FloatArray:
        """As two matrix products: the log-likelihood is linear in the scores."""
        a, intercept, c, d, k = parameters
        z = a[:, None] * nodes + intercept[:, None]
        missing = np.isnan(scores)
        share = np.where(missing, 0.0, _share(scores, c, d)) / k
        answered = np.where(missing, 0.0, 1.0) / k
        log_likelihood: FloatArray = share @ z - answered @ _softplus(z)
        return log_likelihood

    def likelihood_slope(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> Slope:
        """The slope is a (y - mu) / k; its derivative is minus the information at any score."""
        a, intercept, c, d, k = parameters
        s, t = sigmoids(a * theta + intercept)
        y = _share(scores, c, d)
        return Slope(a / k * (y * t - (1 - y) * s), (-a * a / k) * (s * t))

    def warm_terms(self, parameters: ItemParameters, theta: FloatArray | float) -> WarmTerms:
        """I and J = a I (1 - 2 mu): the bias of the maximum is -J / (2 I^2) for this model, too."""
        a, intercept, _, _, k = parameters
        s, t = sigmoids(a * theta + intercept)
        information = (a * a / k) * (s * t)
        skew = t - s
        j = a * information * skew
        return WarmTerms(information, j, j, a * a * information * (skew * skew - 2 * (s * t)))


def _share(scores: FloatArray | float, c: FloatArray | float, d: FloatArray | float) -> FloatArray:
    """Position of scores between the bounds, clipped to [0, 1]."""
    share: FloatArray = np.clip((scores - c) / (d - c), 0.0, 1.0)
    return share


def _softplus(z: FloatArray) -> FloatArray:
    """log(1 + exp(z))."""
    softplus: FloatArray = np.maximum(z, 0.0) + np.log1p(np.exp(-np.abs(z)))
    return softplus


CONTINUOUS = ContinuousModel()
