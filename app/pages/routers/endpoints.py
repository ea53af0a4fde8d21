"""Endpoints: the list, one endpoint, and forms that save, probe and delete."""

import json
from typing import Annotated

from fastapi import Path, Query, Request, Response
from pydantic import ValidationError

from app.adapters.base import ProbeReport
from app.api.schemas.endpoints import EndpointRead, NamedEndpointCreate
from app.api.schemas.projects import SpendRead
from app.api.schemas.sessions import SessionRead
from app.deps import AllServices
from app.errors import SextantError
from app.pages.access import Form, Visit, Visitor
from app.pages.forms import Faults, faults_in
from app.pages.rendering import page
from app.pages.routers.new_session import endpoint_in
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.records.sessions import SessionFilter
from app.services.endpoints.service import EndpointService
from app.services.sessions.service import SessionService
from app.storage.paging import PageRequest

router = make_router()

_LISTED, _TESTS = 50, 10
EndpointPath = Annotated[str, Path(pattern=r"^end_[0-9a-z]{26}$")]
After = Annotated[str | None, Query(pattern=r"^end_[0-9a-z]{26}$")]


@router.get("/endpoints")
async def endpoint_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """Saved endpoints, and the form for a new one."""
    visit.require("read")
    return await _list(request, opened.endpoints, after)


@router.post("/endpoints")
async def save(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Save an endpoint."""
    visit.require("read", "run")
    try:
        body = NamedEndpointCreate.model_validate_json(json.dumps(endpoint_in(form)))
        await opened.scorer_guard.require_free(visit.view, body.name)
        created = await opened.endpoints.create(body.to_spec())
    except (ValidationError, SextantError) as error:
        return await _list(request, opened.endpoints, None, values=form, problem=faults_in(error))
    return see(request, f"/endpoints/{created.id}")


async def _list(
    request: Request,
    endpoints: EndpointService,
    after: str | None,
    values: dict[str, str] | None = None,
    problem: Faults | None = None,
) -> Response:
    found = await endpoints.list(PageRequest(limit=_LISTED, after=after))
    return await page(
        request,
        "endpoints.html",
        status=422 if problem else 200,
        rows=[EndpointRead.of(one) for one in found.items],
        more=found.has_more,
        values={name: text for name, text in (values or {}).items() if name != "api_key"},
        key_typed="api_key" in (values or {}),
        problem=problem,
    )


@router.get("/endpoints/{endpoint_id}")
async def endpoint_page(
    endpoint_id: EndpointPath,
    request: Request,
    visit: Visit,
    opened: AllServices,
) -> Response:
    """One endpoint: its settings, its last sessions and their cost."""
    visit.require("read")
    return await _page(request, visit, opened.endpoints, opened.sessions, endpoint_id)


@router.post("/endpoints/{endpoint_id}/probe")
async def probe(
    endpoint_id: EndpointPath,
    request: Request,
    visit: Visit,
    opened: AllServices,
) -> Response:
    """Probe the endpoint for what it supports."""
    visit.require("read", "run")
    try:
        told = await opened.endpoints.probe(endpoint_id)
    except SextantError as error:
        return await _page(
            request, visit, opened.endpoints, opened.sessions, endpoint_id, problem=faults_in(error)
        )
    return await _page(request, visit, opened.endpoints, opened.sessions, endpoint_id, probe=told)


@router.post("/endpoints/{endpoint_id}/delete")
async def delete(
    endpoint_id: EndpointPath,
    request: Request,
    visit: Visit,
    form: Form,
    opened: AllServices,
) -> Response:
    """Delete an endpoint; its sessions stay."""
    visit.require("run")
    await opened.scorer_guard.require_free(visit.view, endpoint_id=endpoint_id)
    revision = form.get("revision", "")
    await opened.endpoints.delete(
        endpoint_id, expected_revision=int(revision) if revision[:9].isdecimal() else 0
    )
    return see(request, "/endpoints")


async def _page(
    request: Request,
    visit: Visitor,
    endpoints: EndpointService,
    sessions: SessionService,
    endpoint_id: str,
    *,
    probe: ProbeReport | None = None,
    problem: Faults | None = None,
) -> Response:
    stored, today = await endpoints.spend(endpoint_id)
    endpoint = EndpointRead.of(stored)
    found = await sessions.list_page(
        PageRequest(limit=_TESTS), SessionFilter(endpoint_id=endpoint_id)
    )
    return await page(
        request,
        "endpoint.html",
        status=424 if problem else 200,
        endpoint=endpoint,
        spend=SpendRead.of(stored.settings.limits, today),
        rows=[SessionRead.of(record, visit.view) for record in found.items],
        probe=probe,
        problem=problem,
    )
