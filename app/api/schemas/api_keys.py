"""API keys as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AwareDatetime, ConfigDict, Field

from app.api.schemas.common import Input, Name, Output
from app.deps import ScopeName
from app.storage.repositories.api_keys import ApiKey


class ApiKeyCreate(Input):
    """A new key of this API."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci", "scopes": ["read", "run"]}]}
    )

    name: Name
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=4)]
    # Lax, since a JSON string is all that a date can come in.
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        default=None, description="RFC 3339 time with offset; absent: the key does not expire."
    )


class ApiKeyRead(Output):
    """A key without its secret."""

    id: str
    object: Literal["api_key"] = "api_key"
    name: str
    prefix: str = Field(description="First characters of the secret.")
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    @classmethod
    def of(cls, key: ApiKey) -> Self:
        """The outgoing shape of `key`."""
        return cls(**_public(key))


class ApiKeyCreated(ApiKeyRead):
    """A new key with its secret, which is shown this once."""

    secret: str

    @classmethod
    def with_secret(cls, key: ApiKey, secret: str) -> Self:
        """The outgoing shape of a key that was just made."""
        return cls(**_public(key), secret=secret)


def _public(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": sorted(key.scopes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
    }
