"""API keys as JSON."""

from typing import Annotated, Any

from pydantic import AfterValidator, Field, TypeAdapter

from app.deps import ScopeName
from app.records.projects import Limits
from app.shapes import Input, Moment, Name, ShownAs, examples


class ApiKeyCreate(Input):
    """A new key of this API."""

    model_config = examples({"name": "ci", "scopes": ["read", "run"]})

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

    model_config = examples({"limits": {"usd_per_day": 5}})

    limits: Annotated[dict[str, Any], AfterValidator(_checked), ShownAs(Limits)] = Field(
        default_factory=dict,
        description="Limits to change. One that is left out keeps its value; null removes it.",
    )
