"""Place of an examinee among a bank's reference models, and how certain it is.

Score curves place examinees by a general ability that has hardly any prior. Answers to items that
measure something else leave the place open: then a theta amid the reference models is no evidence
that the examinee is like them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.engine.prediction.score_curves import ScoreCurves
from app.engine.state import Response, answered

#: Standard error above which the place is open, in standard deviations of the reference models.
OPEN = 1.0


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
class Placing:
    """Places examinees among the reference models.

    Attributes:
        curves: Curves of the bank's items, with hardly any prior on the general ability.
        population: Quantiles of that ability among the reference models, from the weakest to the
            strongest, in their standard deviations; at least one.
    """

    curves: ScoreCurves
    population: Sequence[float]

    def of(self, responses: Sequence[Response]) -> Place:
        """Place of an examinee with these answers."""
        at = self.curves.locate(*answered(responses))
        sd = float(at.covariance[0, 0]) ** 0.5
        standing = PopulationPosition.UNKNOWN if sd > OPEN else PopulationPosition.WITHIN
        if at.position - sd > self.population[-1]:
            standing = PopulationPosition.ABOVE
        elif at.position + sd < self.population[0]:
            standing = PopulationPosition.BELOW
        return Place(standing, sd, at.position)
