"""Quantiles of a density by few looks, against its integral by very many."""

import numpy as np
import pytest
from scipy.special import expit

from app.engine.models.base import FloatArray
from app.engine.prediction.densities import quantiles


@pytest.mark.parametrize(
    ("score", "sd", "least", "most", "drawn"),
    [
        (0.5, 0.0005, 0.0, 1.0, None),
        (0.995, 0.0005, 0.0, 1.0, None),
        (0.995, 0.004, 0.2, 0.997, None),
        (0.8, 0.1, 0.02, 0.99, None),
        (0.3, 0.02, 0.29, 0.31, None),
        (0.9, 0.05, 0.2, 0.85, None),
        (0.92, 0.03, 0.06, 0.997, (0.08, 0.04)),
        (0.92, 0.03, 0.06, 0.997, (-0.4, 0.04)),
        # Two heaps, one of them a spike; and one that is narrow and far away.
        (0.58, 0.00065, 0.03, 0.87, (0.123, 0.04)),
        (0.5, 0.0005, 0.0, 1.0, (0.2, 0.0006)),
    ],
)
def test_quantiles_are_those_of_a_fine_integral(
    score: float, sd: float, least: float, most: float, drawn: tuple[float, float] | None
) -> None:
    middle, scale = np.log(score / (1 - score)), sd / (score * (1 - score))
    total = np.array([[0.5], [1.0], [3.0], [(scale + 0.9) ** 2 / scale**2]]) * scale**2
    share = np.array([[0.4], [0.4], [0.19], [0.01]])

    def log_parts(x: FloatArray) -> FloatArray:
        found: FloatArray = np.log(share / np.sqrt(total)) - 0.5 * (x - middle) ** 2 / total
        if drawn is not None:
            bias = np.maximum(1.0 - 0.5 * scale**2 / total, 0.0)
            off = drawn[0] - bias * (expit(x) - score)
            found -= 0.5 * off**2 / (drawn[1] ** 2 + bias * (1.0 - bias) * total / 16.0)
        return found

    ends = np.clip([least, most], 1e-9, 1 - 1e-9)
    first, last = np.log(ends / (1 - ends)).tolist()
    told = quantiles(log_parts, (first, last), about=middle, sd=scale)
    # Fine everywhere that the density may have its mass, and finest where that is a spike.
    x = np.linspace(first, last, 300_001)
    about = np.clip(middle + scale * np.linspace(-30.0, 30.0, 60_001), first, last)
    near = np.clip(told[1] + (told[2] - told[0]) * np.linspace(-10.0, 10.0, 60_001), first, last)
    x = np.unique(np.concatenate([x, about, near]))
    log_density = log_parts(x)
    density = np.exp(log_density - log_density.max()).sum(axis=0)
    below = np.append(0.0, np.cumsum((density[1:] + density[:-1]) * np.diff(x)))
    expected = expit(np.interp([0.025, 0.5, 0.975], below / below[-1], x))
    width = expected[2] - expected[0]
    np.testing.assert_allclose(expit(told), expected, rtol=0.0, atol=5e-4 * width)
