"""Projects as stored, what they and their keys may have, and what was spent."""

from dataclasses import dataclass, field
from datetime import date, datetime

from app.acting import maker

#: What one may take of what others leave: however much somebody has taken, something is left for
#: the next one, who takes of that in turn.
SHARE = 0.75


def share_of(left: int) -> int:
    """Of the places that others leave, how many one may take; one at least."""
    return max(int(SHARE * left), 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allotment:
    """How many of something a project, and the key of it that asks, may have at a time.

    Attributes:
        limit: Its name among the project's limits.
        project: Name of the project.
        most: So many the project; None: any.
        own_most: So many the key by a limit of its own; None: as many as the project leaves it.
        are_shared: Keys of the project other than the one that asks are in force: they may come.
    """

    limit: str
    project: str
    most: int | None
    own_most: int | None = None
    are_shared: bool

    def refusal(self, what: str, *, own: int, taken: int) -> str | None:
        """Why there may not be one more, in words; None: there may.

        Args:
            what: There are so many of them, in the plural.
            own: Of the key that asks.
            taken: Of the whole project.
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
    """What a project, or one key of it, may use; None: as much as there is.

    A key's spend is that of what it began, its store that of what it made.

    Attributes:
        requests_per_s: Requests a second at one process, over ten seconds.
        open_sessions: Sessions that have not ended, members of rankings and those that wait
            included; see `SHARE` for what one key of several may have.
        event_streams: Event streams open at one process; shared by keys likewise.
        usd_per_day: US dollars in a day (UTC), over all calls of endpoints.
        tokens_per_day: Tokens in a day (UTC), prompts and answers.
        stored_bytes: What banks, response sets and ended sessions may take; then nothing new is
            begun.
    """

    requests_per_s: float | None = None
    open_sessions: int | None = None
    event_streams: int | None = None
    usd_per_day: float | None = None
    tokens_per_day: int | None = None
    stored_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """For how many days something stays; None: until it is deleted."""

    sessions_days: int | None = None
    texts_days: int | None = None
    events_days: int | None = None
    audit_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Whose banks, endpoints, sessions and all else there is.

    Attributes:
        created_by: The API key that made it; None: the command line, or nobody noted it.
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
