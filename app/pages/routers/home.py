"""The first page: what runs, what came out last, where to begin."""

from collections.abc import Sequence

from fastapi import Request, Response

from app.api.schemas.banks import BankRead
from app.api.schemas.sessions import SessionRead
from app.deps import AllServices
from app.pages.access import Visit
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.records.sessions import SessionFilter, SessionRecord
from app.services.visibility import View
from app.storage.paging import PageRequest

router = make_router()

_RUNNING = ("running", "waiting", "awaiting_response", "paused", "queued")
_SHOWN = 10
#: Tests that are looked through for the last result of each model and bank.
_LOOKED_AT = 100


@router.get("/")
async def home(request: Request, visit: Visit, opened: AllServices) -> Response:
    """What there is to see."""
    if visit.caller is None:
        visit.require("read")
    running: list[SessionRead] = []
    results: dict[str, list[SessionRead]] = {}
    banks: list[BankRead] = []
    if visit.may("read"):
        for status in _RUNNING:
            found = await opened.sessions.list_page(
                PageRequest(limit=_SHOWN), SessionFilter(status=status)
            )
            running += [SessionRead.of(record, visit.view) for record in found.items]
        done = await opened.sessions.list_page(
            PageRequest(limit=_LOOKED_AT), SessionFilter(status="completed")
        )
        results = _last_results(done.items, visit.view)
        known = await opened.banks.list_banks(PageRequest(limit=_SHOWN))
        banks = [BankRead.of(overview, visit.view) for overview in known.items]
    return await page(request, "home.html", running=running[:_SHOWN], results=results, banks=banks)


def _last_results(ended: Sequence[SessionRecord], view: View) -> dict[str, list[SessionRead]]:
    """The last result of each model by bank, the newest bank first, in it the best first.

    Args:
        ended: The newest first.
        view: Whose.
    """
    found: dict[str, dict[tuple[str, ...], SessionRead]] = {}
    for record in ended:
        if record.summary.get("accuracy") is None:
            continue
        of_bank = found.setdefault(record.bank_id, {})
        who = record.examinee.name if record.examinee else record.endpoint_name
        key = (record.mode, who or record.endpoint_model or record.id)
        if key not in of_bank and len(of_bank) < _SHOWN:
            of_bank[key] = SessionRead.of(record, view)
    return {
        bank: sorted(models.values(), key=lambda one: -one.accuracy.value if one.accuracy else 0.0)
        for bank, models in list(found.items())[:_SHOWN]
    }
