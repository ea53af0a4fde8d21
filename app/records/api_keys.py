"""Keys of our own API, without their secrets, and the audit trail of their changes."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Literal

from app.records.projects import Limits
from app.shapes import Described


class Scope(StrEnum):
    """What a key may do."""

    READ = "read"
    """See everything that is not a secret."""
    RUN = "run"
    """Create and steer sessions, endpoints included."""
    BANKS_WRITE = "banks:write"
    """Change banks and publish versions."""
    ADMIN = "admin"
    """All of the above, and keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key without its secret."""

    id: str
    project_id: str | None
    """Project whose data the key reaches; None for any project that a request names."""
    name: str
    prefix: str
    """First characters of the secret, to tell keys apart."""
    scopes: frozenset[Scope]
    limits: Limits = field(default_factory=Limits)
    """What it may use of its project's, for good: also of what it left running when it was revoked.
    Keys with the scope `admin` have none: they make and change keys."""
    created_by: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """Accurate to the minute: not every call is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Described):
    """Who changed what, when, and from where."""

    id: str
    object: Literal["audit_entry"] = field(default="audit_entry", init=False)
    at: datetime
    project_id: str | None
    key_id: str | None
    """The API key; `local` without authentication, null for the command line."""
    action: str
    """`operationId` in this document, or the command."""
    path: str
    """Path of the request."""
    resources: list[str]
    """Ids of what was created, changed or deleted."""
    request_id: str | None
    address: str
    """Where the request came from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Filter of audit entries; None leaves a field open."""

    project_id: str | None = None
    key_id: str | None = None
    resource: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
