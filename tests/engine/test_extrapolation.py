"""Growth of errors beyond the reference models."""

import math

import pytest

from app.engine.prediction.extrapolation import growth


@pytest.mark.parametrize(
    ("position", "far"), [(0.0, 0.0), (-1.0, 0.0), (2.5, 1.5), (-4.0, 3.0), (7.0, 6.0), (90.0, 6.0)]
)
def test_errors_grow_by_a_fifth_of_a_logarithm_per_standard_deviation_beyond_one(
    position: float, far: float
) -> None:
    assert growth(position) == pytest.approx(math.e ** (far / 5.0))
