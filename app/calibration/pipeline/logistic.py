"""Calibrates the 1PL to 4PL, also in parts that are fitted separately, stored and joined."""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from app.calibration.filters import MEASURING, Filtered, apply_filters, rest_correlations
from app.calibration.fit.goodness import goodness_of_fit
from app.calibration.fit.held_out import Blind
from app.calibration.fit.item_fit import ItemFit, copies_warning, item_fit, local_dependence
from app.calibration.linking.linked import (
    Linked,
    calibrate_in_parts,
    calibrate_linked,
    calibrate_part,
    join_parts,
    linked,
    parts_of,
)
from app.calibration.logistic.beliefs import (
    PROVISIONAL,
    ItemBeliefs,
    after_answers,
    calibrate_beliefs,
    prepared_for_beliefs,
)
from app.calibration.logistic.calibrate import (
    Calibration,
    CalibrationSettings,
    compare_families,
)
from app.calibration.logistic.curves import N_COORDINATES, Curves, Family
from app.calibration.logistic.em import Progress
from app.calibration.logistic.expectation import LatentDensity
from app.calibration.logistic.uncertainty import ParameterErrors
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.calibrator import (
    BinaryCalibrator,
    Fitted,
    Report,
    flat_curves,
    measured,
    measuring,
    replaced,
    with_others,
)
from app.calibration.pipeline.drift import DriftCheck, drift_figures, prepared_with_drift
from app.calibration.pipeline.plan import LEAST_OF_4PL, CalibrationPlan, LinkPlan, link_for
from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters
from app.engine.models.logistic import LOGISTIC
from app.engine.responses import ResponseTable
from app.errors import CalibrationError

_BEYOND_CHANCE = 3.0  # standard errors, exceeded by chance for one item in a thousand
_COORDINATES = range(N_COORDINATES)
_FIGURES = ("log_likelihood", "n_parameters", "n_examinees", "n_answers", "converged", "cycles")


