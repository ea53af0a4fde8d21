"""API keys: the list, and forms that create and revoke keys."""

import json
from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import ValidationError

from app.api.schemas.api_keys import ApiKeyCreate, ApiKeyRead
from app.deps import AllServices
from app.errors import SextantError
from app.pages.access import Form, Visit, visitor
from app.pages.forms import Faults, faults_in, numbers_in
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.records.api_keys import Scope
from app.records.fields import convert
from app.records.projects import Limits
from app.services.api_keys import ApiKeyService
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
#: Limits that the form offers.
_LIMITS = ("usd_per_day", "tokens_per_day", "stored_bytes", "open_sessions")
KeyPath = Annotated[str, Path(pattern=r"^key_[0-9a-z]{26}$")]
After = Annotated[str | None, Query(pattern=r"^key_[0-9a-z]{26}$")]


@router.get("/keys")
async def key_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """All keys that the visitor administers, including revoked ones."""
    visit.require("admin")
    return await _list(request, opened.api_keys, after)


@router.post("/keys")
async def create(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Create a key; its secret is shown only once."""
    visit.require("admin")
    scopes = [scope.value for scope in Scope if f"scope-{scope.value}" in form]
    try:
        limits = numbers_in({name: form.get(name, "") for name in _LIMITS})
        given = {"name": form.get("name", ""), "scopes": scopes, "limits": limits}
        body = ApiKeyCreate.model_validate_json(json.dumps(given))
        _, secret = await opened.api_keys.create(
            name=body.name,
            scopes=body.scopes,
            limits=convert(Limits, body.limits),
            project_id=visit.administered,
        )
    except (ValidationError, SextantError) as error:
        return await _list(request, opened.api_keys, None, problem=faults_in(error))
    return await _list(request, opened.api_keys, None, secret=secret)


@router.post("/keys/{key_id}/revoke")
async def revoke(key_id: KeyPath, request: Request, visit: Visit, opened: AllServices) -> Response:
    """Revoke a key from now on."""
    visit.require("admin")
    await opened.api_keys.revoke(key_id, project_id=visit.administered)
    return see(request, "/keys")


async def _list(
    request: Request,
    keys: ApiKeyService,
    after: str | None,
    *,
    secret: str | None = None,
    problem: Faults | None = None,
) -> Response:
    who = await visitor(request)
    found = await keys.page(PageRequest(limit=_LISTED, after=after), project_id=who.administered)
    return await page(
        request,
        "keys.html",
        status=422 if problem else 200,
        rows=[ApiKeyRead.read(key) for key in found.items],
        more=found.has_more,
        secret=secret,
        problem=problem,
        scopes=[scope.value for scope in Scope],
    )
