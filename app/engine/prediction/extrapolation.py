"""How far an examinee is from those that a bank was calibrated on, and whether the model holds.

What was learned from some examinees is safe for others like them. Of one that is stronger or weaker
than all of them it is an extrapolation, and of one whose answers to items drawn by lot differ from
what the model expects it is wrong: both are told, in words, beside the figures.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from app.engine.prediction.combined_score import Told
from app.engine.prediction.placing import Place, Standing

#: Below this p model and design are said to disagree.
DISAGREES = 0.05
_ALL = 99.5  # rounds to all


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation:
    """Where an examinee stands, and whether what the model says of it agrees with the design.

    Attributes:
        position: Of the general ability, in standard deviations of those calibrated, from their
            mean.
        sd: Of that position; above 1 the answers tell less of it than that the examinee is one of
            those calibrated would.
        percentile: Share of those calibrated that are weaker, from 0 to 100.
        standing: Within those calibrated, above all of them or below all of them, or unknown.
        difference: By how much the design puts the score above the model's; None where too few
            items were drawn by lot.
        p_value: Of the test that there is none.
    """

    position: float
    sd: float
    percentile: float
    standing: Standing
    difference: float | None
    p_value: float | None

    @property
    def agrees(self) -> bool | None:
        """Whether model and design agree; None where the design says nothing."""
        return None if self.p_value is None else self.p_value >= DISAGREES

    @property
    def caution(self) -> str | None:
        """Why to trust the result less, in words; None where there is no reason."""
        beyond = {
            Standing.ABOVE: "This examinee is stronger than all that the bank was calibrated on: "
            "its ability and score are extrapolated.",
            Standing.BELOW: "This examinee is weaker than all that the bank was calibrated on: its "
            "ability and score are extrapolated.",
            Standing.UNKNOWN: "These answers do not tell whether this examinee is like those that "
            "the bank was calibrated on: if it is not, its ability is extrapolated and the "
            "interval need not hold.",
        }.get(self.standing)
        found = [] if beyond is None else [beyond]
        if self.agrees is False:
            found.append(f"{self._test()} Do not rely on the model's part of the result alone.")
        elif beyond is not None:
            found.append(self._test())
        return " ".join(found) or None

    @property
    def detail(self) -> str:
        """Both in words."""
        if self.standing is not Standing.WITHIN:
            return self.caution or ""
        return f"{self._place()} of those that the bank was calibrated on. {self._test()}"

    def _place(self) -> str:
        # Nobody within them is said to be stronger than all of them, or than none.
        if self.percentile >= _ALL:
            return "As strong as the strongest"
        if self.percentile <= 100.0 - _ALL:
            return "As weak as the weakest"
        return f"Stronger than {self.percentile:.0f} %"

    def _test(self) -> str:
        if self.p_value is None or self.difference is None:
            return "Too few items were drawn by lot to tell whether the model holds."
        if self.agrees:
            return f"Items drawn by lot agree with the model (p = {self.p_value:.2g})."
        side = "higher" if self.difference > 0.0 else "lower"
        return (
            f"Items drawn by lot put the score {abs(self.difference):.1%} {side} than the model "
            f"(p = {self.p_value:.2g}): the two disagree."
        )


def share_below(position: float, population: Sequence[float]) -> float:
    """Share of those calibrated that are weaker than a position, from 0 to 1.

    Args:
        position: Of the general ability, in standard deviations of those calibrated.
        population: See `extrapolation`.
    """
    return bisect_left(population, position) / max(len(population), 1)


def extrapolation(told: Told, place: Place, population: Sequence[float]) -> Extrapolation:
    """Where the examinee stands.

    Args:
        told: What its answers say.
        place: Where they put the examinee.
        population: Quantiles of the general ability of those calibrated, evenly spaced from the
            weakest to the strongest, in their standard deviations.
    """
    drawn = told.discrepancy
    return Extrapolation(
        position=told.position,
        sd=place.sd,
        percentile=100.0 * share_below(told.position, population),
        standing=place.standing,
        difference=None if drawn is None else drawn.value,
        p_value=None if drawn is None else drawn.p_value,
    )
