"""Intervals of mixtures of normals, one component an ability, and of Student's t."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import beta, ndtr, stdtr

from app.engine.bank import FloatArray

_LEVELS = np.array([0.025, 0.975])[:, None]
_HALVINGS = 50  # of the first bracket: as near as its numbers can tell
#: Newton's method ends with a step this short, as a share of the first bracket.
_NARROW = 1e-12
#: Newton's method takes three or four steps; where all components are spikes it bisects.
_MAX_STEPS = 100
_FARTHEST_SD = 10.0
_LEAST_SD = 1e-12


def mixture_interval(
    weights: FloatArray, mean: FloatArray, noise: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Central 95 % of a mixture of normals per row, by bisection.

    Args:
        weights: Mass of the components, shape (n_rows, n_components).
        mean: Means of the components, shape (n_rows, n_components).
        noise: Standard deviations of the components, raised to at least 1e-12, of the same shape.

    Returns:
        Lower and upper ends, shape (n_rows,) each.
    """
    noise = np.maximum(noise, _LEAST_SD)
    lowest = (mean - _FARTHEST_SD * noise).min(axis=1)
    highest = (mean + _FARTHEST_SD * noise).max(axis=1)
    lo, hi = np.stack([lowest, lowest]), np.stack([highest, highest])
    for _ in range(_HALVINGS):
        middle = 0.5 * (lo + hi)
        below = np.einsum("ij,kij->ki", weights, ndtr((middle[..., None] - mean) / noise))
        lo, hi = np.where(below < _LEVELS, middle, lo), np.where(below < _LEVELS, hi, middle)
    lower, upper = 0.5 * (lo + hi)
    return lower, upper


@dataclass(frozen=True, slots=True, eq=False)
class StudentMixture:
    """A mixture of Student's t.

    Attributes:
        middle: Centre of each component, shape (n_parts, 1).
        spread: Scale of each component, above 0, shape (n_parts, 1).
        degrees: Degrees of freedom.
        mass: Mass of each component, shape (n_parts,), summing to 1.
    """

    middle: FloatArray
    spread: FloatArray
    degrees: float
    mass: FloatArray

    def below(self, points: FloatArray) -> FloatArray:
        """Probability of less than each point."""
        found: FloatArray = self.mass @ stdtr(self.degrees, (points - self.middle) / self.spread)
        return found

    def density(self, points: FloatArray) -> FloatArray:
        """Density at each point."""
        degrees = self.degrees
        squares = ((points - self.middle) / self.spread) ** 2 / degrees
        shape = (1.0 + squares) ** (-0.5 * degrees - 0.5) / self.spread
        found: FloatArray = self.mass @ shape / (math.sqrt(degrees) * beta(0.5, 0.5 * degrees))
        return found

    def quantiles(self, levels: FloatArray, first: float, last: float) -> list[float]:
        """Quantiles of the mixture truncated to the points between `first` and `last`.

        Newton's method; a step that leaves the bracket becomes a bisection.
        """
        # For so few numbers lists are faster than arrays.
        least, most = self.below(np.array([first, last])).tolist()
        wanted = [least + level * (most - least) for level in levels.tolist()]
        lower, upper = [first] * len(wanted), [last] * len(wanted)
        found = [min(max(float(self.mass @ self.middle[:, 0]), first), last)] * len(wanted)
        for _ in range(_MAX_STEPS):
            points, longest = np.array(found), 0.0
            below, density = self.below(points).tolist(), self.density(points).tolist()
            for k, (point, aim) in enumerate(zip(points.tolist(), wanted, strict=True)):
                if below[k] < aim:
                    lower[k] = point
                else:
                    upper[k] = point
                # The density is 0 in a far tail.
                slope = density[k]
                better = point + (aim - below[k]) / slope if slope > 0.0 else math.inf
                is_good = lower[k] <= better <= upper[k]
                found[k] = better if is_good else 0.5 * (lower[k] + upper[k])
                longest = max(longest, abs(found[k] - point))
            if longest <= _NARROW * (last - first):
                break
        return found
