"""API keys, and the choice of the project in which a key of all projects works."""

from dataclasses import asdict

from fastapi import Response
from pydantic import ValidationError

from app.api.routers.api_keys import KeyId
from app.api.schemas.projects import ApiKeyCreate
from app.errors import MissingScopeError, SextantError
from app.pages.access import PROJECT_COOKIE, Form, Visitor, set_cookie
from app.pages.forms import Body, Faults, faults_in, numbers_in, read_as
from app.pages.routing import Admin, After, PageCall, make_router
from app.records.api_keys import Scope
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
#: Limits that the form offers.
_LIMITS = ("usd_per_day", "tokens_per_day", "stored_bytes", "open_sessions")


@router.get("/keys")
async def key_list(call: Admin, after: After = None) -> Response:
    """All keys that the visitor administers, including revoked ones."""
    return await _keys(call, after)


@router.post("/keys")
async def create(form: Form, call: Admin) -> Response:
    """Create a key; its secret is shown only once."""
    scopes = [scope.value for scope in Scope if f"scope-{scope.value}" in form]
    try:
        given: Body = {"name": form.get("name", ""), "scopes": scopes}
        body = read_as(ApiKeyCreate, {**given, "limits": numbers_in(form, *_LIMITS)})
        _, secret = await call.services.api_keys.create(
            name=body.name,
            scopes=body.scopes,
            limits=body.limits,
            project_id=call.visit.administered,
        )
    except (ValidationError, SextantError) as error:
        return await _keys(call, None, problem=faults_in(error))
    return await _keys(call, None, secret=secret)


@router.post("/keys/{key_id}/revoke")
async def revoke(key_id: KeyId, call: Admin) -> Response:
    """Revoke a key from now on."""
    await call.services.api_keys.revoke(key_id, project_id=call.visit.administered)
    return call.see("/keys")


async def _keys(
    call: PageCall, after: str | None, *, secret: str | None = None, problem: Faults | None = None
) -> Response:
    found = await call.services.api_keys.page(
        PageRequest(limit=_LISTED, after=after), project_id=call.visit.administered
    )
    return await call.page(
        "keys.html",
        rows=[asdict(key) for key in found.items],
        more=found.has_more,
        secret=secret,
        problem=problem,
    )


@router.get("/projects")
async def project_list(call: Admin, after: After = None) -> Response:
    """All projects, the newest first."""
    _require_all(call.visit)
    found = await call.services.projects.page(PageRequest(limit=_LISTED, after=after))
    rows = [asdict(project) for project in found.items]
    return await call.page("projects.html", rows=rows, more=found.has_more)


@router.post("/projects")
async def choose(form: Form, call: Admin) -> Response:
    """Choose the project in which this browser works from now on."""
    _require_all(call.visit)
    chosen = await call.services.projects.recent.get(form.get("project", ""))
    response = call.see("/")
    set_cookie(call.request, response, PROJECT_COOKIE, chosen.id)
    return response


def _require_all(visit: Visitor) -> None:
    if visit.works_in is None:
        raise MissingScopeError(
            "This needs a key with the scope 'admin' of all projects; yours is for one project."
        )
