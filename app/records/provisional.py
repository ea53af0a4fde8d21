"""Versions with uncertain items: how uncertain they are, and when to calibrate again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from app.printable import percent

#: Part of a bank version's knowledge.
PROVISIONAL = "provisional"
#: Uncertain items that widen standard errors of theta by less than this count as calibrated.
NEGLIGIBLE = 0.05
#: Examinees for a first calibration; each later one needs half as many again.
FIRST_EXAMINEES = 30
GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisional:
    """How uncertain the item parameters of a version are.

    Attributes:
        n_examinees: Number of examinees whose answers were used; 0 before anybody answered.
        n_answers: Number of these answers.
        answers_per_item: Median number of answers to an item.
        se_b: Median standard error of an item's difficulty, logits; None if unknown.
        widening: Relative increase of standard errors of theta by the uncertainty of the items.
    """

    n_examinees: int
    n_answers: int
    answers_per_item: float
    se_b: float | None
    widening: float

    @classmethod
    def of(cls, knowledge: Mapping[str, Any]) -> "Provisional | None":
        """Read from a version's knowledge; None if the version's items are not provisional."""
        known = knowledge.get(PROVISIONAL)
        if known is None:
            return None
        return cls(**{name: known[name] for name in cls.__slots__})

    @property
    def matters(self) -> bool:
        """Whether the uncertainty must be shown with every result."""
        return self.widening > NEGLIGIBLE

    @property
    def next_examinees(self) -> int:
        """Total number of examinees at which another calibration is worthwhile."""
        return max(FIRST_EXAMINEES, round(GROWTH * self.n_examinees))


def provisional_words(known: Provisional) -> str:
    """Describe the uncertainty in a sentence or two, for readers of a result."""
    wider = f"Standard errors include that, and are {percent(known.widening)} wider for it"
    if not known.n_examinees:
        return (
            "Difficulties are guesses: no model has answered these questions yet. "
            f"{wider}; theta's unit and zero are guesses, too: compare models that were tested on "
            "this version with each other, and with nothing else."
        )
    error = "" if known.se_b is None else f", so that difficulties are known to ±{known.se_b:.2f}"
    return (
        f"The items' parameters are provisional: they rest on the answers of {known.n_examinees} "
        f"examinees, {known.answers_per_item:.0f} to an item{error}. {wider}."
    )
