"""Calibrates the models of several abilities: `nested` and `mirt`."""

from collections.abc import Callable
from typing import Any

import numpy as np

from app.calibration.matrix import MISSING, ScoreMatrix
from app.calibration.multidimensional.fit import MultidimensionalFit
from app.calibration.multidimensional.learned import LearnedAbilities, learn_abilities
from app.calibration.multidimensional.score_intervals import LEAST_EXAMINEES
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import FloatArray
from app.engine.multidimensional.curve_knowledge import CURVES, curves_to_dict
from app.engine.multidimensional.knowledge import (
    ABILITIES,
    PREDICTION,
    abilities_to_dict,
    prediction_to_dict,
)
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids

#: Tasks, named by the prefixes of item ids, whose predicted scores get widths of their own.
_MOST_TASKS, _LEAST_ITEMS = 12, 5


def fit_abilities(
    matrix: ScoreMatrix, plan: CalibrationPlan, report: Callable[[dict[str, Any]], None]
) -> tuple[dict[str, Any], dict[str, FloatArray], dict[str, Any]]:
    """Figures, columns of the items, and knowledge of a calibration; see `fit.fit`."""
    report({"phase": "calibrating"})
    scores = matrix.scores.astype(np.float64)
    scores[matrix.scores == MISSING] = np.nan
    learned = learn_abilities(
        scores,
        matrix.items,
        plan.abilities(),
        task_targets(matrix.items),
        np.random.default_rng(plan.seed),
        watch=lambda cycle, loss: report({"phase": "calibrating", "cycle": cycle, "loss": loss}),
    )
    fit, bank = learned.fit, learned.bank
    knowledge = {}
    if bank.abilities is not None:
        knowledge[ABILITIES] = abilities_to_dict(bank.abilities, matrix.items)
    if learned.scores is not None:
        knowledge[PREDICTION] = prediction_to_dict(learned.scores.targets, matrix.items)
    if learned.curves is not None:
        knowledge[CURVES] = curves_to_dict(learned.curves, matrix.items)
    n_answers = int(np.count_nonzero(~np.isnan(scores)))
    n_parameters = fit.items.slopes.size + fit.items.intercept.size
    figures = {
        "scored_answers": n_answers,
        "log_likelihood": fit.log_likelihood,
        "n_parameters": n_parameters,
        "aic": 2.0 * n_parameters - 2.0 * fit.log_likelihood,
        "bic": float(np.log(len(scores))) * n_parameters - 2.0 * fit.log_likelihood,
        "iterations": fit.iterations,
        "converged": fit.converged,
        "guessing_sd": None,
        "fit": {
            **dict.fromkeys(("m2", "df", "p_value", "rmsea", "rmsea_lo", "rmsea_hi")),
            "m2_items": None,
            "m2_examinees": None,
            "m2_missing": "M2 is for one ability.",
            "srmsr": None,
            "srmsr_items": 0,
            "verdict": "unknown",
        },
        "local_dependence": None,
        "warnings": _warnings(learned),
        "comparison": [],
        "link": None,
        "dimensionality": _abilities(fit, learned),
    }
    unknown = np.full(bank.n_items, np.nan)
    names = ("se_a", "se_intercept", "se_b", "se_c", "se_d")
    columns = {
        **{name: getattr(bank, name) for name in ("a", "intercept", "c", "d")},
        **dict.fromkeys((*names, "s_x2", "s_x2_df", "s_x2_p", "s_x2_rmsea"), unknown),
    }
    return figures, columns, knowledge


def task_targets(items: tuple[str, ...]) -> dict[str, FloatArray]:
    """Weights of the whole bank, and of the tasks that the items' ids name, by name."""
    n = len(items)
    targets = {WHOLE_BANK: np.full(n, 1.0 / n)}
    tags = tags_in_ids(items)
    counted: dict[str, int] = {}
    for item in tags:
        for tag in item:
            counted[tag] = counted.get(tag, 0) + 1
    usual = sorted(
        (tag for tag, count in counted.items() if _LEAST_ITEMS <= count < n and tag != WHOLE_BANK),
        key=lambda tag: -counted[tag],
    )
    for tag in usual[:_MOST_TASKS]:
        weights = np.array([float(tag in item) for item in tags])
        targets[tag] = weights / weights.sum()
    return targets


def _warnings(learned: LearnedAbilities) -> list[str]:
    found = []
    if not learned.fit.converged:
        found.append(f"The fit was ended after {learned.fit.iterations} iterations.")
    if learned.scores is None:
        found.append(
            f"Predicted scores are learned from {LEAST_EXAMINEES} examinees at least, got "
            f"{len(learned.fit.abilities)}: sessions will predict by the curves alone."
        )
    return found


def _abilities(fit: MultidimensionalFit, learned: LearnedAbilities) -> dict[str, Any]:
    analysis = fit.analysis
    return {
        "dimensions": fit.dimensions,
        "names": list(fit.items.names),
        "method": fit.method.value,
        "held_out_log_likelihood": fit.compared,
        "parallel_analysis": analysis
        and {
            "dimensions": analysis.dimensions,
            "eigenvalues": list(analysis.eigenvalues),
            "chance": list(analysis.chance),
        },
        "shrinkage": learned.scores and learned.scores.shrinkage,
        "cross_validated_error": learned.scores
        and {
            name: {str(count): error for count, error in errors.items()}
            for name, errors in learned.scores.errors.items()
        },
    }
