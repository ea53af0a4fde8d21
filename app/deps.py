"""What a route function can ask for: the services, and who is calling."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeVar

import structlog
from fastapi import Depends, Request, Security, params
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer, SecurityScopes

from app.acting import DEFAULT_PROJECT, become, present
from app.errors import MissingScopeError, NotFoundError, UnauthenticatedError
from app.records.api_keys import ApiKey, Scope
from app.services.api_keys import ApiKeyService
from app.services.audit import AuditService
from app.services.banks.bundles import Bundles
from app.services.banks.export import BankExports
from app.services.banks.forms import FormService
from app.services.banks.items import ItemService
from app.services.banks.joins import JoinChecks
from app.services.banks.offers import Offers
from app.services.banks.report import VersionReports
from app.services.banks.service import BankService
from app.services.banks.versions import VersionService
from app.services.calibrations.drift import DriftService
from app.services.calibrations.from_results import ResultBanks
from app.services.calibrations.service import CalibrationService
from app.services.catalog.service import CatalogService
from app.services.container import Services
from app.services.endpoints.service import EndpointService
from app.services.event_feed import EventFeed
from app.services.marker_guard import MarkerGuard
from app.services.marking.trials import ScorerTrials
from app.services.projects import ProjectService
from app.services.rankings.service import RankingService
from app.services.responses.collection import Collector
from app.services.responses.service import ResponseSetService
from app.services.results.comparisons import ComparisonService
from app.services.results.gates import GateService
from app.services.results.leaderboards import LeaderboardService
from app.services.results.simulations import SimulationService
from app.services.sessions.derived import DerivedSessions
from app.services.sessions.manual import ManualSessions
from app.services.sessions.previews import Previews
from app.services.sessions.report import SessionReports
from app.services.sessions.service import SessionService
from app.services.visibility import Sight

ScopeName = Literal["read", "run", "banks:write", "admin"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request.

    Attributes:
        key_id: Id of the API key; `local` when authentication is off.
        scopes: What the key may do; `admin` includes all others.
        project_id: Whose data the request reads and writes: the key's project, or the one that a
            key of all projects names.
        is_over_all: The key is of all projects.
        requests_per_s: As many as the key may send by a limit of its own; None: any.
    """

    key_id: str
    scopes: frozenset[Scope]
    project_id: str = DEFAULT_PROJECT
    is_over_all: bool = False
    requests_per_s: float | None = None

    def may(self, scope: Scope) -> bool:
        """Whether the key covers `scope`."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    @property
    def administered(self) -> str | None:
        """The project that an admin looks after; None: all of them."""
        return None if self.is_over_all else self.project_id


def caller_of(key: ApiKey) -> Caller:
    """Whoever shows a key."""
    return Caller(
        key.id,
        key.scopes,
        project_id=key.project_id or DEFAULT_PROJECT,
        is_over_all=key.project_id is None,
        requests_per_s=key.limits.requests_per_s,
    )


#: Whoever calls where authentication is off.
LOCAL = Caller("local", frozenset({Scope.ADMIN}), is_over_all=True)
#: Names the project that a key of all projects works in; without it that is the default one.
PROJECT_HEADER = "Sextant-Project"


async def services(request: Request) -> Services:
    """The services that the application's lifespan opened."""
    opened: Services = request.app.state.services
    return opened


def _service(pick: Callable[[Services], S]) -> Any:
    async def provide(opened: Annotated[Services, Depends(services)]) -> S:
        return pick(opened)

    return Depends(provide)


AllServices = Annotated[Services, Depends(services)]
ApiKeys = Annotated[ApiKeyService, _service(lambda opened: opened.api_keys)]
BankExportsDep = Annotated[BankExports, _service(lambda opened: opened.bank_exports)]
Banks = Annotated[BankService, _service(lambda opened: opened.banks)]
BundlesDep = Annotated[Bundles, _service(lambda opened: opened.bundles)]
Calibrations = Annotated[CalibrationService, _service(lambda opened: opened.calibrations)]
Catalog = Annotated[CatalogService, _service(lambda opened: opened.catalog)]
Comparisons = Annotated[ComparisonService, _service(lambda opened: opened.comparisons)]
Endpoints = Annotated[EndpointService, _service(lambda opened: opened.endpoints)]
Forms = Annotated[FormService, _service(lambda opened: opened.forms)]
Gates = Annotated[GateService, _service(lambda opened: opened.gates)]
OffersDep = Annotated[Offers, _service(lambda opened: opened.offers)]
Joins = Annotated[JoinChecks, _service(lambda opened: opened.joins)]
Leaderboards = Annotated[LeaderboardService, _service(lambda opened: opened.leaderboards)]
ResponseSets = Annotated[ResponseSetService, _service(lambda opened: opened.response_sets)]
Collectors = Annotated[Collector, _service(lambda opened: opened.collector)]
Audit = Annotated[AuditService, _service(lambda opened: opened.audit)]
Projects = Annotated[ProjectService, _service(lambda opened: opened.projects)]
Reports = Annotated[VersionReports, _service(lambda opened: opened.version_reports)]
Drifts = Annotated[DriftService, _service(lambda opened: opened.drift)]
ResultBanksDep = Annotated[ResultBanks, _service(lambda opened: opened.result_banks)]
Rankings = Annotated[RankingService, _service(lambda opened: opened.rankings)]
SessionReportsDep = Annotated[SessionReports, _service(lambda opened: opened.session_reports)]
PreviewsDep = Annotated[Previews, _service(lambda opened: opened.previews)]
ScorerTrialsDep = Annotated[ScorerTrials, _service(lambda opened: opened.scorer_trials)]
Sessions = Annotated[SessionService, _service(lambda opened: opened.sessions)]
DerivedSessionsDep = Annotated[DerivedSessions, _service(lambda opened: opened.derived_sessions)]
Simulations = Annotated[SimulationService, _service(lambda opened: opened.simulations)]
Items = Annotated[ItemService, _service(lambda opened: opened.items)]
Versions = Annotated[VersionService, _service(lambda opened: opened.versions)]
MarkerGuardDep = Annotated[MarkerGuard, _service(lambda opened: opened.marker_guard)]
ManualSessionsDep = Annotated[ManualSessions, _service(lambda opened: opened.manual_sessions)]


