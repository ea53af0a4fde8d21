"""Encrypted data: the rows with ciphertexts, and a known text that verifies the secret key."""

from dataclasses import dataclass, field

from sqlalchemy import select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from app.storage.rows.projects import EndpointRow, IdempotencyRow, SecretCanaryRow, WebhookRow
from app.storage.scoping import FOR_ALL, Repository

_ONLY = 1
_BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedEndpoint:
    """Ciphertexts of an endpoint, and its name for people."""

    id: str
    name: str | None
    is_deleted: bool
    ciphers: dict[str, bytes] = field(repr=False)
    """`api_key` and `headers`, as far as there are any."""


class SecretRepository(Repository):
    """Ciphertexts of all tables, within one transaction."""

    async def canary(self, *, for_update: bool = False) -> bytes | None:
        """Ciphertext of the known text; None in a database that never held a secret."""
        query = select(SecretCanaryRow.cipher).where(SecretCanaryRow.id == _ONLY)
        return await self._db.scalar(query.with_for_update() if for_update else query)

    async def add_canary(self, cipher: bytes) -> None:
        """Store the ciphertext of the known text, unless another process was first."""
        await self._db.execute(
            insert(SecretCanaryRow).values(id=_ONLY, cipher=cipher).on_conflict_do_nothing()
        )

    async def replace_canary(self, cipher: bytes) -> None:
        """Replace the known text's ciphertext by one under another key."""
        await self._db.execute(
            update(SecretCanaryRow).where(SecretCanaryRow.id == _ONLY).values(cipher=cipher)
        )

    async def endpoints(self, *, after: str = "", for_update: bool = False) -> list[SealedEndpoint]:
        """The next endpoints with secrets, including deleted ones, which sessions still use."""
        query = (
            select(EndpointRow)
            .where(
                EndpointRow.id > after,
                EndpointRow.api_key_cipher.is_not(None) | EndpointRow.headers_cipher.is_not(None),
            )
            .order_by(EndpointRow.id)
            .limit(_BATCH)
            .execution_options(**FOR_ALL)
        )
        # The lock allows new sessions meanwhile, as the columns to which they refer do not change.
        locked = query.with_for_update(key_share=True) if for_update else query
        rows = await self._db.scalars(locked)
        return [
            SealedEndpoint(
                id=row.id,
                name=row.name,
                is_deleted=row.archived_at is not None,
                ciphers={
                    name: cipher
                    for name, cipher in (
                        ("api_key", row.api_key_cipher),
                        ("headers", row.headers_cipher),
                    )
                    if cipher is not None
                },
            )
            for row in rows
        ]

    async def renew_endpoint(self, endpoint_id: str, ciphers: dict[str, bytes]) -> None:
        """Write new ciphertexts of the same secrets; owners see no change of the endpoint."""
        await self._db.execute(
            update(EndpointRow)
            .where(EndpointRow.id == endpoint_id)
            .values({f"{name}_cipher": cipher for name, cipher in ciphers.items()})
            .execution_options(**FOR_ALL)
        )

    async def answers(
        self, *, after: tuple[str, str] = ("", "")
    ) -> list[tuple[tuple[str, str], bytes]]:
        """Lock the next stored answers to creating calls; return their keys and ciphertexts."""
        place = tuple_(IdempotencyRow.principal, IdempotencyRow.key)
        rows = await self._db.execute(
            select(IdempotencyRow.principal, IdempotencyRow.key, IdempotencyRow.response_body)
            .where(place > tuple_(*after), IdempotencyRow.response_body.is_not(None))
            .order_by(IdempotencyRow.principal, IdempotencyRow.key)
            .limit(_BATCH)
            .with_for_update()
        )
        return [((row.principal, row.key), row.response_body) for row in rows]

    async def renew_answer(self, key: tuple[str, str], cipher: bytes) -> None:
        """Write the new ciphertext of a stored answer."""
        await self._db.execute(
            update(IdempotencyRow)
            .where(IdempotencyRow.principal == key[0], IdempotencyRow.key == key[1])
            .values(response_body=cipher)
        )

    async def webhooks(self) -> list[tuple[str, bytes]]:
        """Lock all webhooks; return their ids and ciphertexts."""
        found = select(WebhookRow.id, WebhookRow.secret_cipher).order_by(WebhookRow.id)
        locked = found.with_for_update(key_share=True).execution_options(**FOR_ALL)
        return [(row.id, row.secret_cipher) for row in await self._db.execute(locked)]

    async def renew_webhook(self, webhook_id: str, cipher: bytes) -> None:
        """Write the new ciphertext of a webhook's secret."""
        renewed = update(WebhookRow).where(WebhookRow.id == webhook_id)
        await self._db.execute(renewed.values(secret_cipher=cipher).execution_options(**FOR_ALL))
