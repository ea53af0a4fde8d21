"""Projects as stored, the limits of projects and keys, and what they spent."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from app.acting import maker
from app.shapes import MADE_BY, WHOLE, Described, Number, Value, Whole

#: Share of the places left by others that one key may take. So something is always left for the
#: next key, which in turn may take this share of the rest.
SHARE = 0.75


def share_of(left: int) -> int:
    """Number of the `left` places that one key may take; at least one."""
    return max(int(SHARE * left), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """Limits on how many of something a project, and the calling key of it, may have at a time.

    Attributes:
        limit: Name of the limit among the project's limits.
        project: Name of the project.
        most: Limit of the project; None is no limit.
        own_most: The key's own limit; None: as many as the project leaves.
        are_shared: Whether other keys of the project are valid, and so may need places, too.
    """

    limit: str
    project: str
    most: int | None
    own_most: int | None = None
    are_shared: bool

    def refusal(self, what: str, *, own: int, taken: int) -> str | None:
        """Reason to refuse one more, in words; None if one more is allowed.

        Args:
            what: Name of the things, in the plural.
            own: Number that the calling key has.
            taken: Number that the whole project has.
        """
        if self.most is not None and taken >= self.most:
            return (
                f"Project {self.project!r} has {taken} {what}, as many as it may have by its limit "
                f"{self.limit}: {self.most}."
            )
        if self.own_most is not None and own >= self.own_most:
            return (
                f"This key has {own} {what}, as many as it may have by its own limit {self.limit}: "
                f"{self.own_most}."
            )
        if self.most is None:
            return None
        others = taken - own
        if (self.are_shared or others) and own >= share_of(self.most - others):
            return (
                f"This key has {own} {what}, as many as one key may have now: three quarters of "
                f"what the other keys of project {self.project!r} leave of its limit {self.limit}: "
                f"{self.most}."
            )
        return None


UsdPerDay = Annotated[
    Number,
    Field(
        gt=0,
        le=1e9,
        description="US dollars that calls may cost in a day (UTC), over all sessions, rankings, "
        "judges, embeddings, probes and previews. Calls beyond the budget wait.",
    ),
]
TokensPerDay = Annotated[
    Whole,
    Field(
        ge=1,
        le=10**15,
        description="Tokens that calls may use in a day (UTC), prompts and answers together.",
    ),
    WHOLE,
]
_Count = Annotated[Whole, Field(ge=0, le=2**31 - 1), WHOLE]
_Days = Annotated[Whole, Field(ge=1, le=36_500), WHOLE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(Value):
    """Limits of a project, or of one of its keys. A limit of null is no limit."""

    # Far slower than that, and `Retry-After` is no number that anybody can read.
    requests_per_s: Annotated[Number, Field(ge=0.001, le=1e6)] | None = None
    """Requests per second at one process, averaged over ten seconds; more are answered with 429.
    While other keys of the project send requests, one key may use three quarters of it."""
    open_sessions: _Count | None = None
    """Sessions that have not ended, including members of rankings; more are refused with 429. If
    the project has several keys, one key may have three quarters of what the other keys leave."""
    event_streams: _Count | None = None
    """Open event streams at one process, including those of pages; more are refused with 429. If
    the project has several keys, one key may have three quarters of what the other keys leave."""
    usd_per_day: UsdPerDay | None = None
    tokens_per_day: TokensPerDay | None = None
    stored_bytes: Annotated[Whole, Field(ge=1, le=2**53), WHOLE] | None = None
    """Bytes that items, imported answers and ended sessions may take, as stored; for a key, of what
    it created. Above it no session or import can begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention(Value):
    """Days after which data is deleted; null keeps it until somebody deletes it."""

    sessions_days: _Days | None = None
    """Ended sessions and rankings, with everything that belongs to them."""
    texts_days: _Days | None = None
    """Texts that endpoints wrote; scores and figures are kept."""
    events_days: _Days | None = None
    """Events of ended sessions, rankings and calibrations."""
    audit_days: _Days | None = None
    """Entries of the audit trail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project(Described):
    """A project, which owns banks, endpoints, sessions and everything else."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    id: str
    object: Literal["project"] = field(default="project", init=False)
    name: str
    description: str = ""
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    revision: int = 1
    created_by: Annotated[str | None, Field(description=MADE_BY)] = field(default_factory=maker)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a call took, or may take at most.

    Attributes:
        usd: US dollars; None where the price or the number of tokens is unknown.
        tokens: Tokens of prompt and answer; None where the endpoint reports none, and of a call to
            come where nothing limits the answer.
    """

    usd: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Reason why a call may not be made now.

    Attributes:
        budget_of: `project`, `endpoint` or `key`.
        unit: `usd` or `tokens`.
        day: Day of the budget, in UTC.
        cap: The budget, in `unit`.
        spent: Spent by calls that ended.
    """

    budget_of: str
    unit: str
    day: date
    cap: float
    spent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """Today's spend of a project, an endpoint or a key."""

    day: date
    usd: float
    usd_reserved: float
    tokens: int
    tokens_reserved: int
