"""Settings of the fit of a model of several abilities."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

#: Callback that gets the number of each iteration of a fit, and its loss.
Watch = Callable[[int, float], None]


class FitMethod(StrEnum):
    """How the model is fitted."""

    JOINT = "joint"
    VARIATIONAL = "variational"


@dataclass(frozen=True, slots=True, kw_only=True)
class MultidimensionalSettings:
    """How a multidimensional bank is calibrated.

    Attributes:
        nested: Whether there is a general ability beside the dimensions.
        dimensions: Number of dimensions K; None takes it from parallel analysis, at most 4.
        method: Method of the fit; None compares both on held-out answers.
        general_weight: Weight lambda of the likelihood by the general ability (joint, nested).
        sparsity: Weight gamma of the penalty on the loadings' absolute values (joint).
        max_iterations: Most iterations of either method.
    """

    nested: bool = True
    dimensions: int | None = None
    method: FitMethod | None = None
    general_weight: float = 0.5
    sparsity: float = 0.5
    max_iterations: int = 400
