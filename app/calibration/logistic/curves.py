"""Response curves in the unconstrained coordinates that calibration estimates.

| symbol | meaning | shape |
|---|---|---|
| x | coordinates of the items | (n_items, 4) |
| x[:, SLOPE] | log a, or a itself where slopes may be negative | |
| x[:, INTERCEPT] | logit of the logistic part at theta = 0 | |
| x[:, GUESSING] | logit c | |
| x[:, CEILING] | logit u, u = (d - c) / (1 - c): c < d holds by itself | |
| s | sigmoid(a theta + intercept) | (n_items, n_nodes) |

P = c + (1 - c) u s and, computed as the complement, Q = (1 - c) ((1 - u) + u (1 - s)).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.special import expit, logit

from app.engine.models.base import FloatArray, ItemParameters

SLOPE, INTERCEPT, GUESSING, CEILING = range(4)
N_COORDINATES = 4

MAX_LOGIT = 500.0  # exp(-500) is still a normal float64, so logarithms stay finite
MAX_SLOPE = 50.0  # beyond, a curve is a step between two nodes and the likelihood is flat
MAX_INTERCEPT = 400.0
MAX_ASYMPTOTE_LOGIT = 10.0  # an asymptote of 0.00005 cannot be told from none
MIN_LOG_SLOPE = -6.0
OFF = 1e3  # logit of an asymptote that the family does not have: exactly 0 or 1 in float64


class Family(StrEnum):
    """Response model families that marginal maximum likelihood calibrates."""

    RASCH = "1pl"
    TWO_PL = "2pl"
    THREE_PL = "3pl"
    FOUR_PL = "4pl"

    @property
    def free(self) -> tuple[int, ...]:
        """Coordinates that each item has for itself; the 1PL's slope is common to all."""
        return {
            Family.RASCH: (INTERCEPT,),
            Family.TWO_PL: (SLOPE, INTERCEPT),
            Family.THREE_PL: (SLOPE, INTERCEPT, GUESSING),
            Family.FOUR_PL: (SLOPE, INTERCEPT, GUESSING, CEILING),
        }[self]

    def n_parameters(self, n_items: int) -> int:
        """Number of parameters of a bank."""
        return n_items * len(self.free) + (1 if self is Family.RASCH else 0)


@dataclass(frozen=True, slots=True)
class Curves:
    """Items in unconstrained coordinates; `log_slope` says whether the slope is log a or a."""

    x: FloatArray
    log_slope: bool

    @property
    def a(self) -> FloatArray:
        """Discriminations, shape (n_items,)."""
        slope: FloatArray = self.x[:, SLOPE]
        return np.exp(slope) if self.log_slope else slope

    def natural(self) -> ItemParameters:
        """Convert to a, intercept, c and d."""
        c = expit(self.x[:, GUESSING])
        # The complement makes d exactly 1 in the families without an upper asymptote.
        d = 1 - (1 - c) * expit(-self.x[:, CEILING])
        return ItemParameters(self.a, self.x[:, INTERCEPT].copy(), c, d)

    @classmethod
    def from_natural(cls, items: ItemParameters, *, log_slope: bool) -> "Curves":
        """Coordinates of given items; asymptotes at 0 and 1 become `OFF`."""
        x = np.empty((len(items.a), N_COORDINATES))
        x[:, SLOPE] = np.log(items.a) if log_slope else items.a
        x[:, INTERCEPT] = items.intercept
        with np.errstate(divide="ignore"):
            x[:, GUESSING] = np.clip(logit(items.c), -OFF, OFF)
            x[:, CEILING] = np.clip(logit((items.d - items.c) / (1 - items.c)), -OFF, OFF)
        return cls(x=x, log_slope=log_slope)


def bounds(*, log_slope: bool) -> tuple[FloatArray, FloatArray]:
    """Lower and upper bounds of the coordinates in estimation, shape (4,) each."""
    steepest = np.log(MAX_SLOPE) if log_slope else MAX_SLOPE
    low = MIN_LOG_SLOPE if log_slope else -MAX_SLOPE
    return (
        np.array([low, -MAX_INTERCEPT, -MAX_ASYMPTOTE_LOGIT, -MAX_ASYMPTOTE_LOGIT]),
        np.array([steepest, MAX_INTERCEPT, MAX_ASYMPTOTE_LOGIT, MAX_ASYMPTOTE_LOGIT]),
    )


def probabilities(items: ItemParameters, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P and Q of each item at each node, shape (n_items, n_nodes); neither is ever 0."""
    s, s_complement = _sigmoids(items.a, items.intercept, theta)
    span = (items.d - items.c)[:, None]
    return items.c[:, None] + span * s, (1 - items.d)[:, None] + span * s_complement


def slopes_of_curves(
    curves: Curves, theta: FloatArray, columns: Sequence[int]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """P and Q, shape (n_items, n_nodes), and dP/dx, shape (n_items, len(columns), n_nodes)."""
    x = curves.x
    s, s_complement = _sigmoids(curves.a, x[:, INTERCEPT], theta)
    c, c_complement = expit(x[:, GUESSING, None]), expit(-x[:, GUESSING, None])
    u, u_complement = expit(x[:, CEILING, None]), expit(-x[:, CEILING, None])
    q = c_complement * u * s_complement + c_complement * u_complement
    p = c_complement * u * s + c
    by_logit = (c_complement * u) * s * s_complement
    derivatives = np.empty((len(p), len(columns), len(theta)))
    for place, column in enumerate(columns):
        into = derivatives[:, place]
        if column == SLOPE:
            by_slope = theta * curves.a[:, None] if curves.log_slope else theta
            np.multiply(by_logit, by_slope, out=into)
        elif column == INTERCEPT:
            into[...] = by_logit
        elif column == GUESSING:
            np.multiply(q, c, out=into)
        else:
            np.multiply(s, c_complement * u * u_complement, out=into)
    return p, q, derivatives


def _sigmoids(
    a: FloatArray, intercept: FloatArray, theta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """sigmoid(a theta + intercept) and its complement from one exponential."""
    z = np.clip(a[:, None] * theta + intercept[:, None], -MAX_LOGIT, MAX_LOGIT)
    small = np.exp(-np.abs(z))
    large = 1 / (1 + small)
    small *= large
    rising = z >= 0
    return np.where(rising, large, small), np.where(rising, small, large)
