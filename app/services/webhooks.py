"""Stores webhooks and their signing keys; `app.worker.webhooks` sends to them."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from app.acting import maker, owner, present
from app.adapters.guard import AddressGuard
from app.adapters.transport import parse_endpoint_url
from app.errors import InvalidInputError
from app.records.webhooks import Webhook
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.secrets import SecretBox

_PREFIX: Final = "whsec_"
#: Bounds on the length of a signing key, from the Standard Webhooks specification.
_LEAST_BYTES, _MOST_BYTES = 24, 64


@dataclass(frozen=True, eq=False)
class WebhookService:
    """Stores webhooks, which `calls_private` allows loopback and private addresses."""

    database: Database
    secrets: SecretBox
    guard: AddressGuard
    calls_private: bool = field(kw_only=True)

    async def create(self, url: str, secret: str, events: Sequence[str]) -> Webhook:
        """Store a webhook, to which `webhook.created` is sent at once.

        Raises:
            InvalidInputError: The URL or the secret cannot be used.
            BlockedAddressError: The URL names an address that this server does not call.
            InvalidStateError: The project has as many webhooks as it may have.
        """
        try:
            host = parse_endpoint_url(url).host
        except ValueError as exc:
            raise InvalidInputError.at("/url", f"url {exc}.") from None
        self.guard.check_host(host, at="/url")
        signing_key(secret)
        made = Webhook(
            id=new_id("whk"),
            url=url,
            events=list(events),
            secret_cipher=self.secrets.encrypt(secret),
            calls_private=self.calls_private and not present().is_from_elsewhere,
            project_id=owner(),
            created_by=maker(),
            created_at=datetime.now(UTC),
        )
        async with self.database.unit_of_work() as uow:
            await uow.webhooks.add(made, new_id("whd"))
        return made


def signing_key(secret: str) -> bytes:
    """The signing key in a secret, as users give it.

    Raises:
        InvalidInputError: The secret has another form.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not secret.startswith(_PREFIX) or not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        raise InvalidInputError.at(
            "/secret",
            f"secret: expected {_PREFIX} and {_LEAST_BYTES} to {_MOST_BYTES} bytes in base64; make "
            f"one with `echo {_PREFIX}$(openssl rand -base64 32)`.",
        )
    return key
