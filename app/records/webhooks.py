"""Webhooks and their deliveries as stored."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pydantic import computed_field

from app.items import JsonObject
from app.shapes import Described

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
class Delivery(Described):
    """One event for one webhook, sent as `{type, timestamp, data}`."""

    id: str
    """Value of the header `webhook-id`, the same in all attempts."""
    object: Literal["webhook_delivery"] = field(default="webhook_delivery", init=False)
    webhook_id: str
    type: str
    data: JsonObject
    """The data that is sent. The outcome of a gate is added when it is sent."""
    attempts: int
    status_code: int | None
    """HTTP status of the receiver's last answer."""
    error: str | None
    """Why the last attempt failed."""
    created_at: datetime
    due_at: datetime | None
    """Time of the next attempt."""
    delivered_at: datetime | None

    @computed_field(  # type: ignore[prop-decorator]  # mypy knows no decorated property
        description="`given_up`: nine attempts over a day failed, or the webhook was disabled."
    )
    @property
    def status(self) -> Status:
        """Whether the event was delivered, or still may be."""
        if self.delivered_at is not None:
            return "delivered"
        return "given_up" if self.due_at is None else "pending"
