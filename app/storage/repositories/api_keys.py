"""Keys of our own API."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Row, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.api_keys import ApiKey, Scope
from app.records.fields import made_of
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows.endpoints import ApiKeyRow


class ApiKeyRepository:
    """Keys by id and by the hash of their secret."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(
        self,
        *,
        key_id: str,
        name: str,
        prefix: str,
        secret_hash: str,
        scopes: Iterable[Scope],
        expires_at: datetime | None,
    ) -> ApiKey:
        """Store a new key."""
        row = ApiKeyRow(
            id=key_id,
            name=name,
            prefix=prefix,
            secret_hash=secret_hash,
            scopes=sorted(scopes),
            expires_at=expires_at,
        )
        self._db.add(row)
        await self._db.flush()
        await self._db.refresh(row, ["created_at", "revoked_at"])
        return _api_key(row)

    async def by_secret_hash(self, secret_hash: str) -> tuple[ApiKey, str] | None:
        """The key of that hash, and the stored hash, or None."""
        row = (await self._db.execute(_BY_SECRET, {"presented": secret_hash})).one_or_none()
        return (_api_key(row), row.secret_hash) if row else None

    async def page(self, request: PageRequest) -> Page[ApiKey]:
        """One page of the keys, revoked and expired ones included.

        Raises:
            NotFoundError: `request.after` is no key.
        """
        return await read_page(
            self._db, select(ApiKeyRow), request, key=ApiKeyRow.id, kind="API key", read=_api_key
        )

    async def revoke(self, key_id: str) -> ApiKey | None:
        """Revoke the key, or leave it revoked as it is; None when there is no such key."""
        row = await self._db.scalar(
            update(ApiKeyRow)
            .where(ApiKeyRow.id == key_id)
            .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, func.now()))
            .returning(ApiKeyRow)
        )
        return _api_key(row) if row else None


# Asked in every call of the API: built once, and columns only.
_BY_SECRET = select(*ApiKeyRow.__table__.c).where(ApiKeyRow.secret_hash == bindparam("presented"))


def _api_key(row: ApiKeyRow | Row[Any]) -> ApiKey:
    return made_of(ApiKey, row, scopes=frozenset(Scope(scope) for scope in row.scopes))
