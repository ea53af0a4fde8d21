"""One calibration from filtered answers to the figures that are stored. Pure.

Each response model has a row in `FITS`; the command line and the workers calibrate through it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from app.calibration.continuous.calibrate import calibrate_continuous
from app.calibration.continuous.moments import calibrate_by_moments
from app.calibration.fit.goodness import Goodness, goodness_of_fit
from app.calibration.fit.item_fit import ItemFit, item_fit, local_dependence
from app.calibration.linking.linked import Linked, LinkMethod, calibrate_linked, linked
from app.calibration.linking.partition import calibrate_in_parts
from app.calibration.logistic.beliefs import ItemBeliefs, calibrate_beliefs
from app.calibration.logistic.calibrate import Calibration, calibrate, compare_families
from app.calibration.logistic.curves import Family
from app.calibration.logistic.em import Progress
from app.calibration.matrix import ScoreMatrix
from app.calibration.pipeline.abilities import fit_abilities
from app.calibration.pipeline.drift import DriftCheck
from app.calibration.pipeline.plan import (
    CONTINUOUS_SCORES,
    SEVERAL_ABILITIES,
    CalibrationPlan,
    LinkPlan,
    anchors_for,
    decided,
)
from app.calibration.pipeline.provisional import PROVISIONAL, after_answers
from app.engine.bank import DEFAULT_SCALE, ItemBank
from app.engine.models.base import FloatArray
from app.engine.responses import ResponseTable

Report = Callable[[dict[str, Any]], None]
"""Takes the progress: the phase, and what it has reached."""


class ExamineeAbilities(NamedTuple):
    """What the examinees' whole records say on the calibrated bank, in the matrix's order."""

    theta: FloatArray
    """Weighted likelihood estimates, logits, shape (n_examinees,)."""
    se: FloatArray
    """Their standard errors, NaN where there is no information."""
    score: FloatArray
    """Mean scores over the answers given."""


class Fitted(NamedTuple):
    """What comes out of a calibration."""

    figures: dict[str, Any]
    """JSON without NaN."""
    columns: dict[str, FloatArray]
    """Of the items, each of shape (n_items,), NaN where unknown; a, intercept, c and d always."""
    knowledge: dict[str, Any]
    """JSON that goes with the bank version into every test on it."""
    abilities: ExamineeAbilities | None = None
    """Of the examinees, where a report card was asked for."""


Fit = Callable[[Any, CalibrationPlan, Report], Fitted]
"""Takes the kind of matrix that `prepared` makes for its model."""


def fit(matrix: ScoreMatrix | ResponseTable, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate by the plan's model, and judge how well it fits.

    Args:
        matrix: Answers, filtered.
        plan: How.
        report: Takes the progress.

    Raises:
        CalibrationError: A matrix without information.
    """
    return FITS[plan.model](matrix, decided(matrix, plan), report)


def bank_from_columns(
    keys: Sequence[str], columns: Mapping[str, FloatArray], *, scale: str = DEFAULT_SCALE
) -> ItemBank:
    """The bank that the columns of a `Fitted` describe."""
    return ItemBank.from_intercepts(
        a=columns["a"],
        intercept=columns["intercept"],
        c=columns["c"],
        d=columns["d"],
        k=columns.get("k"),
        item_ids=keys,
        scale=scale,
    )


