"""The first page, log in and out, and the reference of the API."""

from fastapi import Request, Response
from markupsafe import Markup

from app.api.schemas.banks import BankRead
from app.errors import UnauthenticatedError
from app.pages.access import LOGIN_COOKIE, Form, own_path, set_cookie
from app.pages.model_results import LOOKED_AT, BankResults, last_results, namesakes
from app.pages.rendering import page
from app.pages.routing import Call, make_router
from app.pages.shown import ShownSession
from app.records.sessions import SessionFilter
from app.storage.paging import PageRequest

router = make_router()

_RUNNING = ("running", "waiting", "awaiting_response", "paused", "queued")
_SHOWN = 10


@router.get("/")
async def home(call: Call) -> Response:
    """Sessions in progress, latest results and banks, as far as the visitor may see them."""
    visit, opened = call.visit, call.services
    if visit.caller is None:
        visit.require("read")
    running: list[ShownSession] = []
    results: dict[str, BankResults] = {}
    banks: list[BankRead] = []
    apart: dict[str, Markup] = {}
    if visit.may("read"):
        for status in _RUNNING:
            found = await opened.sessions.list_page(
                PageRequest(limit=_SHOWN), SessionFilter(status=status)
            )
            running += [ShownSession.of(record, visit.view) for record in found.items]
        done = await opened.sessions.list_page(
            PageRequest(limit=LOOKED_AT), SessionFilter(status="completed")
        )
        results = last_results(done.items, visit.view)
        records = {record.id: record for record in done.items}
        for one in results.values():
            apart |= namesakes(records[shown.id] for shown in one.shown)
        known = await opened.banks.list_banks(PageRequest(limit=_SHOWN))
        banks = [BankRead.of(overview, visit.view) for overview in known.items]
    return await call.page(
        "home.html",
        running=running[:_SHOWN],
        results=results,
        looked_at=LOOKED_AT,
        banks=banks,
        apart=apart,
    )


@router.get("/login")
async def login_page(request: Request) -> Response:
    """Ask for an API key."""
    wanted = own_path(request.query_params.get("next"))
    return await page(request, "login.html", next=wanted, problem=None)


@router.post("/login")
async def log_in(form: Form, call: Call) -> Response:
    """Exchange the key for a login cookie."""
    wanted = own_path(form.get("next"))
    try:
        token = await call.services.logins.open(form.get("key", "").strip())
    except UnauthenticatedError as error:
        return await call.page("login.html", status=401, next=wanted, problem=error.detail)
    if old := call.request.cookies.get(LOGIN_COOKIE):
        await call.services.logins.close(old)
    response = call.see(wanted)
    set_cookie(call.request, response, LOGIN_COOKIE, token)
    return response


@router.post("/logout")
async def log_out(call: Call) -> Response:
    """End the login, here and wherever its cookie was copied to."""
    if token := call.request.cookies.get(LOGIN_COOKIE):
        await call.services.logins.close(token)
    response = call.see("/login")
    response.delete_cookie(LOGIN_COOKIE, httponly=True, samesite="lax")
    response.headers["Clear-Site-Data"] = '"cache"'
    return response


@router.get("/docs")
async def reference(request: Request) -> Response:
    """The reference of all calls, which can be tried; public, like `/openapi.json`."""
    return await page(request, "docs.html")
