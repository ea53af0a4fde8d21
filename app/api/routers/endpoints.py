"""Language models that can be called."""

from typing import Annotated

from fastapi import Query, Response

from app.adapters.base import ProbeReport
from app.api.errors import CONDITIONAL
from app.api.etags import ExpectedRevision, etag
from app.api.parameters import Erase, Paging, id_path, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.endpoints import EndpointRead, EndpointUpdate, Kind, NamedEndpointCreate
from app.api.schemas.projects import SpendRead
from app.deps import AllServices, Seen
from app.errors import (
    AlreadyExistsError,
    BlockedAddressError,
    BudgetSpentError,
    ColdStartError,
    EndpointFaultError,
    EndpointRejectedError,
    EndpointUnauthorizedError,
    ExamineeTimeoutError,
    InvalidStateError,
    MalformedAnswerError,
    NotFoundError,
    RateLimitedError,
    SecretsError,
    UnknownNameError,
    UnreachableError,
)
from app.shapes import ListRead, Name

router = make_router("/endpoints", tag="endpoints")

EndpointId = Annotated[str, id_path("end")]


@router.post(
    "",
    status_code=201,
    **allow_once("run", AlreadyExistsError, BlockedAddressError, UnknownNameError),
)
async def create_endpoint(
    body: NamedEndpointCreate, response: Response, opened: AllServices, view: Seen
) -> EndpointRead:
    """Save a language model under a name. Its key is stored encrypted and never shown again."""
    await opened.scorer_guard.require_free(view, body.name)
    created = await opened.endpoints.create(body.to_spec())
    response.headers["Location"] = f"/v1/endpoints/{created.id}"
    response.headers["ETag"] = etag(created.revision)
    return EndpointRead.of(created)


@router.get("", **allow("read", NotFoundError))
async def list_endpoints(
    page: Paging,
    opened: AllServices,
    kind: Annotated[Kind | None, Query()] = None,
    name: Annotated[Name | None, Query()] = None,
) -> ListRead[EndpointRead]:
    """List saved endpoints, the newest first."""
    found = await opened.endpoints.list(page, kind=kind, name=name)
    return list_of(found, EndpointRead.of)


@router.get("/{endpoint_id}", **allow("read"))
async def get_endpoint(
    endpoint_id: EndpointId, response: Response, opened: AllServices
) -> EndpointRead:
    """One endpoint."""
    found = await opened.endpoints.get(endpoint_id)
    response.headers["ETag"] = etag(found.revision)
    return EndpointRead.of(found)


@router.get("/{endpoint_id}/spend", **allow("read"))
async def get_endpoint_spend(endpoint_id: EndpointId, opened: AllServices) -> SpendRead:
    """Usage of today's budgets by the calls of an endpoint."""
    found, today = await opened.endpoints.spend(endpoint_id)
    return SpendRead.of(found.settings.limits, today)


@router.patch(
    "/{endpoint_id}", **allow("run", AlreadyExistsError, BlockedAddressError, *CONDITIONAL)
)
async def update_endpoint(
    endpoint_id: EndpointId,
    body: EndpointUpdate,
    revision: ExpectedRevision,
    response: Response,
    opened: AllServices,
    view: Seen,
) -> EndpointRead:
    """Change an endpoint, with the key that created it or one with the scope `admin`.

    Sessions in progress use a new key, header, timeout, price or limit from their next call on.
    They keep the model and the settings that they began with; another `base_url` ends them.

    Changing or deleting an endpoint that scores answers of a withheld bank needs `banks:write`.
    """
    change = body.to_change()
    name = change.settings.get("name")
    await opened.scorer_guard.require_free(view, name, endpoint_id=endpoint_id)
    changed = await opened.endpoints.update(endpoint_id, change, expected_revision=revision)
    response.headers["ETag"] = etag(changed.revision)
    return EndpointRead.of(changed)


@router.delete("/{endpoint_id}", status_code=204, **allow("run", InvalidStateError, *CONDITIONAL))
async def delete_endpoint(
    endpoint_id: EndpointId,
    revision: ExpectedRevision,
    opened: AllServices,
    view: Seen,
    erase: Erase = False,
) -> None:
    """Delete an endpoint, with the key that created it or one with `admin`.

    Sessions keep their results.
    """
    await opened.scorer_guard.require_free(view, endpoint_id=endpoint_id)
    await opened.endpoints.delete(endpoint_id, expected_revision=revision, erases=erase)


@router.post(
    "/{endpoint_id}:probe",
    **allow(
        "run",
        SecretsError,
        BlockedAddressError,
        BudgetSpentError,
        ColdStartError,
        EndpointFaultError,
        EndpointRejectedError,
        EndpointUnauthorizedError,
        ExamineeTimeoutError,
        MalformedAnswerError,
        RateLimitedError,
        UnreachableError,
    ),
)
async def probe_endpoint(endpoint_id: EndpointId, opened: AllServices) -> ProbeReport:
    """Call the endpoint, and report its capabilities and latency; 424 if it does not answer."""
    return await opened.endpoints.probe(endpoint_id)
