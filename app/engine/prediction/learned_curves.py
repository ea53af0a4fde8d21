"""Score curves learned from the reference models of a bank, and places among these models.

Score curves place examinees by a general ability that has hardly any prior. Answers to items that
measure something else leave the place open: then a theta amid the reference models is no evidence
that the examinee is like them.
"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from app.engine.bank import ItemBank
from app.engine.models.continuous import CONTINUOUS
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import LEAST_SAMPLED, ScoreReading, logit_of
from app.engine.state import Z_95, Response, answered

#: Standard error above which the place is open, in standard deviations of the reference models.
OPEN = 1.0
#: Likelihood ratio against the curves from which on a result says that they do not hold.
DISAGREES = 10.0
_MOST = 1e6  # largest ratio that is shown
_ALL = 99.5  # percentile that rounds to all
_ROUNDED = 1e-4  # quantiles are stored with four decimals
_EDGE = 1e-3  # expected scores nearer to 0 or 1 are moved here before the logit is taken
_LEAST_DISPERSION = 1e-3  # as of learned curves


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
        is_open: Whether the position's standard error is above `OPEN`: one above or below all
            reference models may still be open. Stored results tell it by an unknown standing alone.
        position: General ability, in standard deviations of the reference models from their mean.
    """

    standing: PopulationPosition
    is_open: bool
    position: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencePopulation:
    """General ability of the reference models: the logit of the score on the whole bank.

    Attributes:
        quantiles: Evenly spaced quantiles from the weakest to the strongest, in standard deviations
            from the mean.
        mean: Mean of the logits.
        sd: Their standard deviation, above 0.
        n_items: Number of items that the scores are about.
    """

    quantiles: tuple[float, ...]
    mean: float
    sd: float
    n_items: int

    def position(self, score: float) -> float:
        """Position of a score, in standard deviations of the reference models from their mean.

        Half an answer is added on either side, so that no score has an infinite logit.
        """
        return (logit_of((score * self.n_items + 0.5) / (self.n_items + 1.0)) - self.mean) / self.sd

    def population_position(self, position: float) -> PopulationPosition:
        """Whether a known position is within, above or below the reference models."""
        if position > self.quantiles[-1] + _ROUNDED:
            return PopulationPosition.ABOVE
        below = position < self.quantiles[0] - _ROUNDED
        return PopulationPosition.BELOW if below else PopulationPosition.WITHIN


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LearnedCurves:
    """Score curves, and the population that they were learned from.

    Attributes:
        curves: Curves of the bank's items.
        n_reference: Number of reference models that they were learned from.
        population: General ability of the reference models; None where unknown.
    """

    curves: ScoreCurves
    n_reference: int
    population: ReferencePopulation | None = None

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
                0.5 * (logits[1] - logits[0])[None, :],
                0.5 * (logits[0] + logits[1]),
                _dispersion(bank),
            )
        return cls(curves=curves, n_reference=0)

    def place(self, responses: Sequence[Response]) -> Place | None:
        """Place of an examinee with these answers; None where the population is unknown."""
        if self.population is None:
            return None
        weakest, *_, strongest = self.population.quantiles
        at = self.curves.locate(*answered(responses))
        sd = float(at.covariance[0, 0]) ** 0.5
        is_open = sd > OPEN
        standing = PopulationPosition.UNKNOWN if is_open else PopulationPosition.WITHIN
        if at.position - sd > strongest:
            standing = PopulationPosition.ABOVE
        elif at.position + sd < weakest:
            standing = PopulationPosition.BELOW
        return Place(standing, is_open, at.position)


def _dispersion(bank: ItemBank) -> float:
    """Variance of an average examinee's scores, relative to right and wrong answers."""
    if bank.model is not CONTINUOUS:
        return 1.0
    mean, variance = bank.model.score_moments(bank.parameters, 0.0)
    mean = np.clip(mean, _EDGE, 1.0 - _EDGE)
    ratio = float(variance.sum()) / float((mean * (1.0 - mean)).sum())
    return min(max(ratio, _LEAST_DISPERSION), 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """Position of an examinee, and whether its answers agree with the curves.

    Curves learned from the reference models are safe for examinees like them. They extrapolate to
    an examinee that is stronger or weaker than all of them. They are wrong for an examinee whose
    answers are far likelier without them. Results say both in words.

    Attributes:
        position: General ability, the logit of the score on the whole bank, in standard deviations
            of the reference models from their mean.
        lo: Lower end of the position's 95 % interval, which is that of the score.
        hi: Upper end.
        sd: Standard error of the position; 0 if every question was asked.
        percentile: Share of the reference models that are weaker, from 0 to 100.
        standing: Within the reference models, above or below all of them, or unknown.
        difference: Score by the sampled questions less score by the curves; None with too few
            sampled questions.
        odds: Likelihood ratio of the answers: without the curves to with them.
    """

    position: float
    lo: float
    hi: float
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
        extrapolated = "its ability and score are" if self.sd else "its ability is"
        beyond = {
            PopulationPosition.ABOVE: (
                f"This model is stronger than all reference models: {extrapolated} extrapolated."
            ),
            PopulationPosition.BELOW: (
                f"This model is weaker than all reference models: {extrapolated} extrapolated."
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


def share_below(position: float, quantiles: Sequence[float]) -> float:
    """Share of the reference models that are weaker than a position, from 0 to 1.

    Args:
        position: General ability, in standard deviations of the reference models.
        quantiles: Evenly spaced quantiles of their general ability, at least two.
    """
    above = bisect_left(quantiles, position)
    if above in (0, len(quantiles)):
        return float(above > 0)
    lo, hi = quantiles[above - 1], quantiles[above]
    return (above - 1 + (position - lo) / (hi - lo)) / (len(quantiles) - 1)


def extrapolation(
    told: ScoreReading,
    place: Place,
    population: ReferencePopulation,
    score: tuple[float, float, float],
) -> Extrapolation:
    """Position of the examinee, and whether its answers agree with the curves.

    The position is that of the score, as for the reference models, so that an examinee that answers
    as one of them has its position. The curves decide whether the place is open.

    Args:
        told: Estimate of the score of the test.
        place: Place among the reference models by the curves.
        population: General ability of the reference models.
        score: Score on the whole bank, and the ends of its 95 % interval.
    """
    position, lo, hi = map(population.position, score)
    standing = population.population_position(position)
    if hi > lo and place.standing not in (standing, PopulationPosition.UNKNOWN):
        standing = PopulationPosition.WITHIN
    elif hi > lo:
        standing = place.standing
    return Extrapolation(
        position=position,
        lo=lo,
        hi=hi,
        sd=(hi - lo) / (2.0 * Z_95),
        percentile=100.0 * share_below(position, population.quantiles),
        standing=standing,
        difference=None if told.sampled < LEAST_SAMPLED else told.by_sample - told.by_curves,
        odds=math.exp(min(told.evidence, math.log(_MOST))),
    )
