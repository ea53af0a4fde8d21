"""Is the process alive, can it work, and its figures. Outside `/v1`, without a key."""

from importlib.metadata import version
from typing import Literal

from fastapi import APIRouter, Response

from app import DISTRIBUTION
from app.api.errors import errors
from app.deps import AllServices
from app.errors import DatabaseUnavailableError
from app.observability import LEASES, UNDERWAY, render_metrics
from app.shapes import Output
from app.storage.migrate import require_current_schema

#: Read from a file, which takes milliseconds.
_VERSION = version(DISTRIBUTION)

router = APIRouter(tags=["health"], generate_unique_id_function=lambda route: route.name)


class HealthRead(Output):
    """The process answers requests."""

    status: Literal["ok"]
    version: str


class ReadinessRead(Output):
    """The process can work: its database answers and has the tables of this version."""

    status: Literal["ready"]
    database: Literal["ok"]
    migrations: str
    """Revision of the database's tables."""
    secrets: Literal["ok", "unreadable"]
    """Whether the present secret key can decrypt the stored endpoint keys. If not, only calls that
    need such a key fail."""


@router.get("/healthz")
async def health() -> HealthRead:
    """The process answers requests. Does not check the database: see `/readyz`."""
    return HealthRead(status="ok", version=_VERSION)


@router.get("/readyz", responses=errors(DatabaseUnavailableError))
async def readiness(opened: AllServices) -> ReadinessRead:
    """The process can work: its database answers and has the tables of this version."""
    return ReadinessRead(
        status="ready",
        database="ok",
        migrations=await require_current_schema(opened.database),
        secrets=await opened.secret_keys.state(),
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(opened: AllServices) -> Response:
    """Metrics of this process, and work in progress in all, in the text format of Prometheus."""
    try:
        found = await opened.database.underway()
    except DatabaseUnavailableError:
        found = []  # none is told rather than an old one
    for gauge in (UNDERWAY, LEASES):
        gauge.clear()
    for one in found:
        UNDERWAY.labels(one.kind, one.status).set(one.n)
        if one.leases is not None:
            LEASES.labels(one.kind, one.status).set(one.leases)
    body, media_type = render_metrics()
    return Response(body, media_type=media_type)
