"""Calibrations: their progress, fit and exclusions, and their publication."""

from fastapi import Response
from pydantic import ValidationError

from app.api.routers.calibrations import CalibrationId
from app.api.schemas.calibrations import CalibrationRead, PublicationCreate
from app.deps import Feed
from app.errors import SextantError
from app.pages.access import Form
from app.pages.forms import Faults, faults_in, read_as, texts_in
from app.pages.routing import After, PageCall, Read, ReadWrite, Seen, Write, make_router, unchanged
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
_RUNNING = ("queued", "running")


@router.get("/calibrations")
async def calibration_list(call: Read, after: After = None) -> Response:
    """Calibrations, the newest first."""
    async with call.services.database.reading() as uow:
        found = await uow.calibrations.list_page(PageRequest(limit=_LISTED, after=after))
    rows = [CalibrationRead.read(record) for record in found.items]
    return await call.page("calibrations.html", rows=rows, more=found.has_more)


@router.get("/calibrations/{calibration_id}")
async def calibration_page(
    calibration_id: CalibrationId, call: Read, feed: Feed, seen: Seen = None
) -> Response:
    """One calibration; the page polls it every other second while it runs."""
    newest = await feed.newest("calibration", calibration_id)
    if seen == newest:
        return unchanged()
    return await _page(call, calibration_id, seen=newest)


@router.post("/calibrations/{calibration_id}/cancel")
async def cancel(calibration_id: CalibrationId, call: Write) -> Response:
    """Cancel a calibration."""
    await call.services.calibrations.cancel(calibration_id)
    return call.see(f"/calibrations/{calibration_id}")


@router.post("/calibrations/{calibration_id}/publish")
async def publish(calibration_id: CalibrationId, form: Form, call: ReadWrite) -> Response:
    """Publish a calibration as a bank version."""
    try:
        body = read_as(PublicationCreate, {**texts_in(form, "bank", "notes")})
        version = await call.services.calibrations.publish(calibration_id, body.to_domain())
    except (ValidationError, SextantError) as error:
        return await _page(call, calibration_id, problem=faults_in(error))
    return call.see(f"/banks/{version.bank_id}/versions/{version.number}")


async def _page(
    call: PageCall, calibration_id: str, *, seen: int | None = None, problem: Faults | None = None
) -> Response:
    shown = CalibrationRead.read(await call.services.calibrations.get(calibration_id))
    return await call.page(
        "calibration.html",
        "parts/calibration.html",
        calibration=shown,
        running=shown.status in _RUNNING,
        seen=seen,
        problem=problem,
    )
