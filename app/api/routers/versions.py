"""Versions of banks: made, shown, given out, judged."""

import asyncio
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse

from app.api.bodies import LARGE, MEDIUM, up_to
from app.api.disconnects import entered_while_connected
from app.api.downloads import REPORT, ReportFormat, attachment, file_responses, html_page, preferred
from app.api.etags import NOT_MODIFIED, etag, is_current, not_modified
from app.api.parameters import BankRef, Paging, PagingInOrder, VersionRef, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.designs import FormCreate, FormRead
from app.api.schemas.reports import DriftRead, VersionReportRead, drift_json
from app.api.schemas.versions import (
    InformationRead,
    ItemStatus,
    JoinRead,
    ValidationCreate,
    ValidationRead,
    VersionCreate,
    VersionItemRead,
    VersionRead,
    theta_grid,
)
from app.deps import AllServices, Seen
from app.errors import CalibrationError, InvalidStateError, ItemBankError, UnknownNameError
from app.exchange.bank_files import BankFormat
from app.exchange.item_facts import write_form
from app.reports.version.page import render
from app.services.banks.items import ItemExposure
from app.services.banks.provisional import Recalibration
from app.shapes import ListRead
from app.validation import THETA_RANGE

router = make_router("/banks", tag="banks")


@router.post(
    "/{bank}/versions",
    status_code=201,
    openapi_extra=up_to(LARGE),
    **allow_once("banks:write", ItemBankError, UnknownNameError),
)
async def create_version(
    bank: BankRef, body: VersionCreate, request: Request, response: Response, opened: AllServices
) -> VersionRead:
    """Create a version from parameters of the bank's items, or return the latest if it has them."""
    n_rows = None if body.parameters is None else len(body.parameters)
    async with entered_while_connected(request, opened.banks.turn(n_rows)):
        made = await opened.banks.create_version(bank, await asyncio.to_thread(body.to_domain))
    response.headers["Location"] = f"/v1/banks/{made.bank_id}/versions/{made.id}"
    response.headers["ETag"] = etag(made.id)
    return VersionRead.read(made)


@router.get("/{bank}/versions", **allow("read"))
async def list_versions(bank: BankRef, page: Paging, opened: AllServices) -> ListRead[VersionRead]:
    """List the versions of a bank, the newest first."""
    found = await opened.versions.list_page(bank, page)
    return list_of(found, VersionRead.read)


@router.get(
    "/{bank}/versions/{version}", response_model=VersionRead, **allow("read", also=NOT_MODIFIED)
)
async def get_version(
    bank: BankRef, version: VersionRef, request: Request, response: Response, opened: AllServices
) -> VersionRead | Response:
    """One version by number, id, or `latest`."""
    found = await opened.versions.get(bank, version)
    tag = etag(found.id)
    if is_current(request, tag):
        return not_modified(tag)
    response.headers["ETag"] = tag
    return VersionRead.read(found)


@router.get("/{bank}/versions/{version}/items", **allow("read"))
async def list_version_items(
    bank: BankRef,
    version: VersionRef,
    page: PagingInOrder,
    opened: AllServices,
    status: Annotated[ItemStatus | None, Query()] = None,
) -> ListRead[VersionItemRead]:
    """List the items of a version by position, with parameters, state and lint findings."""
    found = await opened.versions.items(bank, version, page, status=status)
    return list_of(found, VersionItemRead.read, identify=lambda item: item.item_id)


@router.get("/{bank}/versions/{version}/lint", **allow("read"))
async def list_findings(
    bank: BankRef, version: VersionRef, page: PagingInOrder, opened: AllServices
) -> ListRead[VersionItemRead]:
    """List the items of a version with lint findings, by position."""
    found = await opened.versions.items(bank, version, page, flagged=True)
    return list_of(found, VersionItemRead.read, identify=lambda item: item.item_id)


@router.get("/{bank}/versions/{version}/information", **allow("read"))
async def get_information(
    bank: BankRef,
    version: VersionRef,
    opened: AllServices,
    theta: Annotated[
        str, Query(pattern=THETA_RANGE, description="`start:stop:step`, both ends included.")
    ] = "-3:3:0.1",
) -> InformationRead:
    """Information of the active items over theta, and the SE if all of them are asked."""
    return InformationRead.read(await opened.versions.information(bank, version, theta_grid(theta)))


@router.get("/{bank}/versions/{version}/exposure", **allow("read"))
async def get_exposure(bank: BankRef, version: VersionRef, opened: AllServices) -> ItemExposure:
    """How often tests of this project asked each item, and the overlap between tests."""
    found = await opened.versions.get(bank, version)
    return await opened.item_uses.exposure(await opened.versions.load(found.id))


@router.get(
    "/{bank}/versions/{version}/export",
    response_class=StreamingResponse,
    **allow(
        "read",
        ItemBankError,
        also={**file_responses(kind.media_type for kind in BankFormat), **NOT_MODIFIED},
    ),
)
async def export_version(
    bank: BankRef,
    version: VersionRef,
    view: Seen,
    request: Request,
    opened: AllServices,
    file_format: Annotated[
        BankFormat,
        Query(
            alias="format",
            description=(
                "`mirt`: CSV `X,a1,d,g,u` with intercepts; `csv`: `item,a,b,c,d(,k)`, with "
                "`intercept` instead of `b` if any item has `a = 0`; `py-irt`: "
                "`best_parameters.json`; `parquet`; `jsonl`: items with content and parameters. "
                "With several abilities there is one slope for each: `a1,a2,...`, or "
                "`general,dimension_1,...`."
            ),
        ),
    ] = BankFormat.MIRT,
) -> Response:
    """Export a version as a file that can be imported again.

    For keys without `banks:write`, content of a withheld bank is left out.
    """
    made = await opened.bank_exports.export(bank, version, file_format, reveal=view.is_whole)
    tag = etag(f"{made.version.id}-{file_format}{'-withheld' if made.withheld else ''}")
    if is_current(request, tag):
        return not_modified(tag)
    headers = {"Content-Disposition": attachment(made.name), "ETag": tag}
    return StreamingResponse(made.blocks, media_type=made.media_type, headers=headers)


