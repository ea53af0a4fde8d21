"""Learns a bank of several abilities: its loadings, population, score model and score curves."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from app.calibration.multidimensional.curve_errors import learn_curves
from app.calibration.multidimensional.fit import MultidimensionalFit, fit_multidimensional
from app.calibration.multidimensional.score_intervals import LEAST_EXAMINEES
from app.calibration.multidimensional.score_model import LearnedScores, learn_scores
from app.calibration.multidimensional.settings import MultidimensionalSettings, Watch
from app.engine.bank import ItemBank
from app.engine.models.base import BoolArray, FloatArray
from app.engine.models.multidimensional import MultidimensionalModel
from app.engine.prediction.learned_curves import LearnedCurves


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
    curves = learn_curves(scores, targets, rng, askable=askable, costs=costs)
    return LearnedAbilities(bank=bank, fit=fit, scores=learned, curves=curves)
