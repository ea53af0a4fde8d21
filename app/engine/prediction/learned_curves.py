"""Score curves learned from the reference models of a bank, and places among these models.

Score curves place examinees by a general ability that has hardly any prior. Answers to items that
measure something else leave the place open: then a theta amid the reference models is no evidence
that the examinee is like them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from app.engine.bank import ItemBank
from app.engine.prediction.model_error import ModelError
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.state import Response, answered

#: Standard error above which the place is open, in standard deviations of the reference models.
OPEN = 1.0
_EDGE = 1e-3  # expected scores nearer to 0 or 1 are moved here before the logit is taken


class PopulationPosition(StrEnum):
    """Place of an examinee relative to the reference models."""

    WITHIN = "within"
    ABOVE = "above"
    BELOW = "below"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Place of an examinee among the reference models.

    Attributes:
        standing: Within, above or below the reference models, or unknown.
        sd: Standard error of the position, in standard deviations of the reference models.
        position: General ability, in standard deviations of the reference models from their mean.
    """

    standing: PopulationPosition
    sd: float
    position: float

    @property
    def is_open(self) -> bool:
        """Whether the answers leave the place open."""
        return self.sd > OPEN


#: Place of an examinee without curves to place it by.
UNPLACED = Place(PopulationPosition.UNKNOWN, math.inf, 0.0)


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
            curves = ScoreCurves(
                0.5 * (logits[1] - logits[0])[None, :], 0.5 * (logits[0] + logits[1])
            )
        return cls(curves=curves, n_reference=0)

    def place(self, responses: Sequence[Response]) -> Place | None:
        """Place of an examinee with these answers; None where the population is unknown."""
        if not self.population:
            return None
        at = self.curves.locate(*answered(responses))
        sd = float(at.covariance[0, 0]) ** 0.5
        standing = PopulationPosition.UNKNOWN if sd > OPEN else PopulationPosition.WITHIN
        if at.position - sd > self.population[-1]:
            standing = PopulationPosition.ABOVE
        elif at.position + sd < self.population[0]:
            standing = PopulationPosition.BELOW
        return Place(standing, sd, at.position)

    def error_of(self, target: str) -> ModelError:
        """Error of the curves for a target; that of the whole bank for an untried target."""
        return self.errors.get(target) or self.errors.get(WHOLE_BANK) or ModelError()
