"""Endpoints: the list, one endpoint, and forms that save, probe and delete."""

from fastapi import Response
from pydantic import ValidationError

from app.adapters.base import ProbeReport
from app.api.routers.endpoints import EndpointId
from app.api.schemas.endpoints import EndpointRead, NamedEndpointCreate
from app.api.schemas.projects import SpendRead
from app.errors import SextantError
from app.pages.access import Form
from app.pages.forms import Faults, faults_in, read_as
from app.pages.routers.new_session import endpoint_in
from app.pages.routing import After, PageCall, Read, ReadRun, Run, make_router
from app.pages.shown import ShownSession
from app.records.sessions import SessionFilter
from app.storage.paging import PageRequest

router = make_router()

_LISTED, _TESTS = 50, 10


@router.get("/endpoints")
async def endpoint_list(call: Read, after: After = None) -> Response:
    """Saved endpoints, and the form for a new one."""
    return await _list(call, after)


@router.post("/endpoints")
async def save(form: Form, call: ReadRun) -> Response:
    """Save an endpoint."""
    try:
        body = read_as(NamedEndpointCreate, endpoint_in(form))
        await call.services.scorer_guard.require_free(call.visit.view, body.name)
        created = await call.services.endpoints.create(body.to_spec())
    except (ValidationError, SextantError) as error:
        return await _list(call, None, values=form, problem=faults_in(error))
    return call.see(f"/endpoints/{created.id}")


async def _list(
    call: PageCall,
    after: str | None,
    values: dict[str, str] | None = None,
    problem: Faults | None = None,
) -> Response:
    found = await call.services.endpoints.list(PageRequest(limit=_LISTED, after=after))
    return await call.page(
        "endpoints.html",
        rows=[EndpointRead.of(one) for one in found.items],
        more=found.has_more,
        values={name: text for name, text in (values or {}).items() if name != "api_key"},
        key_typed="api_key" in (values or {}),
        problem=problem,
    )


@router.get("/endpoints/{endpoint_id}")
async def endpoint_page(endpoint_id: EndpointId, call: Read) -> Response:
    """One endpoint: its settings, its last sessions and their cost."""
    return await _page(call, endpoint_id)


@router.post("/endpoints/{endpoint_id}/probe")
async def probe(endpoint_id: EndpointId, call: ReadRun) -> Response:
    """Probe the endpoint for what it supports."""
    try:
        told = await call.services.endpoints.probe(endpoint_id)
    except SextantError as error:
        return await _page(call, endpoint_id, problem=faults_in(error))
    return await _page(call, endpoint_id, probe=told)


@router.post("/endpoints/{endpoint_id}/delete")
async def delete(endpoint_id: EndpointId, form: Form, call: Run) -> Response:
    """Delete an endpoint; its sessions stay."""
    await call.services.scorer_guard.require_free(call.visit.view, endpoint_id=endpoint_id)
    revision = form.get("revision", "")
    await call.services.endpoints.delete(
        endpoint_id, expected_revision=int(revision) if revision[:9].isdecimal() else 0
    )
    return call.see("/endpoints")


async def _page(
    call: PageCall,
    endpoint_id: str,
    *,
    probe: ProbeReport | None = None,
    problem: Faults | None = None,
) -> Response:
    stored, today = await call.services.endpoints.spend(endpoint_id)
    found = await call.services.sessions.list_page(
        PageRequest(limit=_TESTS), SessionFilter(endpoint_id=endpoint_id)
    )
    return await call.page(
        "endpoint.html",
        status=424 if problem else 200,
        endpoint=EndpointRead.of(stored),
        spend=SpendRead.of(stored.settings.limits, today),
        rows=[ShownSession.of(record, call.visit.view) for record in found.items],
        probe=probe,
        problem=problem,
    )
