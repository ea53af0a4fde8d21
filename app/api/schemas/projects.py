"""Projects, their API keys, and what both spent of their budgets of a day, as JSON."""

from datetime import date
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, TypeAdapter

from app.deps import ScopeName
from app.records.projects import DaySpend, Limits, Retention
from app.services.endpoints.budgets import Budget
from app.shapes import ABSENT, Input, Moment, Name, Output, ShownAs, Text, examples


class BudgetRead(Output):
    """One of today's budgets. Spending is counted only where a budget is set."""

    limit: float | None
    spent: float
    reserved: float
    """Reserved for calls in flight: the most they may use."""
    left: float | None
    """Remainder of the limit; null without a limit."""

    @classmethod
    def of(cls, limit: float | None, spent: float, reserved: float) -> Self:
        """What is left of `limit`, if there is one."""
        left = None if limit is None else max(0.0, limit - spent - reserved)
        return cls(limit=limit, spent=spent, reserved=reserved, left=left)


class SpendRead(Output):
    """Usage of today's budgets by calls."""

    object: Literal["spend"] = "spend"
    day: date
    """The day, in UTC."""
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
    """Usage of today's budgets and of storage, by a project or by one of its keys."""

    stored_bytes: BudgetRead
    """Bytes of items, imported answers, baselines and ended sessions, as stored. For a key: of what
    it created."""

    @classmethod
    def of_limits(cls, limits: Limits, today: DaySpend, stored: int) -> Self:
        """What is used of `limits`."""
        kept = BudgetRead.of(limits.stored_bytes, stored, 0)
        return cls(**dict(SpendRead.of(limits, today)), stored_bytes=kept)


class ProjectSpendRead(UseRead):
    """Usage of a project, and the part of the calling key."""

    key: UseRead | None = None
    """Usage of the calling key and its limits; null for a key of all projects."""


_Description = Annotated[Text, StringConstraints(max_length=2000)]


class ProjectCreate(Input):
    """A new project."""

    model_config = examples({"name": "search"})

    name: Name
    description: _Description = ""
    limits: Limits = Field(default_factory=Limits)
    retention: Retention = Field(default_factory=Retention)


class ProjectUpdate(Input):
    """Fields to change. A field that is left out keeps its value."""

    name: Name = ABSENT
    description: _Description = ABSENT
    limits: Limits = ABSENT
    retention: Retention = ABSENT


class ApiKeyCreate(Input):
    """A new key of this API."""

    model_config = examples({"name": "ci", "scopes": ["read", "run"]})

    name: Name
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=4)]
    project: Name | None = None
    """Id or name of the project whose data the key can access. Default: the project of the calling
    key. If a key of all projects creates a key with the scope `admin`, the default is all
    projects."""
    limits: Limits = Field(default_factory=Limits)
    """Limits of the key, within those of its project; none with the scope `admin`."""
    expires_at: Moment | None = None
    """RFC 3339 time with offset. Without it, the key does not expire."""


_LIMITS = TypeAdapter(Limits)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    limits = _LIMITS.validate_python(given)
    return {name: getattr(limits, name) for name in given}


class ApiKeyUpdate(Input):
    """Fields to change."""

    model_config = examples({"limits": {"usd_per_day": 5}})

    limits: Annotated[dict[str, Any], AfterValidator(_checked), ShownAs(Limits)] = Field(
        default_factory=dict,
        description="Limits to change. One that is left out keeps its value; null removes it.",
    )
