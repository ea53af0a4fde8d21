"""API keys and the audit trail as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, TypeAdapter

from app.deps import ScopeName
from app.records.api_keys import ApiKey
from app.records.fields import shallow
from app.records.projects import Limits
from app.shapes import Input, Moment, Name, Output, ShownAs


class ApiKeyCreate(Input):
    """A new key of this API."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "ci", "scopes": ["read", "run"]}]}
    )

    name: Name
    scopes: Annotated[list[ScopeName], Field(min_length=1, max_length=4)]
    project: Name | None = None
    """Id or name of the project whose data the key can access. Default: the project of the calling
    key. If a key of all projects creates a key with the scope `admin`, the default is all
    projects."""
    limits: Limits = Field(default_factory=Limits)
    """Limits of the key, within those of its project; none with the scope `admin`."""
    expires_at: Moment | None = None
    """RFC 3339 time with offset. Without it, the key does not expire."""


_LIMITS = TypeAdapter(Limits)


def _checked(given: dict[str, Any]) -> dict[str, Any]:
    limits = _LIMITS.validate_python(given)
    return {name: getattr(limits, name) for name in given}


class ApiKeyUpdate(Input):
    """Fields to change."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"limits": {"usd_per_day": 5}}]})

    limits: Annotated[dict[str, Any], AfterValidator(_checked), ShownAs(Limits)] = Field(
        default_factory=dict,
        description="Limits to change. One that is left out keeps its value; null removes it.",
    )


class ApiKeyRead(Output):
    """A key without its secret."""

    id: str
    object: Literal["api_key"] = "api_key"
    project_id: str | None
    """Project that the key can access; null: all projects."""
    name: str
    prefix: str
    """First characters of the secret."""
    scopes: Annotated[list[str], BeforeValidator(sorted)]
    limits: Limits
    """Limits of the key, within those of its project."""
    created_by: str | None
    """Id of the key that created it."""
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """Time of the last call or browser visit, to the minute; null: never used."""


class ApiKeyCreated(ApiKeyRead):
    """A new key with its secret, which is shown only once."""

    secret: str

    @classmethod
    def with_secret(cls, key: ApiKey, secret: str) -> Self:
        """The outgoing shape of a key that was just made."""
        return cls.read({**shallow(key), "secret": secret})
