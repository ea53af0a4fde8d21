"""Browsers that are logged in."""

from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.api_keys import ApiKey
from app.storage.repositories.api_keys import api_key
from app.storage.rows.endpoints import ApiKeyRow, LoginRow
from app.storage.scoping import of_opened


class LoginRepository:
    """Questions and changes about logins, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(self, token_hash: str, *, key_id: str, expires_at: datetime) -> None:
        """Store a login, and forget those whose time is up."""
        await self._db.execute(delete(LoginRow).where(LoginRow.expires_at <= func.now()))
        self._db.add(LoginRow(token_hash=token_hash, key_id=key_id, expires_at=expires_at))

    async def key_of(self, token_hash: str) -> ApiKey | None:
        """The key that was given, revoked or not; None where the login is unknown or over."""
        row = (
            await self._db.execute(
                select(*ApiKeyRow.__table__.c)
                .join(LoginRow, LoginRow.key_id == ApiKeyRow.id)
                .where(LoginRow.token_hash == token_hash, LoginRow.expires_at > func.now())
                .execution_options(**of_opened("who has the token"))
            )
        ).one_or_none()
        return None if row is None else api_key(row)

    async def remove(self, token_hash: str) -> None:
        """End a login; one that is unknown is over already."""
        await self._db.execute(delete(LoginRow).where(LoginRow.token_hash == token_hash))
