"""Behaviour of all pages: find the visitor, show faults, and forbid caching and framing."""

from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from typing_extensions import override

from app.api.errors import headers_of, status_of
from app.api.rates import let_in, reading_turn
from app.api.routing import refuse_nul_in_url
from app.deps import AllServices, ScopeName, services
from app.errors import SextantError, UnauthenticatedError
from app.pages.access import (
    VISIT_COOKIE,
    Visit,
    Visitor,
    own_form,
    set_cookie,
    take_for_nobody,
    visitor,
)
from app.pages.rendering import page
from app.reports.formats import short
from app.services.container import Services
from app.validation import ANY_ID, sentence

#: Allows nothing from other sites, no inline script or style, and no site that frames the page.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_NOT_KEPT: Final = "no-store"
#: Messages for people about what HTTP itself refuses, by status.
_MISSING: Final = {
    404: "There is nothing at this address.",
    405: "There is nothing to see at this address: it only receives a form of another page.",
}


def make_router() -> APIRouter:
    """A router whose routes are pages, which OpenAPI does not include."""
    return APIRouter(route_class=PageRoute, include_in_schema=False)


class PageRoute(APIRoute):
    """Route of a page, a part of a page, or a form that a page sends."""

    @override
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's handler, wrapped in the behaviour of all pages."""
        run = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await as_page(request, run)

        return handle


def install(app: FastAPI) -> None:
    """Answer unknown addresses with a page for people, and as the API does for programs."""
    told = app.exception_handlers[HTTPException]

    async def on_http_error(request: Request, error: Exception) -> Response:
        wanted = "text/html" in request.headers.get("accept", "")
        if request.method != "GET" or not wanted or (request.url.path + "/").startswith("/v1/"):
            answer = told(request, error)
            return await answer if isinstance(answer, Awaitable) else answer

        async def missing(_: Request) -> Response:
            raise error

        return await as_page(request, missing)

    app.add_exception_handler(HTTPException, on_http_error)


async def as_page(
    request: Request, run: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    """The response of `run`, wrapped in the behaviour of all pages."""
    try:
        who = await visitor(request)
    except SextantError as error:  # the database is away
        take_for_nobody(request)
        response = await _error_page(request, error)
    else:
        response = await _answered(request, who, run)
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers.setdefault("Cache-Control", _NOT_KEPT)
    visit = (await visitor(request)).visit
    if request.cookies.get(VISIT_COOKIE) != visit:
        set_cookie(request, response, VISIT_COOKIE, visit)
    return response


async def _answered(
    request: Request, who: Visitor, run: Callable[[Request], Coroutine[Any, Any, Response]]
) -> Response:
    try:
        refuse_nul_in_url(request)
        if who.caller is not None:
            project = await (await services(request)).projects.recent.get(who.project)
            let_in(project, who.key_id, who.caller.requests_per_s)
        if request.method == "POST":
            await own_form(request)
        async with reading_turn(request, who.key_id):
            return await run(request)
    except UnauthenticatedError:
        return _to_login(request)
    except RequestValidationError as error:
        return await fault(request, *_nothing_like(error))
    except SextantError as error:
        return await _error_page(request, error)
    except HTTPException as error:
        return await fault(
            request, error.status_code, _MISSING.get(error.status_code, str(error.detail))
        )


async def _error_page(request: Request, error: SextantError) -> Response:
    response = await fault(request, int(status_of(type(error))), error.detail)
    response.headers.update(headers_of(error))
    return response


def _nothing_like(error: RequestValidationError) -> tuple[int, str]:
    """Status and sentence for an address with an invalid part, such as an id or a filter."""
    one = error.errors()[0]
    (where, *names), given = one["loc"], short(one.get("input", ""), 60)
    name = str(names[0] if names else "").removesuffix("_id").replace("_", " ")
    if where == "path":
        return 404, f"There is no {name} {given!r}."
    told = sentence(one)
    came = "" if ", got " in told else f", got {given!r}"
    return 422, f"{name} in the address: {told}{came}."


async def fault(request: Request, status: int, detail: str) -> Response:
    """A page that says what went wrong, or a part of a page where one was asked for."""
    return await page(request, "fault.html", "parts/fault.html", status=status, detail=detail)


#: Id of the last row of the page before.
After = Annotated[str | None, Query(pattern=ANY_ID, max_length=64)]
#: Number of the last event that a part of a page shows, where the browser polls that part.
Seen = Annotated[int | None, Query(ge=0, le=2**31 - 1)]


@dataclass(frozen=True, slots=True)
class PageCall:
    """One call of a page or form: who makes it, and what answers it."""

    request: Request
    visit: Visitor
    services: Services

    async def page(
        self, template: str, part: str | None = None, /, *, status: int | None = None, **values: Any
    ) -> Response:
        """A page, or the part of it that is asked for; see `app.pages.rendering.page`.

        By default its status is 422 if a `problem` is among the values.
        """
        status = status or (422 if values.get("problem") else 200)
        # Refused by REST, because a misspelt filter would show everything. A page says so and
        # stays: links that people pass on gain parameters on their way. Forms read what they can.
        reads = [] if "values" in values else self.request.scope["route"].dependant.query_params
        known = sorted(one.alias for one in reads)
        ignored = [name for name in self.request.query_params if known and name not in known]
        values |= {"reads": known, "ignored": ignored}
        return await page(self.request, template, part, status=status, **values)

    def see(self, path: str) -> Response:
        """Redirect to another page after a form was sent."""
        return see(self.request, path)


def _of(*scopes: ScopeName) -> Any:
    """A call that is refused if the visitor's key does not cover `scopes`."""

    async def call(request: Request, visit: Visit, opened: AllServices) -> PageCall:
        if scopes:
            visit.require(*scopes)
        return PageCall(request, visit, opened)

    return Depends(call)


#: A call, and calls that need these scopes.
Call = Annotated[PageCall, _of()]
Read = Annotated[PageCall, _of("read")]
Run = Annotated[PageCall, _of("run")]
ReadRun = Annotated[PageCall, _of("read", "run")]
Write = Annotated[PageCall, _of("banks:write")]
ReadWrite = Annotated[PageCall, _of("read", "banks:write")]
Admin = Annotated[PageCall, _of("admin")]


def unchanged() -> Response:
    """Response that the part of a page stays as it is, since nothing has happened."""
    return Response(status_code=204)


def see(request: Request, path: str) -> Response:
    """Redirect to another page after a form was sent."""
    if "hx-request" in request.headers:
        return Response(headers={"HX-Redirect": path})
    return RedirectResponse(path, status_code=303)


def _to_login(request: Request) -> Response:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.method != "GET" or "hx-request" in request.headers:
        return see(request, "/login")
    return see(request, f"/login?next={quote(wanted, safe='')}")
