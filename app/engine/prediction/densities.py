"""Quantiles of a density on a line that is known but for a constant, by few looks at it.

The density is summed over points that are even in t, about a centre c, of x = c + s sinh t: near
the centre they are close together, and far out, where tails are, they are far apart. By the
trapezoid rule with its first correction (Euler & Maclaurin), and cubics between points, errors go
with the fourth power of their distance. Where what is found is narrower than s, or elsewhere, it is
looked at about there; where it is much wider there are heaps beside a spike, and more points.
"""

from collections.abc import Callable

import numpy as np

from app.engine.models.base import FloatArray

_LEVELS = np.array([0.025, 0.5, 0.975])
_CELLS, _MANY = 96, 384
_MOST_LOOKS = 6
#: Of the standard deviation guessed, what is found may be, for that look to be good.
_GOOD = (0.4, 4.0)
#: A heap that is narrower than so much of its distance lies between points.
_BETWEEN = 0.1
_NORMAL_WIDTH = 3.92  # of the central 95 % of a normal, in standard deviations
_STEPS = 5  # of Newton's method, on a cubic
_LEAST_SD = 1e-12


def quantiles(
    log_parts: Callable[[FloatArray], FloatArray],
    bounds: tuple[float, float],
    *,
    about: float,
    sd: float,
) -> FloatArray:
    """The 2.5 % quantile, the median and the 97.5 % quantile, shape (3,).

    Args:
        log_parts: Of points, shape (n_points,), the logarithms of what the density is the sum of,
            but for a constant, shape (n_parts, n_points).
        bounds: Of where it is not 0.
        about: Where it may have its middle.
        sd: What its standard deviation may be.
    """
    centre = min(max(about, bounds[0]), bounds[1])
    found = _looked_at(log_parts, bounds, centre, sd, _CELLS)
    for _ in range(_MOST_LOOKS):
        wide = max(float(found[2] - found[0]) / _NORMAL_WIDTH, _LEAST_SD)
        if wide > _GOOD[1] * sd:
            found = _looked_at(log_parts, bounds, centre, sd, _MANY)
            wide = max(float(found[2] - found[0]) / _NORMAL_WIDTH, _LEAST_SD)
            if wide > _BETWEEN * abs(float(found[1]) - centre):
                break
        elif wide >= _GOOD[0] * sd and abs(float(found[1]) - centre) <= sd:
            break
        centre, sd = float(found[1]), wide
        found = _looked_at(log_parts, bounds, centre, sd, _CELLS)
    return found


def _looked_at(
    log_parts: Callable[[FloatArray], FloatArray],
    bounds: tuple[float, float],
    centre: float,
    sd: float,
    cells: int,
) -> FloatArray:
    first, last = np.arcsinh((np.array(bounds) - centre) / sd)
    t, step = np.linspace(first, last, cells + 1, retstep=True)
    log_density = log_parts(centre + sd * np.sinh(t))
    density = np.exp(log_density - log_density.max()).sum(axis=0) * np.cosh(t)
    bend = np.gradient(density, float(step), edge_order=2)
    below = np.append(0.0, np.cumsum(density[1:] + density[:-1])) * (0.5 * step)
    below -= step**2 / 12.0 * (bend - bend[0])
    below = np.maximum.accumulate(below)
    wanted = _LEVELS * below[-1]
    cell = np.clip(np.searchsorted(below, wanted) - 1, 0, cells - 1)
    # In a cell a cubic with the density at both ends, from 0 to 1.
    begin, rise = below[cell], below[cell + 1] - below[cell]
    at_begin, at_end = density[cell] * step, density[cell + 1] * step
    share = np.clip((wanted - begin) / np.maximum(rise, 1e-300), 0.0, 1.0)
    square, cube = 3.0 * rise - 2.0 * at_begin - at_end, at_begin + at_end - 2.0 * rise
    for _ in range(_STEPS):
        off = begin + share * (at_begin + share * (square + share * cube)) - wanted
        slope = at_begin + share * (2.0 * square + 3.0 * share * cube)
        share = np.clip(share - off / np.maximum(slope, 1e-300), 0.0, 1.0)
    quantile: FloatArray = centre + sd * np.sinh(t[cell] + share * step)
    return quantile
