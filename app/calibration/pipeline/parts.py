"""Calibration in parts, which are fitted separately, stored and joined. Pure."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.calibration.linking.partition import calibrate_part, join_parts, parts_of
from app.calibration.logistic.calibrate import Calibration
from app.calibration.logistic.curves import N_COORDINATES, Curves, Family
from app.calibration.logistic.expectation import LatentDensity
from app.calibration.logistic.uncertainty import ParameterErrors
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import Fitted, Report, measured, measuring
from app.calibration.pipeline.logistic import judged, watching
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.models.base import FloatArray, IntArray, ItemParameters
from app.errors import CalibrationError

_PARAMETERS = ("a", "intercept", "c", "d")
_COORDINATES = range(N_COORDINATES)
_FIGURES = ("log_likelihood", "n_parameters", "n_examinees", "n_answers", "converged", "cycles")


@dataclass(frozen=True, slots=True, eq=False)
class FittedPart:
    """Stored result of one part.

    Attributes:
        keys: Keys of the part's items.
        figures: Figures of the part, as JSON.
        columns: Parameters, coordinates and their covariance, each of shape (n_items,).
    """

    keys: tuple[str, ...]
    figures: dict[str, Any]
    columns: dict[str, FloatArray]


def parts_for(matrix: ScoreMatrix, plan: CalibrationPlan) -> tuple[IntArray, ...]:
    """Positions of each part's items, which depend on the answers and the plan alone."""
    if plan.partition_size is None:
        return ()
    items = np.flatnonzero(measuring(matrix, plan))
    return tuple(items[part] for part in _dealt(measured(matrix, plan), plan.partition_size, plan))


def _dealt(matrix: ScoreMatrix, size: int, plan: CalibrationPlan) -> tuple[IntArray, ...]:
    return parts_of(matrix, size, np.random.default_rng(plan.seed))


def fit_part(matrix: ScoreMatrix, plan: CalibrationPlan, number: int, report: Report) -> Fitted:
    """Calibrate one part.

    Raises:
        CalibrationError: Answers without information.
    """
    report({"phase": "calibrating"})
    everything = np.arange(matrix.n_items)
    found = calibrate_part(matrix, plan.settings(), everything, number, watch=watching(report))
    errors = found.known_errors
    figures = {
        **{name: getattr(found, name) for name in _FIGURES},
        "guessing_sd": found.guessing_sd,
        "scale": found.scale,
        "warnings": list(found.warnings),
        "nodes": found.density.nodes.tolist(),
        "weights": found.density.weights.tolist(),
        "method": errors.method,
        "log_slope": errors.curves.log_slope,
    }
    columns = {name: getattr(found.items, name) for name in _PARAMETERS}
    for i in _COORDINATES:
        columns[f"x{i}"] = errors.curves.x[:, i]
        columns[f"estimated{i}"] = errors.estimated[:, i].astype(np.float64)
        for j in _COORDINATES:
            columns[f"covariance{i}{j}"] = errors.covariance[:, i, j]
    return Fitted(figures, columns, {})


def fit_joined(
    matrix: ScoreMatrix, plan: CalibrationPlan, fitted: Sequence[FittedPart], report: Report
) -> Fitted:
    """Join the parts on the scale of the first part, and examine the fit of the whole.

    Raises:
        CalibrationError: The parts share too few examinees.
    """
    report({"phase": "joining"})
    results = [_calibration(part, plan) for part in fitted]
    own = measured(matrix, plan)
    parts = _dealt(own, plan.partition_size or own.n_items, plan)
    return judged(own, plan, join_parts(own, plan.settings(), parts, results), report, matrix)


def digest_of(matrix: ScoreMatrix) -> str:
    """Hash of the answers, which must be the same for all parts of a calibration."""
    names = json.dumps([matrix.examinees, matrix.items]).encode()
    return hashlib.sha256(names + b"\n" + matrix.scores.tobytes()).hexdigest()


def require_same_answers(parts: Sequence[FittedPart], digest: str) -> None:
    """Refuse to join parts that were fitted to other answers than the present ones.

    Raises:
        CalibrationError: A part has another digest.
    """
    if any(part.figures["answers"] != digest for part in parts):
        raise CalibrationError(
            "The answers changed while their parts were calibrated: calibrate them again."
        )


def _calibration(part: FittedPart, plan: CalibrationPlan) -> Calibration:
    figures, columns = part.figures, part.columns
    x = np.stack([columns[f"x{i}"] for i in _COORDINATES], axis=1)
    covariance = np.array(
        [[columns[f"covariance{i}{j}"] for j in _COORDINATES] for i in _COORDINATES]
    )
    return Calibration(
        family=Family(plan.model),
        items=ItemParameters(**{name: columns[name] for name in _PARAMETERS}),
        item_ids=part.keys,
        density=LatentDensity(np.array(figures["nodes"]), np.array(figures["weights"])),
        errors=ParameterErrors(
            figures["method"],
            Curves(x, figures["log_slope"]),
            covariance.transpose(2, 0, 1),
            np.stack([columns[f"estimated{i}"] for i in _COORDINATES], axis=1) > 0,
        ),
        free_density=plan.estimate_density,
        guessing_sd=figures["guessing_sd"],
        scale=figures["scale"],
        warnings=tuple(figures["warnings"]),
        **{name: figures[name] for name in _FIGURES},
    )
