"""Place results among the reference models: a strip of dots, with an interval for each result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from app.engine.prediction.learned_curves import PopulationPosition, share_below
from app.engine.state import Z_95
from app.records.fields import ends
from app.reports.charts import Bar, interval_chart
from app.reports.formats import count, percent

#: Most dots; how far beyond them the axis may reach, as a share of their range.
_DOTS, _BEYOND = 100, 0.5
#: Marks nearer than this share of the axis would overlap.
_APART = 0.09


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The reference models of a bank.

    Attributes:
        population: Evenly spaced quantiles of their general ability, in standard deviations.
        thetas: Evenly spaced quantiles of their thetas; they place results without `population`.
            Empty for a bank of several abilities.
        n: Number of reference models; None where unknown.
        source: Source of their answers, in words; None where unknown.
    """

    population: Sequence[float] = ()
    thetas: Sequence[float] = ()
    n: int | None = None
    source: str | None = None

    @property
    def quantiles(self) -> Sequence[float]:
        """The quantiles that results are placed by."""
        return self.population or self.thetas

    @property
    def order(self) -> str:
        """What results are placed by: general ability is the logit of the score."""
        return "score" if self.population else "ability"


@dataclass(frozen=True, slots=True, kw_only=True)
class StripPosition:
    """Position of a result, with its 95 % interval, on the scale of the quantiles."""

    value: float
    lo: float
    hi: float


def strip_position(estimate: Mapping[str, Any], reference: Reference) -> StripPosition | None:
    """Position of a session's examinee, by the session's estimate; None where it is unknown."""
    stands = estimate.get("extrapolation") or {}
    if stands.get("standing") == PopulationPosition.UNKNOWN:
        return None
    if reference.population:
        if stands.get("sd") is None:
            return None
        at, reach = stands["position"], Z_95 * stands["sd"]
        lo, hi = ends(stands.get("interval"))
        return StripPosition(
            value=at, lo=at - reach if lo is None else lo, hi=at + reach if hi is None else hi
        )
    value, (lo, hi) = estimate["theta"], ends(estimate["interval"])
    if len(reference.thetas) < 2 or value is None or lo is None or hi is None:
        return None
    return StripPosition(value=value, lo=lo, hi=hi)


def strip(
    reference: Reference, results: Sequence[tuple[str, StripPosition | None]]
) -> Markup | None:
    """Draw the content of a figure: reference models as dots, and named results below them.

    Returns None where no result can be placed.
    """
    known = [(name, one) for name, one in results if one is not None]
    if not known:
        return None
    quantiles = np.asarray(reference.quantiles)
    grid = np.linspace(0.0, 1.0, len(quantiles))
    dots = np.interp(np.linspace(0.0, 1.0, min(reference.n or _DOTS, _DOTS)), grid, quantiles)
    first, last = float(quantiles[0]), float(quantiles[-1])
    room = _BEYOND * (last - first)
    ends = (
        max(min(first, *(one.lo for _, one in known)), first - room) - 0.02 * room,
        min(max(last, *(one.hi for _, one in known)), last + room) + 0.02 * room,
    )
    quarter, half, most = np.quantile(quantiles, [0.25, 0.5, 0.75]).tolist()
    words = {quarter: "25\u00a0%", half: "50\u00a0%", most: "75\u00a0%"}
    if min(half - quarter, most - half) < _APART * (ends[1] - ends[0]):
        words = {half: words[half]}
    bars = [
        Bar(
            label=name,
            note=f"better than {percent(share_below(one.value, quantiles.tolist()))}",
            value=one.value,
            lo=one.lo,
            hi=one.hi,
        )
        for name, one in known
    ]
    models = "the reference models" if reference.n is None else f"{reference.n:,} reference models"
    chart = interval_chart(
        bars,
        ends,
        words.items(),
        title=f"Place among {models}",
        description="; ".join(f"{bar.label} is {bar.note} of them" for bar in bars) + ".",
        entries=[
            ("dot among", "reference models"),
            ("one", f"place by {reference.order}, with its uncertainty"),
        ],
        among=dots.tolist(),
    )
    said = f"Place among {models}, by {reference.order}: the axis says how many of them are weaker"
    if reference.n is not None and reference.n > _DOTS:
        said += f"; each dot stands for about {count(round(reference.n / _DOTS), 'model')}"
    if reference.source is not None:
        said += f". Their answers: {reference.source}"
    return Markup("<figcaption>{}.</figcaption>").format(said) + chart
