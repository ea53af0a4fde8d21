"""Projects as stored: whose something is, what they may use, how long it stays."""

from dataclasses import dataclass, field
from datetime import datetime

from app.acting import maker


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a project, or one key of it, may use; None: as much as there is.

    A key's spend is that of what it began, its store that of what it made.

    Attributes:
        requests_per_s: Requests a second at one process, over ten seconds.
        open_sessions: Sessions that have not ended, members of rankings and those that wait
            included; see `app.records.allotments` for what one key of several may have.
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
    """For how many days something stays; None: until it is deleted.

    Attributes:
        sessions_days: Ended sessions, rankings among them, with all that belongs to them.
        texts_days: What endpoints wrote: answers, raw texts, reasoning. Marks and figures stay.
        events_days: Events of what has ended.
        audit_days: Entries of the audit trail.
    """

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
