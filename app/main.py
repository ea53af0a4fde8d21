"""The application: its routers and pages, error handling, and lifespan."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from importlib.metadata import version

import uvicorn
from fastapi import FastAPI, Response
from typing_extensions import override

from app import DISTRIBUTION
from app.api import errors
from app.api.description import describe
from app.api.middleware import RequestContext
from app.api.routers import (
    api_keys,
    banks,
    calibrations,
    catalog,
    endpoints,
    health,
    items,
    projects,
    rankings,
    response_sets,
    results,
    scorers,
    sessions,
    versions,
    webhooks,
)
from app.pages import routing
from app.pages.routers import ROUTERS as PAGES
from app.services.container import Services, open_services
from app.services.event_feed import EventFeed
from app.settings import Settings
from app.storage.database import Database
from app.worker.queue import JobQueue

_DESCRIPTION = """\
Measures the score and the ability of a language model, with their uncertainty, by asking as few
benchmark items as possible. POST an endpoint to `/v1/sessions`, then read score and theta from the
session.

Every error is an RFC 9457 problem with a stable `code`. The next page of a list is at
`?after=<last_id>`. Calls that create something accept an `Idempotency-Key`; changes of resources
with an `ETag` need `If-Match`.
"""

_ROUTERS = (
    health.router,
    sessions.router,  # called most; paths are matched in this order
    banks.router,
    items.router,
    versions.router,
    response_sets.router,
    calibrations.router,
    catalog.router,
    endpoints.router,
    results.simulations,
    results.comparisons,
    results.gates,
    rankings.router,
    scorers.router,
    webhooks.router,
    api_keys.router,
    projects.router,
    api_keys.audit,
)

#: Runs beside the API for as long as it is up, such as a worker.
Background = Callable[[Services], AbstractAsyncContextManager[object]]


def create_app(
    settings: Settings, database: Database, *, background: Background | None = None
) -> FastAPI:
    """The API over an open database.

    Args:
        settings: Settings of the server.
        database: Open and migrated; the caller closes it.
        background: Context that is entered once the services are open, and left before they close.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(settings, database, JobQueue(database)) as services:
            app.state.services = services
            async with background(services) if background else nullcontext():
                yield
        await app.state.feed.aclose()

    app = FastAPI(
        title="Sextant",
        version=version(DISTRIBUTION),
        description=_DESCRIPTION,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,  # FastAPI's own route would block the event loop
        docs_url=None,  # FastAPI's pages load scripts from another host; ours is in app.pages
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.state.feed = EventFeed(database, streams_per_key=settings.streams_per_key)
    errors.install(app)
    routing.install(app)
    app.add_middleware(RequestContext, trusts_all=settings.private_endpoints == "always")
    for router in (*_ROUTERS, *PAGES):
        app.router.routes.extend(router.routes)
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]  # FastAPI's documented way
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Serve the OpenAPI document at `/openapi.json`."""
    making, made = asyncio.Lock(), list[bytes]()

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        async with making:  # takes a second: once, and in a thread
            if not made:
                told = await asyncio.to_thread(
                    lambda: json.dumps(app.openapi(), ensure_ascii=False, separators=(",", ":"))
                )
                made.append(told.encode())
        return Response(made[0], media_type="application/json")


class ApiServer(uvicorn.Server):
    """Uvicorn that ends event streams before it waits for their connections."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.feed.close()
        await super().shutdown(sockets)