def fit_family(matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate one of the families 1PL to 4PL; see `fit`."""
    report({"phase": "calibrating"})
    if plan.checks_drift:
        return _fit_checked(matrix, plan, report)
    if plan.beliefs is not None:
        return _fit_beliefs(matrix, plan, plan.beliefs, report)
    settings, anchors = plan.settings(), anchors_for(matrix, plan)
    if plan.partition_size is not None:
        rng = np.random.default_rng(plan.seed)
        joined = calibrate_in_parts(matrix, settings, plan.partition_size, rng)
        return judged(matrix, plan, joined, report)
    watch = watching(report)
    if plan.link is None or anchors is None:
        return judged(matrix, plan, calibrate(matrix, settings, watch=watch), report)
    method = LinkMethod(plan.link.method)
    return judged(
        matrix, plan, calibrate_linked(matrix, anchors, method, settings, watch=watch), report
    )


def judged(
    matrix: ScoreMatrix, plan: CalibrationPlan, found: Calibration | Linked, report: Report
) -> Fitted:
    """What is stored of a calibration, its fit examined; a link is made where one is due."""
    anchors = anchors_for(matrix, plan)
    if isinstance(found, Calibration) and plan.link is not None and anchors is not None:
        found = linked(found, anchors, LinkMethod(plan.link.method))
    calibration = found.calibration if isinstance(found, Linked) else found
    report({"phase": "checking_fit", "cycle": calibration.cycles})
    goodness = goodness_of_fit(matrix, calibration)
    items = item_fit(matrix, calibration)
    figures = {
        "scored_answers": calibration.n_answers,
        "log_likelihood": calibration.log_likelihood,
        "n_parameters": calibration.n_parameters,
        "aic": calibration.aic,
        "bic": calibration.bic,
        "iterations": calibration.cycles,
        "converged": calibration.converged,
        "guessing_sd": calibration.guessing_sd,
        "fit": _fit(goodness),
        "local_dependence": asdict(local_dependence(matrix, calibration)),
        "warnings": list(calibration.warnings),
        "comparison": _comparison(matrix, plan, report),
        "link": _link(found, plan) if isinstance(found, Linked) else None,
    }
    return Fitted(figures, _columns(calibration, items), {})


def _fit_checked(matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate onto the old items that did not drift."""
    check = DriftCheck.of(matrix, plan)
    part, rest = check.part, check.part_plan
    anchors = anchors_for(part, rest)
    if anchors is None:
        raise RuntimeError("a check for drift without a link")
    found = calibrate_linked(
        part, anchors, LinkMethod.FIXED_ANCHOR, rest.settings(), watch=watching(report)
    )
    fitted = judged(part, rest, found, report)
    figures = fitted.figures | {"drift": check.figures()}
    return Fitted(figures, check.whole(fitted.columns), fitted.knowledge)


def _fit_beliefs(
    matrix: ScoreMatrix, plan: CalibrationPlan, beliefs: ItemBeliefs, report: Report
) -> Fitted:
    """Revise what is believed of items; the columns are the curves to be expected of them."""
    found, bank = calibrate_beliefs(
        matrix, beliefs, max_cycles=plan.max_cycles, watch=watching(report)
    )
    fitted = judged(matrix, plan, found, report)
    curves = {name: getattr(bank, name) for name in ("a", "intercept", "c", "d")}
    known = after_answers(
        beliefs,
        bank,
        found.items,
        fitted.columns["se_b"],
        matrix.answers_per_item(),
        n_examinees=matrix.n_examinees,
    )
    # Of a few answers that any two items share, chance makes residuals what it likes.
    fit = {**fitted.figures["fit"], "srmsr": None, "srmsr_items": 0, "verdict": "unknown"}
    figures = {**fitted.figures, "fit": fit, "local_dependence": None}
    return Fitted(figures, {**fitted.columns, **curves}, {PROVISIONAL: known})


def watching(report: Report) -> Callable[[Progress], None]:
    """Turns the progress of EM into reports."""

    def watch(at: Progress) -> None:
        report(_progress(at))

    return watch


def fit_continuous(table: ResponseTable, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate items of continuous scores; see `fit`."""
    report({"phase": "calibrating"})
    if plan.moments:
        found = calibrate_by_moments(table)
    else:
        found = calibrate_continuous(
            table,
            max_cycles=plan.max_cycles,
            watch=lambda cycle, distance: report(
                {"phase": "calibrating", "cycle": cycle, "distance": distance}
            ),
        )
    conformance = found.conformance
    figures = {
        "scored_answers": found.n_answers,
        "log_likelihood": found.log_likelihood,
        "n_parameters": round(found.n_parameters),
        "aic": found.aic,
        "bic": found.bic,
        "iterations": found.cycles,
        "converged": found.converged,
        "guessing_sd": None,
        "fit": {
            **dict.fromkeys(("m2", "df", "p_value", "rmsea", "rmsea_lo", "rmsea_hi")),
            "m2_items": None,
            "m2_examinees": None,
            "m2_missing": "M2 is for right and wrong answers.",
            "srmsr": None,
            "srmsr_items": 0,
            "variance_r2": conformance,
            "verdict": _conforms(conformance),
        },
        "dispersion": found.k_common,
        "local_dependence": None,
        "warnings": list(found.warnings),
        "comparison": [],
        "link": None,
    }
    bank, unknown = found.bank, np.full(found.bank.n_items, np.nan)
    columns = {
        **{name: getattr(bank, name) for name in ("a", "intercept", "c", "d", "k")},
        **{f"se_{name}": getattr(found, f"se_{name}") for name in ("a", "intercept", "b", "k")},
        **dict.fromkeys(("se_c", "se_d", "s_x2", "s_x2_df", "s_x2_p", "s_x2_rmsea"), unknown),
    }
    return Fitted(figures, columns, {})


def _conforms(variance_r2: float | None) -> str:
    """A word for how much of the scatter has the form that the model gives it."""
    if variance_r2 is None:
        return "unknown"
    words = ((0.9, "good"), (0.7, "acceptable"), (0.4, "marginal"))
    return next((word for least, word in words if variance_r2 >= least), "poor")


def fit_several(matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
    """Calibrate several abilities; see `fit`."""
    return Fitted(*fit_abilities(matrix, plan, report))


FITS: Mapping[str, Fit] = {
    **{family.value: fit_family for family in Family},
    CONTINUOUS_SCORES: fit_continuous,
    **dict.fromkeys(SEVERAL_ABILITIES, fit_several),
}
"""How each response model is calibrated."""


def _link(found: Linked, plan: CalibrationPlan) -> dict[str, Any]:
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
    return [
        {
            "model": found.family.value,
            "log_likelihood": found.log_likelihood,
            "n_parameters": found.n_parameters,
            "aic": found.aic,
            "bic": found.bic,
            "converged": found.converged,
        }
        for found in compare_families(matrix, families, plan.settings())
    ]


def _progress(at: Progress) -> dict[str, Any]:
    return {
        "phase": "calibrating",
        "cycle": at.cycle,
        "log_posterior": _finite(at.log_posterior),
        "gain": _finite(at.gain),
        "distance": _finite(at.distance),
    }


def _fit(goodness: Goodness) -> dict[str, Any]:
    m2 = goodness.m2
    return {
        "m2": m2 and m2.statistic,
        "df": m2 and m2.df,
        "p_value": m2 and m2.p_value,
        "rmsea": m2 and m2.rmsea,
        "rmsea_lo": m2 and m2.rmsea_lo,
        "rmsea_hi": m2 and m2.rmsea_hi,
        "m2_items": m2 and m2.n_items,
        "m2_examinees": m2 and m2.n_examinees,
        "m2_missing": goodness.m2_missing or None,
        "srmsr": _finite(goodness.srmsr),
        "srmsr_items": goodness.srmsr_items,
        "verdict": goodness.verdict,
    }


def _columns(calibration: Calibration, items: ItemFit) -> dict[str, FloatArray]:
    errors = calibration.errors
    if errors is None:  # a plan always asks for them
        raise RuntimeError("a calibration without standard errors")
    return {
        "a": calibration.items.a,
        "intercept": calibration.items.intercept,
        "c": calibration.items.c,
        "d": calibration.items.d,
        "se_a": errors.a,
        "se_intercept": errors.intercept,
        "se_b": errors.b,
        "se_c": errors.c,
        "se_d": errors.d,
        "s_x2": items.statistic,
        "s_x2_df": items.df.astype(np.float64),
        "s_x2_p": items.p_value,
        "s_x2_rmsea": _rmsea(items),
    }


def _rmsea(items: ItemFit) -> FloatArray:
    """Misfit per degree of freedom, which does not grow with the number of examinees."""
    excess = np.maximum(items.statistic - items.df, 0.0)  # NaN stays NaN
    rmsea: FloatArray = np.sqrt(excess / (np.maximum(items.df, 1) * (items.n_examinees - 1)))
    return rmsea


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