async def _feed(request: Request) -> EventFeed:
    opened: EventFeed = request.app.state.feed
    return opened


Feed = Annotated[EventFeed, Depends(_feed)]


async def authenticate(request: Request) -> Caller:
    """Who sends `request`; looked up once a request, which is its project's from here on.

    Raises:
        UnauthenticatedError: No bearer key, or one that is unknown, revoked or expired.
        NotFoundError: The request names a project that is not the key's.
    """
    known: Caller | None = getattr(request.state, "caller", None)
    if known is None:
        known = await identify(request)
        request.state.caller = known
    enter_as(known)
    return known


def enter_as(known: Caller) -> None:
    """From here on the request finds what its caller finds, and its log lines name them."""
    become(replace(present(), project_id=known.project_id, key_id=known.key_id))
    structlog.contextvars.bind_contextvars(key_id=known.key_id, project_id=known.project_id)


async def identify(request: Request) -> Caller:
    """Who sends `request`, looked up anew: for answers that last longer than a key may.

    Raises:
        UnauthenticatedError: As for `authenticate`.
        NotFoundError: As for `authenticate`.
    """
    opened = await services(request)
    if opened.settings.auth == "off":
        _require_own_name(request)
        return await _in_project(request, LOCAL)
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not secret.strip():
        raise UnauthenticatedError("Send your API key as `Authorization: Bearer <key>`.")
    key = await opened.api_keys.authenticate(secret.strip())
    return await _in_project(request, caller_of(key))


def _require_own_name(request: Request) -> None:
    """Without keys, answer only those who call this machine by a name of its own.

    Any site could give its own name our address and have its visitors' browsers call it, or send
    them here with a form.

    Raises:
        MissingScopeError: The host is another name, or the page is another site's.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not is_called_by_own_name(request):
        raise MissingScopeError(
            f"Without authentication this server is called as localhost or 127.0.0.1 only, "
            f"not as {host!r}."
        )
    if origin is not None and not is_of_host(origin, host):
        raise MissingScopeError(
            f"Without authentication this server answers no page of another site ({origin!r})."
        )


_OWN_NAME = re.compile(r"(localhost|[0-9.]+|\[[0-9a-f:]+\])(:[0-9]{1,5})?", re.IGNORECASE)


def is_called_by_own_name(request: Request) -> bool:
    """Whether a request calls this machine by a name of its own.

    By the header alone: in place of a name that it cannot read, `request.url` has the address on
    which the request came in.
    """
    named = _OWN_NAME.fullmatch(request.headers.get("host", ""))
    if named is None:
        return False
    try:
        return named[1].lower() == "localhost" or ip_address(named[1].strip("[]")).is_loopback
    except ValueError:
        return False


def is_of_host(origin: str, host: str) -> bool:
    """Whether a page of `origin`, as the header says it, came from `host`."""
    return host != "" and origin.partition("://")[2] == host


async def _in_project(request: Request, found: Caller) -> Caller:
    """The caller in the project that the request names; its own is the only one most may name."""
    named = request.headers.get(PROJECT_HEADER)
    if named is None:
        return found
    project = await (await services(request)).projects.recent(named)
    if project.id != found.project_id and not found.is_over_all:
        raise NotFoundError("project", named)
    return replace(found, project_id=project.id)


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
    found = await authenticate(request)
    for scope in map(Scope, required.scopes):
        if not found.may(scope):
            raise MissingScopeError(
                f"This needs a key with the scope {scope.value!r}; yours has: "
                f"{', '.join(sorted(found.scopes)) or 'none'}."
            )
    return found


async def _over_all(
    found: Annotated[Caller, Security(_current_caller, scopes=["admin"])],
) -> Caller:
    if not found.is_over_all:
        raise MissingScopeError(
            "This needs a key with the scope 'admin' of all projects; yours is of one."
        )
    return found


#: Dependency of a route for admins of all projects: `dependencies=[OVER_ALL]`.
OVER_ALL: params.Depends = Depends(_over_all)


def caller(scope: ScopeName) -> params.Security:
    """Dependency of a route that needs `scope`: `dependencies=[caller("run")]`."""
    return Security(_current_caller, scopes=[scope])  # type: ignore[no-any-return]  # typed Any


async def _sight(request: Request) -> Sight:
    found = await authenticate(request)
    return Sight(is_whole=found.may(Scope.BANKS_WRITE), is_admin=found.may(Scope.ADMIN))


#: What the caller sees of withheld banks; who may call the route at all is said beside it.
Seen = Annotated[Sight, Depends(_sight)]
