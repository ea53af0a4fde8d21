"""Webhooks as JSON."""

from datetime import datetime
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, SecretStr
from typing_extensions import TypeAliasType

from app.shapes import Input, OwnedRead, Text

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
