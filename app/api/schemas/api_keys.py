"""API keys as JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field

from app.api.schemas.common import Input, Name, Output
from app.deps import ScopeName
from app.records.api_keys import ApiKey


class ApiKeyCreate(Input):
    """A new key of this API."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci", "scopes": ["read", "run"]}]}
    )

    name: Name
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=4)]
    project: Name | None = Field(
        default=None,
        description="Id or name of the project whose data it reaches. Absent: that of the key that "
        "asks; with the scope `admin`, asked for by a key of all projects: all of them.",
    )
    # Lax, since a JSON string is all that a date can come in.
    expires_at: Annotated[AwareDatetime, Field(strict=False)] | None = Field(
        default=None, description="RFC 3339 time with offset; absent: the key does not expire."
    )


class ApiKeyRead(Output):
    """A key without its secret."""

    id: str
    object: Literal["api_key"] = "api_key"
    project_id: str | None = Field(description="Whose data it reaches; null: any project's.")
    name: str
    prefix: str = Field(description="First characters of the secret.")
    scopes: Annotated[list[str], BeforeValidator(sorted)]
    created_by: str | None = Field(description="Id of the key that made it.")
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(
        description="By a call or in a browser, to the minute; null: never."
    )


class ApiKeyCreated(ApiKeyRead):
    """A new key with its secret, which is shown this once."""

    secret: str

    @classmethod
    def with_secret(cls, key: ApiKey, secret: str) -> Self:
        """The outgoing shape of a key that was just made."""
        return cls(**ApiKeyRead.read(key).model_dump(), secret=secret)
