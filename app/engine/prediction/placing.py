"""Where an examinee stands among those that a bank was calibrated on, and whether anybody knows.

Score curves place examinees by a general ability that has hardly any prior. Where the items asked
are about something else, answers leave it open, and theta amid those calibrated is no sign that the
examinee is one of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.engine.prediction.score_curves import ScoreCurves
from app.engine.state import Response, answered

#: Standard deviation of the general ability of those calibrated, from which on nobody is placed.
OPEN = 1.0


class PopulationPosition(StrEnum):
    """Where an examinee stands to those calibrated."""

    WITHIN = "within"
    ABOVE = "above"
    BELOW = "below"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Where answers put an examinee.

    Attributes:
        standing: To those calibrated.
        sd: Of the position, in standard deviations of those calibrated.
        position: In the same, from their mean.
    """

    standing: PopulationPosition
    sd: float
    position: float

    @property
    def is_open(self) -> bool:
        """Whether the answers leave open who the examinee is like."""
        return self.sd > OPEN


#: Of answers that nobody can place.
UNPLACED = Place(PopulationPosition.UNKNOWN, math.inf, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Placing:
    """Places examinees among those calibrated.

    Attributes:
        curves: Of the bank's items; the general ability with hardly any prior.
        population: Quantiles of that ability of those calibrated, from the weakest to the
            strongest, in their standard deviations; at least one.
    """

    curves: ScoreCurves
    population: Sequence[float]

    def of(self, responses: Sequence[Response]) -> Place:
        """Where an examinee of these answers stands."""
        at = self.curves.locate(*answered(responses))
        sd = float(at.covariance[0, 0]) ** 0.5
        standing = PopulationPosition.UNKNOWN if sd > OPEN else PopulationPosition.WITHIN
        if at.position - sd > self.population[-1]:
            standing = PopulationPosition.ABOVE
        elif at.position + sd < self.population[0]:
            standing = PopulationPosition.BELOW
        return Place(standing, sd, at.position)
