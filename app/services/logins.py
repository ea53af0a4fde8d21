"""Logins of browsers: a cookie in the place of an API key, which the browser never keeps."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from app.errors import UnauthenticatedError
from app.records.api_keys import ApiKey
from app.services.api_keys import ApiKeyService, require_active
from app.storage.database import Database

#: How long a browser stays logged in; the key may end sooner.
LASTS = timedelta(days=7)
_TOKEN_BYTES = 32


@dataclass(frozen=True, eq=False)
class Logins:
    """Opens and ends logins and tells whose they are. Only a token's hash is kept."""

    database: Database
    api_keys: ApiKeyService

    async def open(self, secret: str) -> str:
        """A new login of whoever has a key.

        Returns:
            Its token, which nobody can show again.

        Raises:
            UnauthenticatedError: The key is unknown, revoked or expired.
        """
        key = await self.api_keys.authenticate(secret)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        async with self.database.unit_of_work() as uow:
            await uow.logins.add(_hash(token), key_id=key.id, expires_at=datetime.now(UTC) + LASTS)
        return token

    async def key_of(self, token: str) -> ApiKey:
        """The key that a login stands for.

        Raises:
            UnauthenticatedError: The login is unknown or over, or the key revoked or expired.
        """
        async with self.database.reading() as uow:
            key = await uow.logins.key_of(_hash(token))
        if key is None:
            raise UnauthenticatedError("You are not logged in here, or no longer.")
        require_active(key)
        await self.api_keys.note_use(key)
        return key

    async def close(self, token: str) -> None:
        """End a login, wherever its token is still known."""
        async with self.database.unit_of_work() as uow:
            await uow.logins.remove(_hash(token))


def _hash(token: str) -> str:
    # 256 random bits need no slow hash: there is nothing to guess.
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()
