"""Budgets of a day: what may be spent, is spent, and may still be taken by calls under way."""

from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True, slots=True, kw_only=True)
class MostTaken:
    """What a call may take at most.

    Attributes:
        usd: None where its price is not known.
        tokens: Prompt and answer; None where nothing bounds the answer.
    """

    usd: float | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a call took; None where nobody said: what was reserved counts."""

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a call may not be made now.

    Attributes:
        budget_of: `project`, `endpoint` or `key`.
        unit: `usd` or `tokens`.
        day: In UTC.
        cap: The budget.
        spent: By calls that ended.
        reserved: For calls under way.
    """

    budget_of: str
    unit: str
    day: date
    cap: float
    spent: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """What a project, an endpoint or a key has spent today."""

    day: date
    usd: float
    usd_reserved: float
    tokens: int
    tokens_reserved: int
