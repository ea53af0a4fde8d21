"""The first page: sessions in progress, latest results, and links to start."""

from fastapi import Request, Response
from markupsafe import Markup

from app.api.schemas.banks import BankRead
from app.api.schemas.sessions import SessionRead
from app.deps import AllServices
from app.pages.access import Visit
from app.pages.latest import LOOKED_AT, last_results
from app.pages.namesakes import namesakes
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.records.sessions import SessionFilter
from app.storage.paging import PageRequest

router = make_router()

_RUNNING = ("running", "waiting", "awaiting_response", "paused", "queued")
_SHOWN = 10


@router.get("/")
async def home(request: Request, visit: Visit, opened: AllServices) -> Response:
    """Sessions in progress, latest results and banks, as far as the visitor may see them."""
    if visit.caller is None:
        visit.require("read")
    running: list[SessionRead] = []
    results: dict[str, list[SessionRead]] = {}
    banks: list[BankRead] = []
    apart: dict[str, Markup] = {}
    if visit.may("read"):
        for status in _RUNNING:
            found = await opened.sessions.list_page(
                PageRequest(limit=_SHOWN), SessionFilter(status=status)
            )
            running += [SessionRead.of(record, visit.view) for record in found.items]
        done = await opened.sessions.list_page(
            PageRequest(limit=LOOKED_AT), SessionFilter(status="completed")
        )
        results = last_results(done.items, visit.view)
        records = {record.id: record for record in done.items}
        for shown in results.values():
            apart |= namesakes(records[one.id] for one in shown)
        known = await opened.banks.list_banks(PageRequest(limit=_SHOWN))
        banks = [BankRead.of(overview, visit.view) for overview in known.items]
    return await page(
        request,
        "home.html",
        running=running[:_SHOWN],
        results=results,
        banks=banks,
        apart=apart,
    )
