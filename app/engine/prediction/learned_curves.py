"""Knowledge about the scores on a bank, learned from its reference models."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from app.engine.bank import ItemBank
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.placing import Placing
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.targets import WHOLE_BANK

_EDGE = 1e-3  # expected scores nearer to 0 or 1 are moved here before the logit is taken


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedCurves:
    """Score curves with their errors and the population that they were learned from.

    Attributes:
        curves: Curves of the bank's items.
        n_reference: Number of reference models that they were learned from.
        errors: Error of the curves for each target, by its name; "all" is the whole bank.
        population: Quantiles of the general ability of the reference models, evenly spaced, in
            their standard deviations; empty where unknown.
    """

    curves: ScoreCurves
    n_reference: int
    errors: Mapping[str, ModelError] = field(default_factory=dict)
    population: tuple[float, ...] = ()

    @classmethod
    def of_parameters(cls, bank: ItemBank) -> "LearnedCurves":
        """Curves from the parameters of a bank without answers of reference models."""
        if bank.abilities is not None:
            items = bank.abilities.items
            curves = ScoreCurves(items.slopes.T, items.intercept)
        else:
            below, above = (
                np.clip(bank.expected_score(np.array([theta]))[0], _EDGE, 1.0 - _EDGE)
                for theta in (-1.0, 1.0)
            )
            logits = np.log(np.stack([below / (1.0 - below), above / (1.0 - above)]))
            curves = ScoreCurves.of_parameters(
                0.5 * (logits[1] - logits[0]), 0.5 * (logits[0] + logits[1])
            )
        return cls(curves=curves, n_reference=0)

    @property
    def placing(self) -> Placing | None:
        """Places examinees among the reference models; None where they are unknown."""
        if not self.population:
            return None
        return Placing(curves=self.curves, population=self.population)

    def error_of(self, target: str) -> ModelError:
        """Error of the curves for a target; that of the whole bank for an untried target."""
        return self.errors.get(target) or self.errors.get(WHOLE_BANK) or ModelError()
