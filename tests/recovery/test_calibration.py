"""Recovery of simulated banks: errors near their theoretical minimum, and intervals that hold.

Simulation studies of marginal maximum likelihood judge it by the same two figures. Drasgow (1989),
Applied Psychological Measurement 13, finds 2PL errors at the level of the asymptotic standard
errors from 200 examinees on; Mislevy (1986), Psychometrika 51, needs priors for the 3PL, and
Loken & Rulison (2010), BJMSP 63, and Do (2021, Ohio University), for the 4PL, whose asymptotes they
recover from some thousand examinees on; Paek & Cai (2014), Educational and Psychological
Measurement 74, find coverage of observed-information intervals within a few percent of nominal.

So the root mean square of (estimate - truth) / se must be about 1, which bounds both the RMSE and
the standard errors, and 95 % intervals must cover 90 to 97 % of the parameters.
"""

from typing import NamedTuple

import numpy as np
import pytest

from app.calibration.logistic.calibrate import Calibration, CalibrationSettings, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.logistic.uncertainty import Interval
from app.engine.models.base import FloatArray
from tests.calibration.simulated import Simulated, simulate


class _Recovered(NamedTuple):
    covered: FloatArray
    standardised: FloatArray
    error: FloatArray


def _one(
    name: str, truth: FloatArray, estimate: FloatArray, interval: Interval, common: bool
) -> _Recovered:
    known = np.isfinite(interval.lo)
    if common:
        known[1:] = False  # a single slope, though all items share it
    # The interval is symmetric on the scale on which the estimate is nearest to normal.
    lo, hi, t, e = (_to_normal(name, v[known]) for v in (interval.lo, interval.hi, truth, estimate))
    return _Recovered(
        ((lo <= t) & (t <= hi)).astype(float), (e - t) / ((hi - lo) / (2 * 1.96)), e - t
    )


def _to_normal(name: str, values: FloatArray) -> FloatArray:
    if name == "a":
        return np.log(values)
    return values if name == "b" else np.log(values / (1 - values))


def _recovered(data: Simulated, result: Calibration, family: Family) -> dict[str, _Recovered]:
    assert result.errors is not None
    errors, is_common = result.errors, family is Family.RASCH
    found = {
        "a": _one("a", data.items.a, result.items.a, errors.interval_a(), common=is_common),
        "b": _one("b", data.b, result.b, errors.interval_b(), common=False),
    }
    if family in (Family.THREE_PL, Family.FOUR_PL):
        found["c"] = _one("c", data.items.c, result.items.c, errors.interval_c(), common=False)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "n_examinees", "n_items", "missing", "replications"),
    [
        (Family.RASCH, 500, 30, 0.0, 25),
        (Family.RASCH, 1000, 40, 0.7, 5),
        (Family.TWO_PL, 500, 30, 0.0, 12),
        (Family.TWO_PL, 1000, 30, 0.3, 6),
        (Family.TWO_PL, 2000, 40, 0.7, 4),
        (Family.THREE_PL, 1000, 40, 0.0, 4),
        (Family.THREE_PL, 2000, 40, 0.3, 5),
        (Family.THREE_PL, 4000, 40, 0.7, 4),
        (Family.FOUR_PL, 4000, 40, 0.0, 2),
    ],
)
def test_parameters_are_recovered_and_their_intervals_hold(
    family: Family, n_examinees: int, n_items: int, missing: float, replications: int
) -> None:
    parts: dict[str, list[_Recovered]] = {}
    for replication in range(replications):
        data = simulate(1000 + replication, family, n_examinees, n_items, missing)
        result = calibrate(data.matrix, CalibrationSettings(family=family))
        assert result.converged
        for name, recovered in _recovered(data, result, family).items():
            parts.setdefault(name, []).append(recovered)
    covered = np.concatenate([part.covered for found in parts.values() for part in found])
    assert 0.90 <= covered.mean() <= 0.97
    for name, found in parts.items():
        z = np.concatenate([part.standardised for part in found])
        if len(z) < 100:
            continue  # the common slope of the 1PL: too few values for a separate figure
        assert 0.75 < np.sqrt(np.mean(z**2)) < 1.2, name
        assert np.mean([part.covered.mean() for part in found]) > 0.90, name


@pytest.mark.slow
def test_errors_shrink_with_the_root_of_the_number_of_examinees() -> None:
    rmse = []
    for n_examinees in (500, 2000):
        errors = []
        for replication in range(6):
            data = simulate(replication, Family.TWO_PL, n_examinees, 30)
            errors.append(calibrate(data.matrix).b - data.b)
        rmse.append(np.sqrt(np.mean(np.median(np.square(errors), axis=1))))
    assert rmse[0] / rmse[1] == pytest.approx(2, rel=0.3)
