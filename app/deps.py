"""The caller of a request: its key, project and scopes; dependencies of route functions."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated, Literal

import structlog
from fastapi import Depends, Request, Security, params
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from app.acting import DEFAULT_PROJECT, become
from app.errors import MissingScopeError, NotFoundError, UnauthenticatedError
from app.records.api_keys import ApiKey, Scope
from app.services.container import Services
from app.services.event_feed import EventFeed
from app.services.visibility import View

ScopeName = Literal["read", "run", "banks:write", "admin"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Sender of the request.

    Attributes:
        key_id: Id of the API key; `local` when authentication is off.
        scopes: Permissions of the key; `admin` includes all others.
        project_id: Project whose data the request reads and writes: the key's project, or the one
            that a key of all projects names.
        is_over_all: Whether the key belongs to all projects.
        requests_per_s: Limit of the key itself on its requests per second; None: no limit.
    """

    key_id: str
    scopes: frozenset[Scope]
    project_id: str = DEFAULT_PROJECT
    is_over_all: bool = False
    requests_per_s: float | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the key covers `scope`."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scopes: Iterable[str]) -> None:
        """Refuse a key that does not cover all of these scopes.

        Raises:
            MissingScopeError: It lacks one of them.
        """
        for scope in map(Scope, scopes):
            if not self.may(scope):
                raise MissingScopeError(
                    f"This needs a key with the scope {scope.value!r}; yours has: "
                    f"{', '.join(sorted(self.scopes)) or 'none'}."
                )

    @property
    def administered(self) -> str | None:
        """Id of the project that an admin administers; None: all projects."""
        return None if self.is_over_all else self.project_id


def caller_of(key: ApiKey) -> Caller:
    """The caller that presents a key."""
    return Caller(
        key.id,
        key.scopes,
        project_id=key.project_id or DEFAULT_PROJECT,
        is_over_all=key.project_id is None,
        requests_per_s=key.limits.requests_per_s,
    )


#: The caller where authentication is off.
LOCAL = Caller("local", frozenset({Scope.ADMIN}), is_over_all=True)
#: Header with the project that a key of all projects works in, by default the default project.
PROJECT_HEADER = "Sextant-Project"


async def services(request: Request) -> Services:
    """The services that the application's lifespan opened."""
    opened: Services = request.app.state.services
    return opened


#: Dependency of a route on the services, whichever it calls.
AllServices = Annotated[Services, Depends(services)]


async def _feed(request: Request) -> EventFeed:
    opened: EventFeed = request.app.state.feed
    return opened


Feed = Annotated[EventFeed, Depends(_feed)]


def enter_as(request: Request, known: Caller) -> None:
    """Act for a caller in the rest of the request, and name it in log lines."""
    request.state.caller = known
    become(known.project_id, known.key_id)
    structlog.contextvars.bind_contextvars(key_id=known.key_id, project_id=known.project_id)


async def identify(request: Request) -> Caller:
    """Find the caller of `request`; call it again for responses that may outlast the key.

    Raises:
        UnauthenticatedError: The bearer key is missing, unknown, revoked or expired.
        NotFoundError: The request names a project that the key does not reach.
    """
    opened = await services(request)
    if opened.settings.auth == "off":
        _require_own_name(request)
        found = LOCAL
    else:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise UnauthenticatedError("Send your API key as `Authorization: Bearer <key>`.")
        found = caller_of(await opened.api_keys.authenticate(secret.strip()))
    named = request.headers.get(PROJECT_HEADER)
    if named is None:
        return found
    project = await opened.projects.recent.get(named)
    if project.id != found.project_id and not found.is_over_all:  # a key of one project
        raise NotFoundError("project", named)
    return replace(found, project_id=project.id)


def _require_own_name(request: Request) -> None:
    """Without authentication, answer only requests that call this machine by a local name.

    Any site could point its own name at our address and make its visitors' browsers call it, or
    send them here with a form.

    Raises:
        MissingScopeError: The host is another name, or the page belongs to another site.
    """
    origin = request.headers.get("origin")
    if not is_called_by_own_name(request):
        raise MissingScopeError(
            "Without authentication this server answers only as localhost or a loopback address, "
            f"such as 127.0.0.1, not as {request.headers.get('host', '')!r}."
        )
    if origin is not None and not is_of_host(origin, request):
        raise MissingScopeError(
            "Without authentication this server answers no requests from pages of other sites "
            f"({origin!r})."
        )


_OWN_NAME = re.compile(r"(localhost|[0-9.]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?", re.IGNORECASE)


def is_called_by_own_name(request: Request) -> bool:
    """Whether a request calls this machine by a local name.

    Only the header is read: `request.url` replaces a name that it cannot read by the address on
    which the request came in.
    """
    named = _OWN_NAME.fullmatch(request.headers.get("host", ""))
    if named is None:
        return False
    try:
        return named[1].lower() == "localhost" or ip_address(named[1].strip("[]")).is_loopback
    except ValueError:
        return False


def is_of_host(origin: str, request: Request) -> bool:
    """Whether a page with the header value `origin` came from the host of `request`.

    Whoever can change what a network carries can serve pages of that host over http, though not
    over https. A request that came as http may have passed a proxy that took it as https.
    """
    host = request.headers.get("host", "")
    return host != "" and origin in (f"https://{host}", f"{request.scope['scheme']}://{host}")


_bearer = HTTPBearer(
    auto_error=False,
    scheme_name="ApiKey",
    description=(
        "An API key with scopes: `read` (see everything but keys), `run` (endpoints, sessions), "
        "`banks:write` (banks, response sets, calibrations), `admin` (API keys, all of the above)."
    ),
)


async def _current_caller(
    request: Request,
    required: SecurityScopes,
    _: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
) -> Caller:
    found: Caller = request.state.caller
    found.require(required.scopes)
    return found


async def _over_all(
    found: Annotated[Caller, Security(_current_caller, scopes=["admin"])],
) -> Caller:
    if not found.is_over_all:
        raise MissingScopeError(
            "This needs a key with the scope 'admin' of all projects; yours is for one project."
        )
    return found


#: Dependency of a route for admins of all projects: `dependencies=[OVER_ALL]`.
OVER_ALL: params.Depends = Depends(_over_all)


def caller(scope: ScopeName) -> params.Security:
    """Dependency that refuses keys without `scope`; its value is the caller."""
    return Security(_current_caller, scopes=[scope])  # type: ignore[no-any-return]  # typed Any


async def _view(request: Request) -> View:
    found: Caller = request.state.caller
    return View(is_whole=found.may(Scope.BANKS_WRITE), is_admin=found.may(Scope.ADMIN))


#: What the caller sees of withheld banks; routes state separately who may call them.
Seen = Annotated[View, Depends(_view)]
