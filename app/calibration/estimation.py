"""Figures of a finished estimation, whatever its response model."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Estimation:
    """Figures that the estimation of any response model has.

    Attributes:
        log_likelihood: Marginal log-likelihood of all answers, without the prior.
        n_parameters: Number of parameters, or their effective number.
        cycles: Number of E-steps, or iterations.
    """

    log_likelihood: float
    n_parameters: float
    n_examinees: int
    n_answers: int
    converged: bool
    cycles: int
    warnings: tuple[str, ...] = ()

    @property
    def aic(self) -> float:
        """Akaike's criterion; lower is better."""
        return 2 * self.n_parameters - 2 * self.log_likelihood

    @property
    def bic(self) -> float:
        """Schwarz's criterion with the number of examinees; lower is better."""
        return float(self.n_parameters * np.log(self.n_examinees) - 2 * self.log_likelihood)

    def figures(self) -> dict[str, Any]:
        """The figures as JSON, without the warnings."""
        return {
            "scored_answers": self.n_answers,
            "log_likelihood": self.log_likelihood,
            "n_parameters": round(self.n_parameters),
            "aic": self.aic,
            "bic": self.bic,
            "iterations": self.cycles,
            "converged": self.converged,
        }
