"""Budgets of a day as JSON."""

from datetime import date
from typing import Annotated, Literal, Self

from pydantic import Field

from app.api.schemas.common import WHOLE, Output
from app.records.projects import DaySpend, Limits
from app.services.endpoints.budgets import Budget

UsdPerDay = Annotated[
    float,
    Field(
        gt=0,
        le=1e9,
        description="US dollars that calls may take in a day (UTC), over all sessions, rankings, "
        "judges, embeddings, probes and previews. What does not fit waits.",
    ),
]
TokensPerDay = Annotated[
    int,
    Field(
        ge=1,
        le=10**15,
        description="Tokens that calls may take in a day (UTC), prompts and answers together.",
    ),
    WHOLE,
]


class BudgetRead(Output):
    """One budget of today; it is counted where one is set."""

    limit: float | None
    spent: float
    reserved: float = Field(description="What calls under way may still take.")
    left: float | None = Field(description="Of the limit; null without one.")

    @classmethod
    def of(cls, limit: float | None, spent: float, reserved: float) -> Self:
        """What is left of `limit`, if there is one."""
        left = None if limit is None else max(0.0, limit - spent - reserved)
        return cls(limit=limit, spent=spent, reserved=reserved, left=left)


class SpendRead(Output):
    """What calls take of today's budgets."""

    object: Literal["spend"] = "spend"
    day: date = Field(description="In UTC.")
    usd: BudgetRead
    tokens: BudgetRead

    @classmethod
    def of(cls, limits: Budget, today: DaySpend) -> Self:
        """What is spent of `limits`."""
        return cls(
            day=today.day,
            usd=BudgetRead.of(limits.usd_per_day, today.usd, today.usd_reserved),
            tokens=BudgetRead.of(limits.tokens_per_day, today.tokens, today.tokens_reserved),
        )


class UseRead(SpendRead):
    """What a project, or a key of it, uses of today's budgets and of the store."""

    stored_bytes: BudgetRead = Field(
        description="Items, imported answers, baselines and ended sessions, as they are "
        "stored; of a key what it made, by any key."
    )

    @classmethod
    def of_limits(cls, limits: Limits, today: DaySpend, stored: int) -> Self:
        """What is used of `limits`."""
        kept = BudgetRead.of(limits.stored_bytes, stored, 0)
        return cls(**dict(SpendRead.of(limits, today)), stored_bytes=kept)


class ProjectSpendRead(UseRead):
    """What a project uses, and of that the key that asks."""

    key: UseRead | None = Field(
        default=None,
        description="What the key that asks uses, of limits of its own; null of a key of all "
        "projects.",
    )
