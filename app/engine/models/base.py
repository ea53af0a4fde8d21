"""What every response model can be asked.

Models are stateless. All their arguments broadcast like numpy arrays: one item on many nodes,
many items at one theta, or items x nodes with the axes laid out by the caller.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]


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

    def take(self, items: IntArray | int) -> "ItemParameters":
        """Parameters of the given positions, in their order."""
        return ItemParameters(self.a[items], self.intercept[items], self.c[items], self.d[items])

    def column(self) -> "ItemParameters":
        """The same with a last axis added: item parameters against theta nodes."""
        return ItemParameters(
            self.a[..., None], self.intercept[..., None], self.c[..., None], self.d[..., None]
        )


class LikelihoodSlope(NamedTuple):
    """Derivatives of the log-likelihood of single answers with respect to theta."""

    first: FloatArray
    second: FloatArray


class WarmTerms(NamedTuple):
    """What Warm's correction J / (2 I) needs of each item."""

    information: FloatArray
    information_slope: FloatArray
    j: FloatArray
    """P' P'' / (P Q); Warm (1989), eq. 8."""
    j_slope: FloatArray


class ResponseModel(Protocol):
    """The formula family of a bank."""

    @property
    def name(self) -> str:
        """Short name, stored with a bank version."""
        ...

    def expected_score(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Mean score in [0, 1]."""
        ...

    def score_variance(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Variance of the score at a known theta."""
        ...

    def information(self, parameters: ItemParameters, theta: FloatArray | float) -> FloatArray:
        """Fisher information about theta, 1/logit^2."""
        ...

    def item_information(self, parameters: ItemParameters, item: int, theta: float) -> float:
        """The same of the item at one position, fast: asked once in each step of a test."""
        ...

    def log_likelihood(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> FloatArray:
        """Log-likelihood of scores in [0, 1]."""
        ...

    def item_log_likelihood(
        self, parameters: ItemParameters, item: int, theta: FloatArray, score: float
    ) -> FloatArray:
        """The same of one answer on ascending nodes, fast: asked once in each step of a test."""
        ...

    def row_log_likelihood(
        self, parameters: ItemParameters, nodes: FloatArray, scores: FloatArray
    ) -> FloatArray:
        """Log-likelihood of many examinees' answers on shared nodes.

        Args:
            parameters: Of the items, shape (n_items,).
            nodes: Shape (n_nodes,).
            scores: Shape (n_rows, n_items), NaN where not answered.

        Returns:
            Shape (n_rows, n_nodes).
        """
        ...

    def likelihood_slope(
        self,
        parameters: ItemParameters,
        theta: FloatArray | float,
        scores: FloatArray | float,
    ) -> LikelihoodSlope:
        """First and second derivative of `log_likelihood` in theta."""
        ...

    def warm_terms(self, parameters: ItemParameters, theta: FloatArray | float) -> WarmTerms:
        """Information, Warm's J, and their derivatives in theta."""
        ...
