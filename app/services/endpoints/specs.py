"""Specification of an endpoint by its owner, and changes of endpoints."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any

from app.adapters.base import EndpointConfig
from app.adapters.transport import parse_endpoint_url
from app.errors import FieldProblem, InvalidInputError
from app.records.endpoints import Endpoint, EndpointSettings
from app.records.fields import convert

#: Placeholder for an unchanged secret while a changed endpoint is checked.
_KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSpec:
    """An endpoint as its owner describes it, with secrets in plain text."""

    settings: EndpointSettings
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def config(self) -> EndpointConfig:
        """Configuration of the adapter."""
        return convert(
            EndpointConfig,
            self.settings,
            api_key=self.api_key,
            headers=dict(self.headers),
            options=dict(self.settings.options),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointChange:
    """Changes of an endpoint; fields that are not in `settings` keep their values.

    Attributes:
        settings: New values of fields of `EndpointSettings`.
        api_key: The new key; `None` removes it, `...` keeps it.
        headers: The new headers, replacing all old ones; `...` keeps them.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | EllipsisType | None = field(default=..., repr=False)
    headers: Mapping[str, str] | EllipsisType = field(default=..., repr=False)

    def applied_to(self, present: Endpoint) -> EndpointSpec:
        """The endpoint after the change; unchanged secrets are not read.

        Raises:
            InvalidInputError: Unchanged secrets would go to another host.
        """
        held = present.sealed
        keeps_key = self.api_key is ... and held.api_key is not None
        keeps_headers = self.headers is ... and held.headers is not None
        settings = replace(present.settings, **dict(self.settings))
        kept = "api_key" if keeps_key else "headers" if keeps_headers else None
        # Otherwise, users who may change an endpoint could send its key to their own host.
        if kept and _origin(settings.base_url) != _origin(present.settings.base_url):
            raise _invalid(
                f"/{kept}",
                f"expected {kept} given again, or removed: the new base_url has another scheme, "
                "host or port",
            )
        return EndpointSpec(
            settings=settings,
            api_key=(_KEPT if keeps_key else None) if self.api_key is ... else self.api_key,
            headers=dict.fromkeys(held.header_names, _KEPT)
            if self.headers is ...
            else self.headers,
        )


def _origin(base_url: str) -> tuple[str, str, int | None] | None:
    """Scheme, host and port of the called server; None for kinds that call no server."""
    if not base_url:
        return None
    try:
        url = parse_endpoint_url(base_url)
    except ValueError as exc:
        raise _invalid("/base_url", str(exc)) from exc
    return url.scheme, url.host, url.port


def _invalid(pointer: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"{pointer[1:]}: {what}.", problems=[FieldProblem(pointer, what)])
