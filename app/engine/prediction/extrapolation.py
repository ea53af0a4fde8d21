"""Distance of an examinee from the reference models, and whether the curves hold for it.

Curves learned from the reference models are safe for examinees like them. They extrapolate to an
examinee that is stronger or weaker than all of them. They are wrong for an examinee whose answers
are far likelier without them. Results say both in words.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.prediction.learned_curves import Place, PopulationPosition
from app.engine.prediction.score_estimate import LEAST_SAMPLED, ScoreReading

#: Likelihood ratio against the curves from which on a result says that they do not hold.
DISAGREES = 10.0
_MOST = 1e6  # largest ratio that is shown
_ALL = 99.5  # percentile that rounds to all


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """Position of an examinee, and whether its answers agree with the curves.

    Attributes:
        position: General ability, in standard deviations of the reference models from their mean.
        sd: Standard error of the position; above 1 the answers say less about it than knowing that
            the examinee is like the reference models would.
        percentile: Share of the reference models that are weaker, from 0 to 100.
        standing: Within the reference models, above or below all of them, or unknown.
        difference: Score by the sampled questions less score by the curves; None with too few
            sampled questions.
        odds: Likelihood ratio of the answers: without the curves to with them.
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
        """Reasons to trust the result less, in words; None without any."""
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
        """Position and agreement in words."""
        if self.standing is not PopulationPosition.WITHIN:
            return self.caution or ""
        return f"{self._place()} of the reference models. {self._test()}"

    def _place(self) -> str:
        # An examinee within the reference models is better than neither all nor none of them.
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
    """Share of the reference models that are weaker than a position, from 0 to 1.

    Args:
        position: General ability, in standard deviations of the reference models.
        population: Quantiles of their general ability, see `extrapolation`.
    """
    return bisect_left(population, position) / max(len(population), 1)


def extrapolation(told: ScoreReading, place: Place, population: Sequence[float]) -> Extrapolation:
    """Position of the examinee, and whether its answers agree with the curves.

    Args:
        told: Estimate of its score.
        place: Its place among the reference models.
        population: Quantiles of the general ability of the reference models, evenly spaced from the
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
