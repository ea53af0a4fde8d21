"""Projects as stored, the limits of projects and keys, and what they spent."""

from dataclasses import dataclass, field
from datetime import date, datetime

from app.acting import maker

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a project, or of one key of it; None is no limit.

    A key's spend is that of the work it began; its storage is that of what it created.

    Attributes:
        requests_per_s: Requests a second at one process, averaged over ten seconds.
        open_sessions: Sessions that have not ended, including members of rankings and waiting
            sessions; one key of several may have the share `SHARE`.
        event_streams: Event streams open at one process; keys share them in the same way.
        usd_per_day: US dollars in a day (UTC), over all calls of endpoints.
        tokens_per_day: Tokens in a day (UTC), prompts and answers.
        stored_bytes: Bytes of banks, response sets and ended sessions; above it nothing new may
            begin.
    """

    requests_per_s: float | None = None
    open_sessions: int | None = None
    event_streams: int | None = None
    usd_per_day: float | None = None
    tokens_per_day: int | None = None
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Days after which stored data is deleted; None keeps it until somebody deletes it."""

    sessions_days: int | None = None
    texts_days: int | None = None
    events_days: int | None = None
    audit_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project, which owns banks, endpoints, sessions and everything else.

    Attributes:
        created_by: API key that created the project; None for the command line, or if not recorded.
    """

    id: str
    name: str
    description: str = ""
    limits: Limits = field(default_factory=Limits)
    retention: Retention = field(default_factory=Retention)
    revision: int = 1
    created_by: str | None = field(default_factory=maker)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MostTaken:
    """Upper bounds of what a call may cost.

    Attributes:
        usd: US dollars; None where the price is unknown.
        tokens: Tokens of prompt and answer; None where nothing limits the answer.
    """

    usd: float | None
    tokens: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Actual cost of a call; where it is None, the reserved amount counts."""

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
        reserved: Reserved for running calls.
    """

    budget_of: str
    unit: str
    day: date
    cap: float
    spent: float
    reserved: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DaySpend:
    """Today's spend of a project, an endpoint or a key."""

    day: date
    usd: float
    usd_reserved: float
    tokens: int
    tokens_reserved: int
