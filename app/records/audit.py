"""The audit trail as stored."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Who changed what, when, and from where."""

    id: str
    at: datetime
    project_id: str | None
    key_id: str | None
    action: str
    path: str
    resources: Sequence[str]
    request_id: str | None
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilter:
    """Which entries are wanted; what is None does not matter."""

    project_id: str | None = None
    key_id: str | None = None
    resource: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
