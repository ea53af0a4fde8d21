"""Recovery of the parameters of simulated banks, and coverage of their intervals.

Banks of 40 items as simulation studies draw them (log-normal a, normal b, beta c and d), calibrated
as `sextant calibrate` does by default, with and without its filters. RMSE in logits (a, b) and
points (c); coverage of the 95 % intervals over all parameters.

    uv run python benchmarks/recovery.py [--replications 6] [--model 1pl ...]
"""

import argparse
import time
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from app.calibration.filters import FilterSettings
from app.calibration.logistic.calibrate import Calibration, calibrate
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.fit import decided, prepared
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.models.base import FloatArray, ItemParameters
from app.engine.responses import ResponseTable

N_ITEMS = 40
SIZES = ((500, 0.0), (1000, 0.0), (1000, 0.3), (2000, 0.0), (2000, 0.7), (4000, 0.0), (4000, 0.7))


class Simulated(NamedTuple):
    items: ItemParameters
    table: ResponseTable


class Found(NamedTuple):
    errors: FloatArray
    covered: FloatArray


def simulate(seed: int, family: Family, n_examinees: int, missing: float) -> Simulated:
    """Return a bank and answers to it."""
    rng = np.random.default_rng(seed)
    a = np.exp(rng.normal(0.2, 0.35, N_ITEMS)) if family is not Family.RASCH else np.ones(N_ITEMS)
    b = rng.normal(0.0, 1.0, N_ITEMS)
    guessing = family in (Family.THREE_PL, Family.FOUR_PL)
    c = rng.beta(8, 32, N_ITEMS) if guessing else np.zeros(N_ITEMS)
    d = 1 - rng.beta(4, 60, N_ITEMS) if family is Family.FOUR_PL else np.ones(N_ITEMS)
    theta = rng.normal(size=(n_examinees, 1))
    p = c + (d - c) * expit(a * (theta - b))
    scores = (rng.random(p.shape) < p).astype(float)
    scores[rng.random(p.shape) < missing] = np.nan
    names = tuple(map(str, range(n_examinees))), tuple(map(str, range(N_ITEMS)))
    return Simulated(ItemParameters(a, -a * b, c, d), ResponseTable(*names, scores))


def calibrated(data: Simulated, plan: CalibrationPlan) -> tuple[FloatArray, Calibration]:
    """Return positions of the items that passed the filters, and their calibration."""
    matrix = prepared(data.table, plan).matrix
    return np.array([int(item) for item in matrix.items]), calibrate(
        matrix, decided(matrix, plan).settings()
    )


def compared(data: Simulated, plan: CalibrationPlan) -> dict[str, Found]:
    kept, result = calibrated(data, plan)
    errors = result.known_errors
    sides = {
        "a": (data.items.a, result.items.a, errors.a),
        "b": (-data.items.intercept / data.items.a, result.b, errors.b),
        "c": (data.items.c, result.items.c, errors.c),
    }
    found = {}
    for name, (truth, estimate, se) in sides.items():
        known = np.isfinite(se)
        if plan.model == "1pl" and name == "a":
            known[1:] = False  # a single slope, though all items share it
        true, found_at, error = truth[kept][known], estimate[known], se[known]
        distance = found_at - true
        # Intervals are symmetric in log a, where slopes are positive, and in logit c.
        if name == "a" and errors.curves.log_slope:
            distance, error = np.log(found_at / true), error / found_at
        if name == "c":
            distance, error = logit(found_at) - logit(true), error / (found_at * (1 - found_at))
        if known.any():
            covered = np.abs(distance) <= 1.96 * error
            found[name] = Found(found_at - true, covered.astype(float))
    return found


def show(
    family: Family, n_examinees: int, missing: float, filters: bool, replications: int
) -> None:
    plan = CalibrationPlan(
        model=family.value, filters=FilterSettings() if filters else FilterSettings.none()
    )
    started = time.perf_counter()
    runs = [
        compared(simulate(1000 + seed, family, n_examinees, missing), plan)
        for seed in range(replications)
    ]
    seconds = (time.perf_counter() - started) / replications
    parts = []
    every = []
    for name in runs[0]:
        errors = np.concatenate([run[name].errors for run in runs])
        covered = np.concatenate([run[name].covered for run in runs])
        every.append(covered)
        parts.append(f"{name} {np.sqrt(np.mean(errors**2)):.3f} ({covered.mean():.0%})")
    label = "filters" if filters else "none"
    print(
        f"{family.value}  {n_examinees:5d}  {missing:4.0%} missing  {label:7}  "
        f"coverage {np.concatenate(every).mean():.1%}  {seconds:4.1f} s  RMSE " + "  ".join(parts),
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=6)
    parser.add_argument("--model", nargs="*", choices=list(Family), default=list(Family))
    options = parser.parse_args()
    for family in map(Family, options.model):
        for n_examinees, missing in SIZES:
            for filters in (True, False):
                show(family, n_examinees, missing, filters, options.replications)


if __name__ == "__main__":
    main()
