"""Interface of all response models.

Models are stateless. Arguments broadcast like numpy arrays: one item on many nodes, many items at
one theta, or items x nodes with axes that the caller lays out.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]

Z_MAX = 700.0  # exp(709.8) is the largest that float64 holds
_ONE: FloatArray = np.ones(())
_ONE.flags.writeable = False


class ItemParameters(NamedTuple):
    """Parameters of one item (numbers) or of many (arrays of one shape)."""

    a: FloatArray
    """Discrimination, 1/logit; may be negative or zero in published banks."""
    intercept: FloatArray
    """Logit of the logistic part at theta = 0; difficulty is -intercept / a."""
    c: FloatArray
    """Lower asymptote (guessing)."""
    d: FloatArray
    """Upper asymptote."""
    k: FloatArray = _ONE
    """Dispersion of continuous scores; a single 1 for models without dispersion."""

    def take(self, items: IntArray | slice | int) -> "ItemParameters":
        """Parameters of the given positions, in their order."""
        a, intercept, c, d, k = self
        return ItemParameters(
            a[items], intercept[items], c[items], d[items], k[items] if k.ndim else k
        )

    def column(self) -> "ItemParameters":
        """The parameters with a last axis added, to broadcast against theta nodes."""
        return ItemParameters(*(column[..., None] for column in self))


def sigmoids(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """sigmoid(z) and sigmoid(-z); neither is ever 0, so that ratios of them stay defined."""
    e = np.exp(np.minimum(np.maximum(-z, -Z_MAX), Z_MAX))
    s = 1 / (1 + e)
    return s, e * s


class Slope(NamedTuple):
    """First and second derivative of an objective in theta, here of the log-likelihood."""

    first: FloatArray
    second: FloatArray


class WarmTerms(NamedTuple):
    """Terms of each item in Warm's correction J / (2 I)."""

    information: FloatArray
    information_slope: FloatArray
    j: FloatArray
    """P' P'' / (P Q); Warm (1989), eq. 8."""
    j_slope: FloatArray


class Peak(NamedTuple):
    """The maximum of an item's information over theta."""

    z: FloatArray
    """Logit of the maximum, a theta + intercept."""
    information: FloatArray
    """Information at the maximum, 1/logit^2."""


class ResponseModel(Protocol):
    """The family of item curves of a bank."""

    @property
    def name(self) -> str:
        """Short name, stored with a bank version."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the parameters that its items have."""

    def expected_score(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Mean score in [0, 1]."""

    def score_moments(
        self, parameters: ItemParameters, theta: FloatArray | float
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the score at a known theta, for little more time than either."""

    def information(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Fisher information about theta, 1/logit^2."""

    def peak(self, parameters: ItemParameters) -> Peak:
        """The maximum of each item's information, which must fall monotonically on both sides.

        Log information must change at most twice as fast as z.
        """

    def mutual_information(
        self, parameters: ItemParameters, nodes: FloatArray, weights: FloatArray
    ) -> FloatArray:
        """Mutual information of theta and one answer to each item, in nats.

        Args:
            parameters: Parameters of the items, each of shape (n_items,).
            nodes: Thetas that carry the posterior, shape (n_nodes,).
            weights: Posterior mass at the nodes, shape (n_nodes,), summing to 1.

        Returns:
            Mutual information, shape (n_items,).
        """

    def draw_scores(
        self, parameters: ItemParameters, theta: float, rng: np.random.Generator
    ) -> FloatArray:
        """One answer of a simulated examinee to each item, shape (n_items,)."""

    def log_likelihood(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> FloatArray:
        """Log-likelihood of scores in [0, 1]."""

    def item_log_likelihood(
        self, parameters: ItemParameters, item: int, theta: FloatArray, score: float
    ) -> FloatArray:
        """Log-likelihood of one answer on ascending nodes; fast, as every step needs it."""

    def row_log_likelihood(
        self, parameters: ItemParameters, nodes: FloatArray, scores: FloatArray
    ) -> FloatArray:
        """Log-likelihood of many examinees' answers on shared nodes.

        Args:
            parameters: Parameters of the items, each of shape (n_items,).
            nodes: Thetas, shape (n_nodes,).
            scores: Scores, shape (n_rows, n_items), NaN where not answered.

        Returns:
            Log-likelihoods, shape (n_rows, n_nodes).
        """

    def likelihood_slope(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> Slope:
        """First and second derivative of `log_likelihood` in theta."""

    def warm_terms(self, parameters: ItemParameters, theta: FloatArray | float) -> WarmTerms:
        """Information, Warm's J, and their derivatives in theta."""
