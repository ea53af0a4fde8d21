"""Webhooks as JSON."""

from datetime import datetime
from typing import Annotated, Final, Literal, get_args

from pydantic import Field, SecretStr
from typing_extensions import TypeAliasType

from app.api.schemas.common import Input, Output, OwnedRead, Text
from app.items import JsonObject
from app.records.webhooks import Status

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
    """Where to tell what has ended, and the secret that signs."""

    url: Annotated[
        Text,
        Field(
            max_length=2048,
            examples=["https://ci.example.com/sextant"],
            description="Absolute https or http URL. Stored and shown as it is; redirects are not "
            "followed.",
        ),
    ]
    secret: Annotated[
        SecretStr,
        Field(
            min_length=1,
            max_length=200,
            examples=["whsec_bm90LWEtc2VjcmV0LWp1c3QtYW4tZXhhbXBsZQ=="],
            description="`whsec_` and 24 to 64 random bytes in base64, as Standard Webhooks has it:"
            " `echo whsec_$(openssl rand -base64 32)`. Stored encrypted, never shown.",
        ),
    ]
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=len(ALL_EVENTS))] = Field(
        default=ALL_EVENTS, description="What is sent; all of it where this is left out."
    )


class WebhookRead(OwnedRead):
    """A webhook; its secret is not part of it."""

    id: str
    object: Literal["webhook"] = "webhook"
    url: str
    events: list[WebhookEvent]
    created_at: datetime
    disabled_at: datetime | None = Field(
        description="When its receiver answered 410: nothing is sent any more."
    )


class DeliveryRead(Output):
    """One event for one webhook, sent as `{type, timestamp, data}`."""

    id: str = Field(description="Header `webhook-id`: the same in all attempts.")
    object: Literal["webhook_delivery"] = "webhook_delivery"
    webhook_id: str
    type: str
    data: JsonObject = Field(description="What is sent; the outcome of a gate is added when it is.")
    status: Status = Field(
        description="`given_up`: after nine attempts over a day, or because the webhook was "
        "disabled."
    )
    attempts: int
    status_code: int | None = Field(description="What the receiver answered last.")
    error: str | None = Field(description="Why the last attempt was none.")
    created_at: datetime
    due_at: datetime | None = Field(description="When it is tried next.")
    delivered_at: datetime | None