@router.get(
    "/{bank}/versions/{version}/report",
    response_model=VersionReportRead,
    **allow("read", also=REPORT),
)
async def get_report(
    bank: BankRef,
    version: VersionRef,
    request: Request,
    response: Response,
    opened: AllServices,
    file_format: ReportFormat = None,
) -> VersionReportRead | Response:
    """Report on the precision and the faults of a version, as figures or as an HTML page.

    The page is self-contained: no scripts, fonts or images from elsewhere.
    """
    report = await opened.version_reports.report(bank, version)
    if (file_format or preferred(request, "json", "html")) == "html":
        return html_page(await asyncio.to_thread(render, report))
    response.headers["Vary"] = "Accept"
    return await asyncio.to_thread(VersionReportRead.of, report)


@router.get(
    "/{bank}/versions/{version}/drift", response_model=DriftRead, **allow("read", CalibrationError)
)
async def get_drift(
    bank: BankRef,
    version: VersionRef,
    opened: AllServices,
    response_set: Annotated[
        str,
        Query(
            min_length=1,
            max_length=200,
            description="Id or name of a response set with answers from after the version was "
            "made.",
        ),
    ],
    limit: Annotated[
        int, Query(ge=1, le=100_000, description="Maximum number of items to list.")
    ] = 100,
) -> Response:
    """Find items whose curves have changed, by new answers: drift and possible leaks.

    Each item's curve is compared with the curve by the new answers, given the abilities by all
    other items. If all items had leaked equally, the examinees would merely look better: a leak can
    be found only if other items did not leak.
    """
    look = await opened.drift.look(bank, version, response_set)
    return StreamingResponse(drift_json(look, limit=limit), media_type="application/json")


@router.get(
    "/{bank}/versions/{version}/bundle",
    response_class=StreamingResponse,
    **allow("read", InvalidStateError, also=file_responses(["application/x-ndjson"])),
)
async def export_bundle(bank: BankRef, version: VersionRef, opened: AllServices) -> Response:
    """Export a version as one file, for `POST /v1/banks:import`.

    The bundle has questions, parameters, knowledge, report card, prompt, licence, and a hash of
    everything. A withheld bank cannot be exported as a bundle, with any key.
    """
    made = await opened.bundles.export(bank, version)
    headers = {"Content-Disposition": attachment(made.name)}
    return StreamingResponse(made.blocks, media_type=made.media_type, headers=headers)


@router.get("/{bank}/versions/{version}/join", **allow("read"))
async def get_join(
    bank: BankRef,
    version: VersionRef,
    opened: AllServices,
    response_set: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="Id or name of a response set with answers from outside the calibration. "
            "Default: answers of the version's live sessions.",
        ),
    ] = None,
) -> JoinRead:
    """Check whether the parameters belong to their questions, by answers."""
    return JoinRead.of(await opened.joins.look(bank, version, response_set))


@router.get("/{bank}/versions/{version}/recalibration", **allow("read"))
async def get_recalibration(
    bank: BankRef, version: VersionRef, opened: AllServices
) -> Recalibration:
    """Whether live answers are enough to calibrate a provisional version again.

    To do so, call `POST /v1/response-sets/{set}:collect`, then `POST /v1/calibrations` with the
    version as `prior_version_id`. Nothing is calibrated automatically.
    """
    return await opened.recalibration_advice.look(bank, version)


@router.post(
    "/{bank}/versions/{version}:validate",
    openapi_extra=up_to(MEDIUM),
    **allow("read", UnknownNameError),
)
async def validate_version(
    bank: BankRef, version: VersionRef, body: ValidationCreate, opened: AllServices
) -> ValidationRead:
    """Lint findings and quarantined items under other overrides. Nothing is stored."""
    found = await opened.versions.validate(bank, version, allow=body.allow, keep=body.keep)
    return await asyncio.to_thread(ValidationRead.read, found)


@router.post(
    "/{bank}/versions/{version}:compose",
    response_model=FormRead,
    openapi_extra=up_to(MEDIUM),
    **allow(
        "read",
        also={
            200: {
                "description": "The form, as JSON or as CSV `item,weight`, by `Accept`.",
                "content": {"text/csv": {"schema": {"type": "string"}}},
            }
        },
    ),
)
async def compose_form(
    bank: BankRef,
    version: VersionRef,
    body: FormCreate,
    request: Request,
    response: Response,
    opened: AllServices,
) -> FormRead | Response:
    """Build the best fixed form of a version that predicts scores. Nothing is stored.

    For users who cannot test adaptively: ask any model the items of the form. Its predicted score
    is the constant plus the weighted sum of the item scores. In CSV, the row without an item is the
    constant.
    """
    found, form = await opened.versions.compose(bank, version, **dict(body))
    if preferred(request, "json", "csv") == "csv":
        keys = [found.keys[item] for item in form.items]
        content = write_form(keys, form.weights, form.constant)
        name = f"{found.bank_name}-v{found.number}-{len(keys)}.form.csv"
        headers = {"Content-Disposition": attachment(name), "Vary": "Accept"}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)
    response.headers["Vary"] = "Accept"
    return FormRead.of(found, body.target, form)
