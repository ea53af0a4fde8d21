"""Projects and their budgets of a day as JSON."""

from datetime import date, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints

from app.api.schemas.common import ABSENT, MADE_BY, WHOLE, Input, Name, Output, Text
from app.records.fields import convert, shallow
from app.records.projects import DaySpend, Limits, Project, Retention
from app.services.endpoints.budgets import Budget

UsdPerDay = Annotated[
    float,
    Field(
        gt=0,
        le=1e9,
        description="US dollars that calls may cost in a day (UTC), over all sessions, rankings, "
        "judges, embeddings, probes and previews. Calls beyond the budget wait.",
    ),
]
TokensPerDay = Annotated[
    int,
    Field(
        ge=1,
        le=10**15,
        description="Tokens that calls may use in a day (UTC), prompts and answers together.",
    ),
    WHOLE,
]


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


Count = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
# Far slower than that, and `Retry-After` is no number that anybody can read.
Rate = Annotated[float, Field(ge=0.001, le=1e6)]
StoredBytes = Annotated[int, Field(ge=1, le=2**53), WHOLE]
_Days = Annotated[int, Field(ge=1, le=36_500), WHOLE]
_Description = Annotated[Text, StringConstraints(max_length=2000)]


class UsageLimits(Input):
    """Limits of a project, or of one of its keys. A limit of null is no limit."""

    requests_per_s: Rate | None = None
    """Requests per second at one process, averaged over ten seconds; more are answered with 429.
    While other keys of the project send requests, one key may use three quarters of it."""
    open_sessions: Count | None = None
    """Sessions that have not ended, including members of rankings; more are refused with 429. If
    the project has several keys, one key may have three quarters of what the other keys leave."""
    event_streams: Count | None = None
    """Open event streams at one process, including those of pages; more are refused with 429. If
    the project has several keys, one key may have three quarters of what the other keys leave."""
    usd_per_day: UsdPerDay | None = None
    tokens_per_day: TokensPerDay | None = None
    stored_bytes: StoredBytes | None = None
    """Bytes that items, imported answers and ended sessions may take, as stored; for a key, of what
    it created. Above it no session or import can begin."""


class ProjectRetention(Input):
    """Days after which data is deleted; null keeps it until somebody deletes it."""

    sessions_days: _Days | None = None
    """Ended sessions and rankings, with everything that belongs to them."""
    texts_days: _Days | None = None
    """Texts that endpoints wrote; scores and figures are kept."""
    events_days: _Days | None = None
    """Events of ended sessions, rankings and calibrations."""
    audit_days: _Days | None = None
    """Entries of the audit trail."""


class ProjectCreate(Input):
    """A new project."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "search"}]})

    name: Name
    description: _Description = ""
    limits: UsageLimits = Field(default_factory=UsageLimits)
    retention: ProjectRetention = Field(default_factory=ProjectRetention)


class ProjectUpdate(Input):
    """Fields to change. A field that is left out keeps its value."""

    name: Name = ABSENT
    description: _Description = ABSENT
    limits: UsageLimits = ABSENT
    retention: ProjectRetention = ABSENT

    def to_changes(self) -> dict[str, Any]:
        """The same for the service."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        if "limits" in changes:
            changes["limits"] = convert(Limits, self.limits)
        if "retention" in changes:
            changes["retention"] = convert(Retention, self.retention)
        return changes


class ProjectRead(Output):
    """A project."""

    id: str
    object: Literal["project"] = "project"
    name: str
    description: str
    limits: dict[str, int | float | None]
    retention: dict[str, int | None]
    revision: int
    created_by: str | None = Field(description=MADE_BY)
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, project: Project) -> "ProjectRead":
        """The outgoing shape of a project."""
        said = {"limits": shallow(project.limits), "retention": shallow(project.retention)}
        return cls.read({**shallow(project), **said})
