"""API keys of Sextant, and logins with them."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Row, Table, bindparam, delete, func, select, true, update

from app.records.api_keys import ApiKey, Scope
from app.records.fields import convert, not_none
from app.records.projects import Limits
from app.storage.paging import Page, PageRequest
from app.storage.rows.projects import ApiKeyRow, LoginRow
from app.storage.scoping import Repository, given, of_opened


class ApiKeyRepository(Repository):
    """Queries and changes of API keys, within one transaction."""

    async def add(
        self,
        *,
        key_id: str,
        name: str,
        prefix: str,
        secret_hash: str,
        scopes: Iterable[Scope],
        expires_at: datetime | None,
        limits: Limits,
        project_id: str | None = None,
    ) -> ApiKey:
        """Store a new key for one project or for all projects."""
        row = ApiKeyRow(
            id=key_id,
            project_id=project_id,
            name=name,
            prefix=prefix,
            secret_hash=secret_hash,
            scopes=sorted(scopes),
            limits=not_none(limits),
            expires_at=expires_at,
        )
        self._db.add(row)
        await self._db.flush()
        await self._db.refresh(row, ["created_at", "revoked_at", "last_used_at"])
        return api_key(row)

    async def by_secret_hash(self, secret_hash: str) -> tuple[ApiKey, str] | None:
        """The key with this hash of its secret, and the stored hash; None if there is none."""
        row = (await self._db.execute(_BY_SECRET, {"presented": secret_hash})).one_or_none()
        return (api_key(row), row.secret_hash) if row else None

    async def page(self, request: PageRequest, *, project_id: str | None = None) -> Page[ApiKey]:
        """One page of the keys, revoked and expired ones included."""
        found = select(ApiKeyRow).where(*given((ApiKeyRow.project_id, project_id)))
        return await self._page(found, request, ApiKeyRow.id, "API key", api_key)

    async def find(
        self, key_id: str, *, project_id: str | None = None, for_update: bool = False
    ) -> ApiKey:
        """A key, revoked or not."""
        wanted = given((ApiKeyRow.id, key_id), (ApiKeyRow.project_id, project_id))
        query = select(ApiKeyRow).where(*wanted)
        return api_key(await self._one(query, "API key", key_id, for_update=for_update))

    async def set_limits(self, key_id: str, limits: Limits) -> None:
        """Set the limits of a key."""
        await self._set(ApiKeyRow, key_id, limits=not_none(limits))

    async def revoke(self, key_id: str, *, project_id: str | None = None) -> ApiKey | None:
        """Revoke the key; a revoked key stays as it is. None if there is no such key."""
        row = await self._db.scalar(
            update(ApiKeyRow)
            .where(*given((ApiKeyRow.id, key_id), (ApiKeyRow.project_id, project_id)))
            .values(revoked_at=func.coalesce(ApiKeyRow.revoked_at, func.now()))
            .returning(ApiKeyRow)
        )
        return api_key(row) if row else None

    async def note_use(self, key_id: str, *, every: timedelta) -> None:
        """Note the use of a key, unless a use was noted within the time `every`."""
        # Executed on the connection, so that the audit trail notes no change.
        connection = await self._db.connection()
        await connection.execute(
            update(_KEYS)
            .where(
                _KEYS.c.id == key_id,
                func.coalesce(_KEYS.c.last_used_at < func.now() - every, true()),
            )
            .values(last_used_at=func.now())
        )


_KEYS: Table = ApiKeyRow.metadata.tables[ApiKeyRow.__tablename__]
# Runs in every call of the API, so it is built once and selects columns only.
_BY_SECRET = (
    select(*ApiKeyRow.__table__.c)
    .where(ApiKeyRow.secret_hash == bindparam("presented"))
    .execution_options(**of_opened("who has the secret"))
)


def api_key(row: ApiKeyRow | Row[Any]) -> ApiKey:
    """Convert a row to a key."""
    return convert(
        ApiKey,
        row,
        scopes=frozenset(Scope(scope) for scope in row.scopes),
        limits=Limits(**row.limits),
    )


class LoginRepository(Repository):
    """Queries and changes of logins, within one transaction."""

    async def add(self, token_hash: str, *, key_id: str, expires_at: datetime) -> None:
        """Store a login, and delete expired ones."""
        await self._db.execute(delete(LoginRow).where(LoginRow.expires_at <= func.now()))
        self._db.add(LoginRow(token_hash=token_hash, key_id=key_id, expires_at=expires_at))

    async def key_of(self, token_hash: str) -> ApiKey | None:
        """The key of a login, revoked or not; None if the login is unknown or has expired."""
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
        """End a login; an unknown one has ended already."""
        await self._db.execute(delete(LoginRow).where(LoginRow.token_hash == token_hash))
