"""What reference models taught about the scores on a bank."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from app.engine.bank import ItemBank
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.placing import Placing
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.targets import WHOLE_BANK

_EDGE = 1e-3  # an expected score nearer to 0 or 1 has the logit of this


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedCurves:
    """Score curves, how wrong they are, and of whom they were learned.

    Attributes:
        curves: Of the bank's items.
        n_reference: Reference models that they were learned from.
        errors: How wrong they are about each target, by its name; "all" is the whole bank.
        population: Quantiles of the general ability of the reference models, evenly spaced, in
            their standard deviations; empty where unknown.
    """

    curves: ScoreCurves
    n_reference: int
    errors: Mapping[str, ModelError] = field(default_factory=dict)
    population: tuple[float, ...] = ()

    @classmethod
    def of_parameters(cls, bank: ItemBank) -> "LearnedCurves":
        """Curves by a bank's parameters alone, of which no answers are known."""
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
        """Places examinees among the reference models; None where these are not known."""
        if not self.population:
            return None
        return Placing(curves=self.curves, population=self.population)

    def error_of(self, target: str) -> ModelError:
        """How wrong the curves are about a target; of one not tried, as about the whole bank."""
        return self.errors.get(target) or self.errors.get(WHOLE_BANK) or ModelError()