class LogisticCalibrator(BinaryCalibrator):
    """Calibrates the 1PL to 4PL: linked, in parts, from beliefs, and with a check for drift."""

    @override
    def prepared(self, table: ResponseTable, plan: CalibrationPlan) -> Filtered[ScoreMatrix]:
        matrix = self.matrix(table.scores, examinees=table.examinees, items=table.items)
        if plan.beliefs is not None:
            return prepared_for_beliefs(matrix, plan.beliefs)
        if plan.checks_drift:
            filtered = prepared_with_drift(matrix, plan)
            link_for(filtered.matrix, plan)
            return filtered
        filtered = apply_filters(matrix, plan.filters)
        own = measured(filtered.matrix, plan)
        filtered.require_two(own.n_items)
        own.require_calibratable()
        link_for(own, plan)
        return filtered

    @override
    def decided(self, matrix: ScoreMatrix, plan: CalibrationPlan) -> CalibrationPlan:
        """Decide whether slopes may be negative, if the plan leaves it open.

        They may if an item that passed the filters correlates negatively with the rest by more than
        chance. Otherwise slopes are estimated more precisely as positive.

        Raises:
            CalibrationError: A 4PL from too few examinees.
        """
        few = matrix.n_examinees < LEAST_OF_4PL and not plan.allow_few
        if plan.model == Family.FOUR_PL and few:
            raise CalibrationError(
                f"So few models cannot identify a 4PL: expected at least {LEAST_OF_4PL}, got "
                f"{matrix.n_examinees}. Take the 3pl, or give --allow-few (allow_few over REST)."
            )
        if plan.negative_slopes is not None:
            return plan
        least = plan.filters.least_point_biserial
        if plan.model == Family.RASCH or (least is not None and least >= 0):
            return replace(plan, negative_slopes=False)
        error = 1 / np.sqrt(np.maximum(matrix.answers_per_item(), 1))
        falling = rest_correlations(matrix) < -_BEYOND_CHANCE * error
        return replace(plan, negative_slopes=bool(falling.any()))

    @override
    def fit(self, matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
        report({"phase": "calibrating"})
        if plan.checks_drift:
            return _fit_checked(matrix, plan, report)
        if plan.beliefs is not None:
            return _fit_beliefs(matrix, plan, plan.beliefs, report)
        own = measured(matrix, plan)
        found = _calibrated(own, plan, plan.settings(), watching(report))
        return judged(own, plan, found, report, matrix)

    @override
    def taught_by(
        self,
        matrix: ScoreMatrix,
        known: BoolArray,
        plan: CalibrationPlan,
        fitted: Fitted,
        bank: ItemBank,
    ) -> Blind:
        measure = measuring(matrix, plan)
        taught = matrix.select(examinees=known, items=measure)
        part = apply_filters(taught, MEASURING).matrix
        found = _calibrated(part, plan, replace(plan.settings(), with_errors=False)).calibration
        blind = replaced(bank, part.items, found.items)
        if not measure.all():
            beside = matrix.select(examinees=np.isin(matrix.examinees, part.examinees))
            beside = beside.select(items=~measure & (beside.answers_per_item() > 0))
            blind = replaced(blind, beside.items, flat_curves(beside))
        return Blind(bank=blind)


def _calibrated(
    matrix: ScoreMatrix,
    plan: CalibrationPlan,
    settings: CalibrationSettings,
    watch: Callable[[Progress], None] | None = None,
) -> Linked:
    """Calibrate at once or in parts, and link the result, as the plan says."""
    if plan.partition_size is not None:
        rng = np.random.default_rng(plan.seed)
        joined = calibrate_in_parts(matrix, settings, plan.partition_size, rng)
        return linked(joined, link_for(matrix, plan))
    return calibrate_linked(matrix, link_for(matrix, plan), settings, watch=watch)


def judged(
    matrix: ScoreMatrix,
    plan: CalibrationPlan,
    found: Linked,
    report: Report,
    whole: ScoreMatrix | None = None,
) -> Fitted:
    """Examine the fit of a calibration, and collect what is stored.

    Items of `whole` that are not in `matrix` count in scores alone, and get flat curves.
    """
    calibration = found.calibration
    report({"phase": "checking_fit", "cycle": calibration.cycles})
    dependence = local_dependence(matrix, calibration)
    copies = copies_warning(matrix, calibration, dependence)
    figures = {
        **calibration.figures(),
        "guessing_sd": calibration.guessing_sd,
        "fit": goodness_of_fit(matrix, calibration).to_dict(),
        "local_dependence": asdict(dependence),
        "warnings": [*calibration.warnings, *([copies] if copies else [])],
        "comparison": _comparison(matrix, plan, report),
        "link": _link(found, plan),
    }
    columns = _columns(calibration, item_fit(matrix, calibration))
    if whole is not None and whole.n_items > matrix.n_items:
        inside = np.isin(whole.items, matrix.items)
        same = whole.select(examinees=np.isin(whole.examinees, matrix.examinees), items=~inside)
        columns = with_others(columns, inside, flat_curves(same))
    return Fitted(figures, columns, {})


def _fit_checked(matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate with the old items that did not drift as fixed anchors."""
    check = DriftCheck.of(matrix, plan)
    part, rest = check.part, check.part_plan
    found = _calibrated(part, rest, rest.settings(), watching(report))
    fitted = judged(part, rest, found, report)
    figures = fitted.figures | {"drift": drift_figures(check.drift)}
    return Fitted(figures, check.whole(fitted.columns), fitted.knowledge)


def _fit_beliefs(
    matrix: ScoreMatrix, plan: CalibrationPlan, beliefs: ItemBeliefs, report: Report
) -> Fitted:
    """Update beliefs about items; the parameter columns are those of expected response curves."""
    found, bank = calibrate_beliefs(
        matrix, beliefs, max_cycles=plan.max_cycles, watch=watching(report)
    )
    fitted = judged(matrix, plan, Linked(found), report)
    known = after_answers(
        beliefs,
        bank,
        found.items,
        fitted.columns["se_b"],
        matrix.answers_per_item(),
        n_examinees=matrix.n_examinees,
    )
    # Few examinees answered any two items, so residual correlations are mostly chance.
    fit = {**fitted.figures["fit"], "srmsr": None, "srmsr_items": 0, "verdict": "unknown"}
    figures = {**fitted.figures, "fit": fit, "local_dependence": None}
    return Fitted(figures, {**fitted.columns, **bank.columns}, {PROVISIONAL: known})


def watching(report: Report) -> Callable[[Progress], None]:
    """Convert the progress of EM to reports."""

    def watch(at: Progress) -> None:
        numbers = {"log_posterior": at.log_posterior, "gain": at.gain, "distance": at.distance}
        finite = {name: n if math.isfinite(n) else None for name, n in numbers.items()}
        report({"phase": "calibrating", "cycle": at.cycle, **finite})

    return watch


def _link(found: Linked, plan: CalibrationPlan) -> dict[str, Any] | None:
    if found.linking is None:
        return None
    link = plan.link or LinkPlan()
    return {
        "method": link.method,
        "bank_version_id": link.bank_version_id,
        "scale": found.linking.target,
        "slope": found.linking.slope,
        "intercept": found.linking.intercept,
        "check_drift": link.check_drift,
        "anchors": list(found.anchors),
    }


def _comparison(matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> list[dict[str, Any]]:
    if not plan.compare:
        return []
    report({"phase": "comparing"})
    families = [Family(name) for name in plan.compare]
    names = ("log_likelihood", "n_parameters", "aic", "bic", "converged")
    return [
        {"model": found.family.value, **{name: getattr(found, name) for name in names}}
        for found in compare_families(matrix, families, plan.settings())
    ]


def _columns(calibration: Calibration, items: ItemFit) -> dict[str, FloatArray]:
    errors = calibration.known_errors
    return {
        **{name: getattr(calibration.items, name) for name in LOGISTIC.columns},
        **{f"se_{name}": getattr(errors, name) for name in ("a", "intercept", "b", "c", "d")},
        "s_x2": items.statistic,
        "s_x2_df": items.df.astype(np.float64),
        "s_x2_p": items.p_value,
        "s_x2_rmsea": _rmsea(items),
    }


def _rmsea(items: ItemFit) -> FloatArray:
    """RMSEA of S-X2: misfit per degree of freedom, independent of the number of examinees."""
    excess = np.maximum(items.statistic - items.df, 0.0)  # NaN stays NaN
    rmsea: FloatArray = np.sqrt(excess / (np.maximum(items.df, 1) * (items.n_examinees - 1)))
    return rmsea


@dataclass(frozen=True, slots=True, eq=False)
class FittedPart:
    """Stored result of one part.

    Attributes:
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
    found = calibrate_part(matrix, plan.settings(), number, watch=watching(report))
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
    columns = {name: getattr(found.items, name) for name in LOGISTIC.columns}
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
    results = [_read(part, plan) for part in fitted]
    own = measured(matrix, plan)
    parts = _dealt(own, plan.partition_size or own.n_items, plan)
    joined = join_parts(own, plan.settings(), parts, results)
    return judged(own, plan, linked(joined, link_for(own, plan)), report, matrix)


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


def _read(part: FittedPart, plan: CalibrationPlan) -> Calibration:
    figures, columns = part.figures, part.columns
    x = np.stack([columns[f"x{i}"] for i in _COORDINATES], axis=1)
    covariance = np.array(
        [[columns[f"covariance{i}{j}"] for j in _COORDINATES] for i in _COORDINATES]
    )
    return Calibration(
        family=Family(plan.model),
        items=ItemParameters(**{name: columns[name] for name in LOGISTIC.columns}),
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
