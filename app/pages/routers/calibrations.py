"""Calibrations: their progress, fit and exclusions, and their publication."""

import json
from typing import Annotated

from fastapi import Query, Request, Response
from pydantic import ValidationError

from app.api.routers.calibrations import CalibrationId
from app.api.schemas.calibrations import CalibrationRead, PublicationCreate
from app.deps import AllServices, Feed
from app.errors import SextantError
from app.pages.access import Form, Visit
from app.pages.forms import Faults, faults_in
from app.pages.rendering import page
from app.pages.routing import Seen, see, unchanged
from app.pages.routing import router as make_router
from app.services.calibrations.service import CalibrationService
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
_RUNNING = ("queued", "running")
After = Annotated[str | None, Query(pattern=r"^cal_[0-9a-z]{26}$")]


@router.get("/calibrations")
async def calibration_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """Calibrations, the newest first."""
    visit.require("read")
    found = await opened.calibrations.list_page(PageRequest(limit=_LISTED, after=after))
    rows = [CalibrationRead.read(record) for record in found.items]
    return await page(request, "calibrations.html", rows=rows, more=found.has_more)


@router.get("/calibrations/{calibration_id}")
async def calibration_page(
    calibration_id: CalibrationId,
    request: Request,
    visit: Visit,
    opened: AllServices,
    feed: Feed,
    seen: Seen = None,
) -> Response:
    """One calibration; the page polls it every other second while it runs."""
    visit.require("read")
    newest = await feed.newest("calibration", calibration_id)
    if seen == newest:
        return unchanged()
    return await _page(request, opened.calibrations, calibration_id, seen=newest)


@router.post("/calibrations/{calibration_id}/cancel")
async def cancel(
    calibration_id: CalibrationId, request: Request, visit: Visit, opened: AllServices
) -> Response:
    """Cancel a calibration."""
    visit.require("banks:write")
    await opened.calibrations.cancel(calibration_id)
    return see(request, f"/calibrations/{calibration_id}")


@router.post("/calibrations/{calibration_id}/publish")
async def publish(
    calibration_id: CalibrationId,
    request: Request,
    visit: Visit,
    form: Form,
    opened: AllServices,
) -> Response:
    """Publish a calibration as a bank version."""
    visit.require("read", "banks:write")
    try:
        given = {name: form[name] for name in ("bank", "notes") if name in form}
        body = PublicationCreate.model_validate_json(json.dumps(given))
        version = await opened.calibrations.publish(calibration_id, body.to_domain())
    except (ValidationError, SextantError) as error:
        return await _page(request, opened.calibrations, calibration_id, problem=faults_in(error))
    return see(request, f"/banks/{version.bank_id}/versions/{version.number}")


async def _page(
    request: Request,
    calibrations: CalibrationService,
    calibration_id: str,
    *,
    seen: int | None = None,
    problem: Faults | None = None,
) -> Response:
    shown = CalibrationRead.read(await calibrations.get(calibration_id))
    template = "parts/calibration.html" if "hx-request" in request.headers else "calibration.html"
    return await page(
        request,
        template,
        status=422 if problem else 200,
        calibration=shown,
        running=shown.status in _RUNNING,
        seen=seen,
        problem=problem,
    )
