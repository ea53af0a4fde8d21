"""Learns a bank of several abilities, and calibrates the models `nested` and `mirt`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from typing_extensions import override

from app.calibration.estimation import Estimation
from app.calibration.filters import Filtered, apply_filters
from app.calibration.fit.held_out import Blind
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.fit import (
    MultidimensionalFit,
    check_dimensions,
    fit_multidimensional,
)
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.multidimensional.score_model import (
    LEAST_EXAMINEES,
    LearnedScores,
    learn_scores,
)
from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings, Watch
from app.calibration.pipeline.calibrator import (
    BinaryCalibrator,
    Fitted,
    Report,
    examined,
    task_targets,
    unexamined,
)
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.knowledge import (
    ABILITIES,
    CURVES,
    PREDICTION,
    abilities_to_dict,
    curves_to_dict,
    prediction_to_dict,
)
from app.engine.models.base import BoolArray, FloatArray
from app.engine.models.multidimensional import MultidimensionalModel
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.responses import ResponseTable


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedAbilities:
    """A bank of several abilities, with two predictors of its scores.

    Attributes:
        bank: Items with loadings, and the population of abilities.
        fit: The fit that the loadings and the population come from.
        scores: Linear score model; None with fewer than 20 examinees.
        curves: Score curves, which also predict scores of examinees unlike the reference models.
    """

    bank: ItemBank
    fit: MultidimensionalFit
    scores: LearnedScores | None
    curves: LearnedCurves

    def to_dict(self) -> dict[str, Any]:
        """What came out, JSON-able, without the bank."""
        fit, scores = self.fit, self.scores
        return {
            "dimensions": fit.dimensions,
            "method": fit.method.value,
            "held_out_log_likelihood": fit.compared,
            "parallel_analysis": fit.analysis and asdict(fit.analysis),
            "shrinkage": scores and scores.shrinkage,
            "cross_validated_error": scores
            and {
                name: {str(count): error for count, error in errors.items()}
                for name, errors in scores.errors.items()
            },
        }


def learn_abilities(
    scores: FloatArray,
    item_ids: Sequence[str],
    settings: MultidimensionalSettings,
    targets: Mapping[str, FloatArray],
    rng: np.random.Generator,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
    watch: Watch | None = None,
) -> LearnedAbilities:
    """Fit the abilities, and learn to predict scores from whole records.

    Args:
        scores: Records in [0, 1], shape (n_examinees, n_items), NaN where there is no answer.
        item_ids: Item of each column.
        settings: How the abilities are fitted.
        targets: Weights of the scores to be predicted, by name, each of shape (n_items,).
        rng: Random generator for permutations, held-out answers and folds.
        askable: Mask of the items that tests may ask, shape (n_items,); all by default.
        costs: Cost of each item where tests choose by gain per cost, shape (n_items,).
        watch: Called with the iteration of the fit and its loss.
    """
    fit = fit_multidimensional(scores, settings, rng, watch)
    bank = ItemBank.from_abilities(MultidimensionalModel(fit.items, fit.population), item_ids)
    learned = None
    if len(scores) >= LEAST_EXAMINEES:
        learned = learn_scores(scores, targets, rng, askable=askable, costs=costs)
    curves = learn_curves(scores, rng)
    return LearnedAbilities(bank=bank, fit=fit, scores=learned, curves=curves)


class AbilitiesCalibrator(BinaryCalibrator):
    """Calibrates models of several abilities, `nested` with a general one beside them."""

    def __init__(self, *, nested: bool) -> None:
        self._nested = nested

    @override
    def prepared(self, table: ResponseTable, plan: CalibrationPlan) -> Filtered[ScoreMatrix]:
        matrix = self.matrix(table.scores, examinees=table.examinees, items=table.items)
        filtered = apply_filters(matrix, plan.filters)
        filtered.matrix.require_calibratable()
        kept = filtered.matrix
        check_dimensions(self._settings(plan), kept.n_examinees, kept.n_items)
        return filtered

    @override
    def fit(self, matrix: ScoreMatrix, plan: CalibrationPlan, report: Report) -> Fitted:
        report({"phase": "calibrating"})
        scores = matrix.answers()
        learned = learn_abilities(
            scores,
            matrix.items,
            self._settings(plan),
            task_targets(matrix.items),
            np.random.default_rng(plan.seed),
            watch=lambda cycle, loss: report(
                {"phase": "calibrating", "cycle": cycle, "loss": loss}
            ),
        )
        fit, bank = learned.fit, learned.bank
        knowledge = {}
        if bank.abilities is not None:
            knowledge[ABILITIES] = abilities_to_dict(bank.abilities, matrix.items)
        if learned.scores is not None:
            knowledge[PREDICTION] = prediction_to_dict(learned.scores.targets, matrix.items)
        knowledge[CURVES] = curves_to_dict(learned.curves, matrix.items)
        estimation = Estimation(
            log_likelihood=fit.log_likelihood,
            n_parameters=fit.n_parameters,
            n_examinees=len(scores),
            n_answers=int(np.count_nonzero(~np.isnan(scores))),
            converged=fit.converged,
            cycles=fit.iterations,
        )
        figures = {
            **estimation.figures(),
            **unexamined("M2 is computed only for models of one ability."),
            "warnings": _warnings(learned),
            "dimensionality": {**learned.to_dict(), "names": list(fit.items.names)},
        }
        return Fitted(figures, examined(bank.columns, bank.n_items), knowledge)

    @override
    def taught_by(
        self,
        matrix: ScoreMatrix,
        known: BoolArray,
        plan: CalibrationPlan,
        fitted: Fitted,
        bank: ItemBank,
    ) -> Blind:
        """Use the number of dimensions and the method that were chosen for all examinees."""
        chosen = fitted.figures["dimensionality"]
        learned = learn_abilities(
            matrix.answers(np.flatnonzero(known)),
            matrix.items,
            replace(
                self._settings(plan),
                dimensions=chosen["dimensions"],
                method=FitMethod(chosen["method"]),
            ),
            task_targets(matrix.items),
            np.random.default_rng(plan.seed),
        )
        return Blind(
            bank=learned.bank,
            targets={} if learned.scores is None else learned.scores.targets,
            curves=learned.curves,
        )

    @override
    def curves(self, matrix: ScoreMatrix, plan: CalibrationPlan) -> dict[str, Any]:
        return {}

    def _settings(self, plan: CalibrationPlan) -> MultidimensionalSettings:
        return MultidimensionalSettings(
            nested=self._nested, dimensions=plan.dimensions, max_iterations=plan.max_cycles
        )


def _warnings(learned: LearnedAbilities) -> list[str]:
    found = []
    if not learned.fit.converged:
        found.append(f"Not converged after {learned.fit.iterations} iterations.")
    if learned.scores is None:
        found.append(
            f"Predicting scores needs at least {LEAST_EXAMINEES} examinees to learn from, got "
            f"{len(learned.fit.abilities)}: sessions will predict by the curves alone."
        )
    return found
