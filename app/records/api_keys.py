"""Keys of our own API, without their secrets, and the audit trail of their changes."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, PlainSerializer

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
class ApiKey(Described):
    """A key without its secret."""

    __pydantic_config__ = ConfigDict(json_schema_serialization_defaults_required=True)

    id: str
    object: Literal["api_key"] = field(default="api_key", init=False)
    project_id: str | None
    """Project that the key can access; null: all projects."""
    name: str
    prefix: str
    """First characters of the secret."""
    scopes: Annotated[frozenset[Scope], PlainSerializer(sorted, return_type=list[str])]
    # For good: what it left running when it was revoked counts, too. Keys with the scope `admin`
    # have none: they make and change keys.
    limits: Limits = field(default_factory=Limits)
    """Limits of the key, within those of its project."""
    created_by: str | None
    """Id of the key that created it."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """Time of the last call or browser visit, to the minute; null: never used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKeyCreated(ApiKey):
    """A new key with its secret, which is shown only once."""

    secret: str


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
