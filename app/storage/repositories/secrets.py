"""Encrypted data: the rows with ciphertexts, and a known text that verifies the secret key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import and_, or_, select, tuple_, update
from sqlalchemy.dialects.postgresql import insert

from app.storage.rows.projects import EndpointRow, IdempotencyRow, SecretCanaryRow, WebhookRow
from app.storage.scoping import FOR_ALL, Repository

_ONLY = 1
_BATCH = 100

SealedKind = Literal["endpoints", "answers", "webhooks"]
#: What has secrets -> its table, its key, and the columns of its ciphertexts by their names.
_SEALED: Mapping[SealedKind, tuple[Any, tuple[str, ...], Mapping[str, str]]] = {
    "endpoints": (EndpointRow, ("id",), {"api_key": "api_key_cipher", "headers": "headers_cipher"}),
    "answers": (IdempotencyRow, ("principal", "key"), {"body": "response_body"}),
    "webhooks": (WebhookRow, ("id",), {"secret": "secret_cipher"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """Ciphertexts of one row.

    Attributes:
        name: Name of an endpoint, for people.
        is_deleted: Whether it is a deleted endpoint.
        ciphers: Ciphertexts by what they are, as far as there are any.
    """

    key: tuple[str, ...]
    name: str | None
    is_deleted: bool
    ciphers: Mapping[str, bytes] = field(repr=False)

    @property
    def id(self) -> str:
        """Id of the endpoint or webhook."""
        return self.key[0]


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

    async def sealed(
        self, kind: SealedKind, after: Sealed | None = None, *, for_update: bool = False
    ) -> list[Sealed]:
        """The next rows with secrets in order of their keys, deleted endpoints included."""
        row, key, columns = _SEALED[kind]
        place = [getattr(row, name) for name in key]
        query = (
            select(row)
            .where(or_(*(getattr(row, column).is_not(None) for column in columns.values())))
            .order_by(*place)
            .limit(_BATCH)
            .execution_options(**FOR_ALL)
        )
        if after is not None:
            query = query.where(tuple_(*place) > tuple_(*after.key))
        # The lock allows new sessions meanwhile, as the columns to which they refer do not change.
        locked = query.with_for_update(key_share=True) if for_update else query
        return [
            Sealed(
                key=tuple(getattr(one, name) for name in key),
                name=getattr(one, "name", None),
                is_deleted=getattr(one, "archived_at", None) is not None,
                ciphers={
                    name: cipher
                    for name, column in columns.items()
                    if (cipher := getattr(one, column)) is not None
                },
            )
            for one in await self._db.scalars(locked)
        ]

    async def renew(self, kind: SealedKind, of: Sealed, ciphers: Mapping[str, bytes]) -> None:
        """Write new ciphertexts of the same secrets; owners see no change."""
        row, key, columns = _SEALED[kind]
        is_it = and_(*(getattr(row, name) == at for name, at in zip(key, of.key, strict=True)))
        new = {columns[name]: cipher for name, cipher in ciphers.items()}
        await self._db.execute(update(row).where(is_it).values(new).execution_options(**FOR_ALL))
