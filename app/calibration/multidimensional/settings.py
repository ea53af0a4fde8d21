"""How a model of several abilities is fitted."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

#: Called with the iteration of a fit and its loss.
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
        dimensions: K; None takes what parallel analysis finds, up to a handful.
        method: None compares both on held-out answers.
        general_weight: lambda, of the likelihood of the general ability alone (joint, nested).
        sparsity: gamma, of the loadings' absolute values (joint).
        max_iterations: Most iterations of either method.
    """

    nested: bool = True
    dimensions: int | None = None
    method: FitMethod | None = None
    general_weight: float = 0.5
    sparsity: float = 0.5
    max_iterations: int = 400
