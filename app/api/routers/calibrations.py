"""Calibrations: from a response set to a bank version."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.bodies import MEDIUM, up_to
from app.api.events import EVENTS, AfterEvent, Wait, events_for, wait_for_end
from app.api.parameters import AfterPosition, Paging, id_path, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.calibration_results import FittedItemRead, Positions
from app.api.schemas.calibrations import CalibrationCreate, CalibrationRead, PublicationCreate
from app.api.schemas.events import EventList
from app.api.schemas.versions import VersionRead
from app.deps import AllServices, Feed, Seen
from app.errors import (
    AlreadyExistsError,
    CalibrationError,
    InvalidStateError,
    ItemBankError,
    NotFoundError,
    UnknownNameError,
)
from app.services.calibrations.service import ExamineeAbility
from app.shapes import ListRead, WorkStatus

router = make_router("/calibrations", tag="calibrations")

CalibrationId = Annotated[str, id_path("cal")]
ResponseSetId = Annotated[str, Query(pattern=r"^rsp_[0-9a-z]{26}$")]


@router.post(
    "",
    status_code=202,
    openapi_extra=up_to(MEDIUM),
    **allow_once("banks:write", NotFoundError, CalibrationError, UnknownNameError),
)
async def create_calibration(
    body: CalibrationCreate, response: Response, opened: AllServices
) -> CalibrationRead:
    """Estimate item parameters from a response set.

    Answers that cannot be calibrated are refused at once. Otherwise a worker calibrates; poll the
    calibration, whose `progress` changes about every second.
    """
    publication = None if body.publish is None else body.publish.to_domain()
    created = await opened.calibrations.create(body.response_set, body.to_domain(), publication)
    response.headers["Location"] = f"/v1/calibrations/{created.id}"
    return CalibrationRead.read(created)


@router.get("", **allow("read", NotFoundError))
async def list_calibrations(
    page: Paging,
    opened: AllServices,
    status: Annotated[WorkStatus | None, Query()] = None,
    response_set_id: ResponseSetId | None = None,
) -> ListRead[CalibrationRead]:
    """List calibrations, the newest first."""
    async with opened.database.reading() as uow:
        found = await uow.calibrations.list_page(
            page, status=status, response_set_id=response_set_id
        )
    return list_of(found, CalibrationRead.read)


@router.get("/{calibration_id}", **allow("read"))
async def get_calibration(
    calibration_id: CalibrationId, request: Request, opened: AllServices, feed: Feed, wait: Wait = 0
) -> CalibrationRead:
    """State and results of a calibration."""
    if wait:
        await wait_for_end(request, feed, "calibration", calibration_id, wait)
    return CalibrationRead.read(await opened.calibrations.get(calibration_id))


@router.delete("/{calibration_id}", status_code=204, **allow("banks:write", InvalidStateError))
async def delete_calibration(calibration_id: CalibrationId, opened: AllServices) -> None:
    """Delete an ended calibration that was never published."""
    async with opened.database.unit_of_work() as uow:
        await uow.calibrations.delete(calibration_id)


@router.get("/{calibration_id}/items", **allow("read", InvalidStateError))
async def list_fitted_items(
    calibration_id: CalibrationId,
    opened: AllServices,
    after: AfterPosition = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Positions[FittedItemRead]:
    """List the items of a completed calibration, with parameters, standard errors and fit."""
    rows = await opened.calibrations.items(calibration_id, after=after, limit=limit + 1)
    data = [FittedItemRead.of(row) for row in rows[:limit]]
    last = data[-1].position if data else after
    return Positions(data=data, last_position=last, has_more=len(rows) > limit)


@router.get("/{calibration_id}/events", **EVENTS)
async def calibration_events(
    calibration_id: CalibrationId,
    request: Request,
    opened: AllServices,
    feed: Feed,
    view: Seen,
    after: AfterEvent = 0,
) -> Response | EventList:
    """Events of a calibration. `Last-Event-ID` or `after` resumes the stream."""
    await opened.calibrations.get(calibration_id)
    return await events_for(request, feed, "calibration", calibration_id, view, after=after)


@router.get("/{calibration_id}/abilities", **allow("read", InvalidStateError))
async def list_abilities(
    calibration_id: CalibrationId,
    opened: AllServices,
    after: AfterPosition = -1,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Positions[ExamineeAbility]:
    """List the examinees of a calibration with a report card, with their whole-bank abilities."""
    rows = await opened.calibrations.abilities(calibration_id, after=after, limit=limit + 1)
    data = rows[:limit]
    last = data[-1].position if data else after
    return Positions(data=data, last_position=last, has_more=len(rows) > limit)


@router.post("/{calibration_id}:cancel", **allow("banks:write", InvalidStateError))
async def cancel_calibration(calibration_id: CalibrationId, opened: AllServices) -> CalibrationRead:
    """Cancel a calibration. Its worker stops within seconds and stores no result."""
    return CalibrationRead.read(await opened.calibrations.cancel(calibration_id))


@router.post(
    "/{calibration_id}:publish",
    status_code=201,
    openapi_extra=up_to(MEDIUM),
    **allow_once(
        "banks:write", InvalidStateError, AlreadyExistsError, ItemBankError, UnknownNameError
    ),
)
async def publish_calibration(
    calibration_id: CalibrationId, body: PublicationCreate, response: Response, opened: AllServices
) -> VersionRead:
    """Create a bank version from a completed calibration: all or nothing.

    A calibration can be published repeatedly and in several banks; their versions are on the same
    scale. If the latest version of the bank is the same already, it is returned and no new one is
    created.
    """
    version = await opened.calibrations.publish(calibration_id, body.to_domain())
    response.headers["Location"] = f"/v1/banks/{version.bank_id}/versions/{version.number}"
    return VersionRead.read(version)
