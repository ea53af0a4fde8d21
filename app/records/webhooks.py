"""Webhooks and their deliveries as stored."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Status = Literal["pending", "delivered", "given_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Address that gets a project's events of ended work; names as in the table `webhooks`."""

    id: str
    url: str
    events: list[str]
    secret_cipher: bytes = field(repr=False)
    calls_private: bool
    project_id: str
    created_by: str | None
    created_at: datetime
    disabled_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook; names as in the table `webhook_deliveries`."""

    id: str
    webhook_id: str
    type: str
    data: dict[str, Any]
    attempts: int
    due_at: datetime | None
    delivered_at: datetime | None
    status_code: int | None
    error: str | None
    created_at: datetime

    @property
    def status(self) -> Status:
        """Whether the event was delivered, or still may be."""
        if self.delivered_at is not None:
            return "delivered"
        return "given_up" if self.due_at is None else "pending"
