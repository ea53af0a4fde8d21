"""The audit trail as JSON."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from app.api.schemas.common import Output


class AuditRead(Output):
    """Who changed what, when, and from where."""

    id: str
    object: Literal["audit_entry"] = "audit_entry"
    at: datetime
    project_id: str | None
    key_id: str | None = Field(
        description="The API key; `local` without authentication, null for the command line."
    )
    action: str = Field(description="`operationId` of this document, or the command.")
    path: str = Field(description="Of the request.")
    resources: list[str] = Field(description="Ids of what was made, changed or deleted.")
    request_id: str | None
    address: str = Field(description="Where the request came from.")
