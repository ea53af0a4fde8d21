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


Count = Annotated[int, Field(ge=0, le=2**31 - 1), WHOLE]
# Far slower than that, and `Retry-After` is no number that anybody can read.
Rate = Annotated[float, Field(ge=0.001, le=1e6)]
StoredBytes = Annotated[int, Field(ge=1, le=2**53), WHOLE]
_Days = Annotated[int, Field(ge=1, le=36_500), WHOLE]
_Description = Annotated[Text, StringConstraints(max_length=2000)]


class UsageLimits(Input):
    """What a project, or a key of it, may use; null: as much as there is."""

    requests_per_s: Rate | None = Field(
        default=None,
        description="Requests a second at one process, over ten seconds; else 429. One key has "
        "three quarters of the project's while others of it ask.",
    )
    open_sessions: Count | None = Field(
        default=None,
        description="Sessions that have not ended, members of rankings included; else 429. One key "
        "of several has three quarters of what the others leave of the project's.",
    )
    event_streams: Count | None = Field(
        default=None,
        description="Event streams open at one process, pages included; else 429. One key of "
        "several has three quarters of what the others leave of the project's.",
    )
    usd_per_day: UsdPerDay | None = None
    tokens_per_day: TokensPerDay | None = None
    stored_bytes: StoredBytes | None = Field(
        default=None,
        description="Bytes that items, imported answers and ended sessions may take, as they are "
        "stored; of a key those in what it made, by any key. Then no session or import is "
        "begun.",
    )


class ProjectRetention(Input):
    """For how many days something stays; null: until it is deleted."""

    sessions_days: _Days | None = Field(
        default=None, description="Ended sessions and rankings, with all that belongs to them."
    )
    texts_days: _Days | None = Field(
        default=None, description="What endpoints wrote; scores and figures stay."
    )
    events_days: _Days | None = Field(default=None, description="Events of what has ended.")
    audit_days: _Days | None = Field(default=None, description="Entries of the audit trail.")


class ProjectCreate(Input):
    """A new project."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"name": "search"}]})

    name: Name
    description: _Description = ""
    limits: UsageLimits = Field(default_factory=UsageLimits)
    retention: ProjectRetention = Field(default_factory=ProjectRetention)


class ProjectUpdate(Input):
    """What shall be different. A field that is left out stays as it is."""

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
