"""How far an examinee is from those that a bank was calibrated on, and whether the model holds.

What was learned from some examinees is safe for others like them. Of one that is stronger or weaker
than all of them it is an extrapolation, and of one whose answers are far likelier if the curves do
not hold it is wrong: both are told, in words, beside the figures.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.prediction.placing import Place, PopulationPosition
from app.engine.prediction.score_estimate import LEAST_SAMPLED, ScoreReading

#: So many times likelier answers must be if the curves do not hold, for that to be said.
DISAGREES = 10.0
_MOST = 1e6  # times; more is no surer
_ALL = 99.5  # rounds to all


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """Where an examinee stands, and whether its answers agree with the curves.

    Attributes:
        position: Of the general ability, in standard deviations of those calibrated, from their
            mean.
        sd: Of that position; above 1 the answers tell less of it than that the examinee is one of
            those calibrated would.
        percentile: Share of those calibrated that are weaker, from 0 to 100.
        standing: Within those calibrated, above all of them or below all of them, or unknown.
        difference: By how much the sampled questions put the score above the curves'; None where
            there are too few of them.
        odds: How many times likelier the answers are if the curves do not hold.
    """

    position: float
    sd: float
    percentile: float
    standing: PopulationPosition
    difference: float | None
    odds: float

    @property
    def agrees(self) -> bool:
        """Whether the answers agree with the curves."""
        return self.odds < DISAGREES

    @property
    def caution(self) -> str | None:
        """Why to trust the result less, in words; None where there is no reason."""
        beyond = {
            PopulationPosition.ABOVE: (
                "This model is stronger than all reference models: its ability and score are "
                "extrapolated."
            ),
            PopulationPosition.BELOW: (
                "This model is weaker than all reference models: its ability and score are "
                "extrapolated."
            ),
            PopulationPosition.UNKNOWN: (
                "These answers do not tell whether this model is like the reference models: if "
                "it is not, its ability is extrapolated and the interval need not hold."
            ),
        }.get(self.standing)
        found = [] if beyond is None else [beyond]
        if not self.agrees:
            found.append(self._test())
        return " ".join(found) or None

    @property
    def detail(self) -> str:
        """Both in words."""
        if self.standing is not PopulationPosition.WITHIN:
            return self.caution or ""
        return f"{self._place()} of the reference models. {self._test()}"

    def _place(self) -> str:
        # Nobody within them is said to be stronger than all of them, or than none.
        if self.percentile >= _ALL:
            return "As strong as the strongest"
        if self.percentile <= 100.0 - _ALL:
            return "As weak as the weakest"
        return f"Better than {self.percentile:.0f} %"

    def _test(self) -> str:
        if self.agrees:
            return "Its answers agree with the curves of the reference models."
        odds = "over a million" if self.odds >= _MOST else f"{self.odds:,.0f}"
        return (
            f"Its answers are {odds} times likelier if the curves of the reference models do not "
            "hold for it: the score rests on the sampled questions."
        )


def share_below(position: float, population: Sequence[float]) -> float:
    """Share of those calibrated that are weaker than a position, from 0 to 1.

    Args:
        position: Of the general ability, in standard deviations of those calibrated.
        population: See `extrapolation`.
    """
    return bisect_left(population, position) / max(len(population), 1)


def extrapolation(told: ScoreReading, place: Place, population: Sequence[float]) -> Extrapolation:
    """Where the examinee stands.

    Args:
        told: What its answers say.
        place: Where they put the examinee.
        population: Quantiles of the general ability of those calibrated, evenly spaced from the
            weakest to the strongest, in their standard deviations.
    """
    return Extrapolation(
        position=told.position,
        sd=place.sd,
        percentile=100.0 * share_below(told.position, population),
        standing=place.standing,
        difference=None if told.sampled < LEAST_SAMPLED else told.by_sample - told.by_curves,
        odds=math.exp(min(told.evidence, math.log(_MOST))),
    )
