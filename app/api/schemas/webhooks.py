"""Webhooks as JSON."""

from datetime import datetime
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, SecretStr
from typing_extensions import TypeAliasType

from app.items import JsonObject
from app.records.webhooks import Status
from app.shapes import Input, Output, OwnedRead, Text

WebhookEvent = TypeAliasType(
    "WebhookEvent",
    Literal[
        "session.completed",
        "session.failed",
        "session.cancelled",
        "ranking.completed",
        "ranking.failed",
        "ranking.cancelled",
        "calibration.completed",
        "calibration.failed",
        "calibration.cancelled",
        "gate.decided",
        "endpoint.failed",
    ],
)
ALL_EVENTS: Final = list[WebhookEvent](get_args(WebhookEvent.__value__))


class WebhookCreate(Input):
    """A URL that receives events, and the secret that signs them."""

    url: Annotated[
        Text,
        Field(
            max_length=2048,
            examples=["https://ci.example.com/sextant"],
            description="Absolute https or http URL. It is stored and shown in plain text; "
            "redirects are not followed.",
        ),
    ]
    secret: Annotated[
        SecretStr,
        Field(
            min_length=1,
            max_length=200,
            examples=["whsec_bm90LWEtc2VjcmV0LWp1c3QtYW4tZXhhbXBsZQ=="],
            description="`whsec_` and 24 to 64 random bytes in base64, as in Standard Webhooks: "
            "`echo whsec_$(openssl rand -base64 32)`. It is stored encrypted and never shown.",
        ),
    ]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=len(ALL_EVENTS))] = (
        ALL_EVENTS
    )
    """Types of events to send. Default: all."""


class WebhookRead(OwnedRead):
    """A webhook, without its secret."""

    id: str
    object: Literal["webhook"] = "webhook"
    url: str
    events: list[WebhookEvent]
    created_at: datetime
    disabled_at: datetime | None
    """Time when the receiver answered 410. Nothing is sent since then."""


class DeliveryRead(Output):
    """One event for one webhook, sent as `{type, timestamp, data}`."""

    id: str
    """Value of the header `webhook-id`, the same in all attempts."""
    object: Literal["webhook_delivery"] = "webhook_delivery"
    webhook_id: str
    type: str
    data: JsonObject
    """The data that is sent. The outcome of a gate is added when it is sent."""
    status: Status
    """`given_up`: nine attempts over a day failed, or the webhook was disabled."""
    attempts: int
    status_code: int | None
    """HTTP status of the receiver's last answer."""
    error: str | None
    """Why the last attempt failed."""
    created_at: datetime
    due_at: datetime | None
    """Time of the next attempt."""
    delivered_at: datetime | None
