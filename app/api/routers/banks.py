"""Banks, their items, imports and versions."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from app.api.downloads import attachment, file_responses, html_page, preferred
from app.api.errors import HTTP_CODES, documented, errors
from app.api.etags import ExpectedRevision, etag, is_current, not_modified
from app.api.idempotency import IDEMPOTENT
from app.api.paging import Paging, PagingInOrder, list_of
from app.api.routing import router as make_router
from app.api.schemas.banks import BankCreate, BankRead, BankUpdate, ImportCreate, ImportRead
from app.api.schemas.common import ListRead
from app.api.schemas.drift import DriftRead
from app.api.schemas.items import BatchRead, ItemCreate, ItemRead, ItemUpdate
from app.api.schemas.reports import VersionReportRead
from app.api.schemas.versions import (
    InformationRead,
    ValidationCreate,
    ValidationRead,
    VersionCreate,
    VersionItemRead,
    VersionRead,
    theta_grid,
)
from app.deps import BankExportsDep, Banks, Caller, Drifts, Reports, caller
from app.errors import (
    AlreadyExistsError,
    CalibrationError,
    ConflictError,
    FileFormatError,
    InvalidStateError,
    ItemBankError,
    NotFoundError,
    PreconditionFailedError,
    PreconditionRequiredError,
    UnknownNameError,
)
from app.exchange.bank_files import BankFormat
from app.exchange.items import scan_items
from app.reports.version.page import render
from app.storage.repositories.api_keys import Scope

router = make_router("/banks", tag="banks")

BankRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="Id or name of the bank.",
        examples=["demo"],
    ),
]
ItemRef = Annotated[
    str,
    Path(min_length=1, max_length=512, description="Id or key of the item."),
]
VersionRef = Annotated[
    str,
    Path(
        pattern=r"^(latest|[1-9][0-9]{0,8}|bkv_[0-9a-z]{26})$",
        description="Number, id, or `latest`.",
        examples=["latest"],
    ),
]
Reader = Annotated[Caller, caller("read")]

_CONDITIONAL = errors(PreconditionFailedError, PreconditionRequiredError)
_NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "You have the present state: nothing was sent."}
}
_NUMBER = r"[0-9]{1,4}(\.[0-9]{1,6})?"
_THETA_RANGE = rf"^-?{_NUMBER}:-?{_NUMBER}:{_NUMBER}$"
_NDJSON = ("application/x-ndjson", "application/jsonl", "text/plain")
_NDJSON_BODY = {
    "requestBody": {
        "required": True,
        "description": f"One item a line, at most 1000, as {', '.join(_NDJSON)}.",
        # Of these, generated clients and test tools know how to write only this one.
        "content": {
            "text/plain": {
                "schema": {"type": "string"},
                "example": '{"key": "q1", "prompt": "2 + 2 = ?", "target": "4"}\n',
            }
        },
    }
}


@router.post(
    "",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses=errors(AlreadyExistsError, UnknownNameError),
)
async def create_bank(body: BankCreate, response: Response, banks: Banks) -> BankRead:
    """Make an empty bank."""
    created = await banks.create_bank(body.to_spec())
    response.headers["Location"] = f"/v1/banks/{created.bank.id}"
    response.headers["ETag"] = etag(created.bank.revision)
    return BankRead.of(created)


@router.get("", dependencies=[caller("read")], responses=errors(NotFoundError))
async def list_banks(page: Paging, banks: Banks) -> ListRead[BankRead]:
    """Banks, the newest first."""
    found = await banks.list_banks(page)
    return list_of(found, BankRead.of, identify=lambda overview: overview.bank.id)


@router.get("/{bank}", dependencies=[caller("read")])
async def get_bank(bank: BankRef, response: Response, banks: Banks) -> BankRead:
    """One bank, by id or name, with its latest version."""
    found = await banks.get_bank(bank)
    response.headers["ETag"] = etag(found.bank.revision)
    return BankRead.of(found)


@router.patch(
    "/{bank}",
    dependencies=[caller("banks:write")],
    responses={**errors(AlreadyExistsError, UnknownNameError), **_CONDITIONAL},
)
async def update_bank(
    bank: BankRef, body: BankUpdate, revision: ExpectedRevision, response: Response, banks: Banks
) -> BankRead:
    """Change a bank's settings. Its versions stay as they are."""
    changed = await banks.update_bank(bank, revision, body.to_changes())
    response.headers["ETag"] = etag(changed.bank.revision)
    return BankRead.of(changed)


@router.delete(
    "/{bank}", status_code=204, dependencies=[caller("banks:write")], responses=_CONDITIONAL
)
async def delete_bank(bank: BankRef, revision: ExpectedRevision, banks: Banks) -> None:
    """Delete a bank and free its name. Sessions on its versions keep their results."""
    await banks.delete_bank(bank, revision)


@router.post(
    "/{bank}/items",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses=errors(AlreadyExistsError),
)
async def create_item(
    bank: BankRef, body: ItemCreate, response: Response, banks: Banks
) -> ItemRead:
    """Add one item. It can be changed until a version holds it."""
    created = await banks.add_item(bank, body.to_domain())
    response.headers["Location"] = f"/v1/banks/{created.bank_id}/items/{created.id}"
    response.headers["ETag"] = etag(created.revision)
    return ItemRead.of(created)


@router.get("/{bank}/items")
async def list_items(
    bank: BankRef, page: PagingInOrder, who: Reader, banks: Banks
) -> ListRead[ItemRead]:
    """Items of a bank, the oldest first."""
    found = await banks.list_items(bank, page, reveal=who.may(Scope.BANKS_WRITE))
    return list_of(found, ItemRead.of, identify=lambda item: item.id)


@router.get("/{bank}/items/{item}")
async def get_item(
    bank: BankRef, item: ItemRef, who: Reader, response: Response, banks: Banks
) -> ItemRead:
    """One item, by id or key."""
    found = await banks.get_item(bank, item, reveal=who.may(Scope.BANKS_WRITE))
    response.headers["ETag"] = etag(found.revision)
    return ItemRead.of(found)


@router.patch(
    "/{bank}/items/{item}",
    dependencies=[caller("banks:write")],
    responses={**errors(AlreadyExistsError, InvalidStateError), **_CONDITIONAL},
)
async def update_item(
    bank: BankRef,
    item: ItemRef,
    body: ItemUpdate,
    revision: ExpectedRevision,
    response: Response,
    banks: Banks,
) -> ItemRead:
    """Change an item that no version holds."""
    changed = await banks.update_item(bank, item, revision, body.to_changes())
    response.headers["ETag"] = etag(changed.revision)
    return ItemRead.of(changed)


@router.delete(
    "/{bank}/items/{item}",
    status_code=204,
    dependencies=[caller("banks:write")],
    responses={**errors(InvalidStateError), **_CONDITIONAL},
)
async def delete_item(
    bank: BankRef, item: ItemRef, revision: ExpectedRevision, banks: Banks
) -> None:
    """Delete an item that no version holds."""
    await banks.delete_item(bank, item, revision)


@router.post(
    "/{bank}/items:batch",
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses={
        **errors(FileFormatError),
        **documented(413, [HTTP_CODES[413]]),
        **documented(415, [HTTP_CODES[415]]),
    },
    openapi_extra=_NDJSON_BODY,
)
async def add_items(bank: BankRef, request: Request, banks: Banks) -> BatchRead:
    """Add items line by line: each line succeeds or fails by itself."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in _NDJSON:
        raise HTTPException(
            415, f"Content-Type {media_type or '(none)'} cannot be read; send {_NDJSON[0]}."
        )
    rows = scan_items(await request.body(), name="body", file_format="jsonl")
    return BatchRead.of(await banks.add_batch(bank, rows))


@router.post(
    "/{bank}/imports",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses={
        200: {"model": ImportRead, "description": "A dry run: nothing was written."},
        **errors(ConflictError, FileFormatError, ItemBankError, UnknownNameError),
    },
)
async def import_into_bank(
    bank: BankRef, body: ImportCreate, response: Response, banks: Banks
) -> ImportRead:
    """Import items, parameters or both, at once: all of it or nothing.

    Parameters make a new version. A file above the server's body limit comes in through
    `sextant banks import`, or in parts through `items:batch`.
    """
    report = await banks.import_into(
        bank, await asyncio.to_thread(body.to_domain), dry_run=body.dry_run
    )
    if body.dry_run:
        response.status_code = 200
    elif report.version is not None:
        response.headers["Location"] = f"/v1/banks/{report.bank.id}/versions/{report.version.id}"
    return ImportRead.of(report)


@router.post(
    "/{bank}/versions",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses=errors(ItemBankError, UnknownNameError),
)
async def create_version(
    bank: BankRef, body: VersionCreate, response: Response, banks: Banks
) -> VersionRead:
    """Make a version from parameters of the bank's items."""
    made = await banks.create_version(bank, await asyncio.to_thread(body.to_domain))
    response.headers["Location"] = f"/v1/banks/{made.bank_id}/versions/{made.id}"
    response.headers["ETag"] = etag(made.id)
    return VersionRead.of(made)


@router.get("/{bank}/versions", dependencies=[caller("read")])
async def list_versions(bank: BankRef, page: Paging, banks: Banks) -> ListRead[VersionRead]:
    """Versions of a bank, the newest first."""
    found = await banks.list_versions(bank, page)
    return list_of(found, VersionRead.of, identify=lambda version: version.id)


@router.get(
    "/{bank}/versions/{version}",
    dependencies=[caller("read")],
    response_model=VersionRead,
    responses=_NOT_MODIFIED,
)
async def get_version(
    bank: BankRef, version: VersionRef, request: Request, response: Response, banks: Banks
) -> VersionRead | Response:
    """One version by number, id, or `latest`."""
    found = await banks.get_version(bank, version)
    tag = etag(found.id)
    if is_current(request, tag):
        return not_modified(tag)
    response.headers["ETag"] = tag
    return VersionRead.of(found)


@router.get("/{bank}/versions/{version}/items", dependencies=[caller("read")])
async def list_version_items(
    bank: BankRef,
    version: VersionRef,
    page: PagingInOrder,
    banks: Banks,
    status: Annotated[Literal["active", "quarantined", "pretest"] | None, Query()] = None,
) -> ListRead[VersionItemRead]:
    """Parameters, state and findings of a version's items, by position."""
    found = await banks.version_items(bank, version, page, status=status)
    return list_of(found, VersionItemRead.of, identify=lambda item: item.item_id)


@router.get("/{bank}/versions/{version}/lint", dependencies=[caller("read")])
async def list_findings(
    bank: BankRef, version: VersionRef, page: PagingInOrder, banks: Banks
) -> ListRead[VersionItemRead]:
    """The items of a version that lint has something to say about, by position."""
    found = await banks.version_items(bank, version, page, flagged=True)
    return list_of(found, VersionItemRead.of, identify=lambda item: item.item_id)


@router.get("/{bank}/versions/{version}/information", dependencies=[caller("read")])
async def get_information(
    bank: BankRef,
    version: VersionRef,
    banks: Banks,
    theta: Annotated[
        str,
        Query(pattern=_THETA_RANGE, description="`start:stop:step`, both ends included."),
    ] = "-3:3:0.1",
) -> InformationRead:
    """Information of the active items over theta, and the SE if all of them were asked."""
    return InformationRead.of(await banks.information(bank, version, theta_grid(theta)))


@router.get(
    "/{bank}/versions/{version}/export",
    response_class=StreamingResponse,
    responses={
        **file_responses(kind.media_type for kind in BankFormat),
        **_NOT_MODIFIED,
        **errors(ItemBankError),
    },
)
async def export_version(
    bank: BankRef,
    version: VersionRef,
    who: Reader,
    request: Request,
    exports: BankExportsDep,
    file_format: Annotated[
        BankFormat,
        Query(
            alias="format",
            description=(
                "`mirt`: CSV `X,a1,d,g,u` with intercepts; `csv`: `item,a,b,c,d(,k)`; `py-irt`: "
                "`best_parameters.json`; `parquet`; `jsonl`: items with content and parameters."
            ),
        ),
    ] = BankFormat.MIRT,
) -> Response:
    """A version as a file that imports read back.

    Content of a withheld bank is left out for keys without `banks:write`.
    """
    made = await exports.export(bank, version, file_format, reveal=who.may(Scope.BANKS_WRITE))
    tag = etag(f"{made.version.id}-{file_format}{'-withheld' if made.withheld else ''}")
    if is_current(request, tag):
        return not_modified(tag)
    headers = {"Content-Disposition": attachment(made.name), "ETag": tag}
    return StreamingResponse(made.blocks, media_type=made.media_type, headers=headers)


@router.get(
    "/{bank}/versions/{version}/report",
    dependencies=[caller("read")],
    response_model=VersionReportRead,
    responses={
        200: {
            "description": "The report, as JSON or as a page of its own.",
            "content": {"text/html": {"schema": {"type": "string"}}},
        },
    },
)
async def get_report(
    bank: BankRef,
    version: VersionRef,
    request: Request,
    response: Response,
    reports: Reports,
    file_format: Annotated[
        Literal["json", "html"] | None,
        Query(alias="format", description="By default what `Accept` prefers, else JSON."),
    ] = None,
) -> VersionReportRead | Response:
    """What a version can do and what is wrong with it, for people: figures, or an HTML page.

    The page needs nothing else: no script, no font, no image from outside.
    """
    report = await reports.report(bank, version)
    if (file_format or preferred(request, "json", "html")) == "html":
        return html_page(await asyncio.to_thread(render, report))
    response.headers["Vary"] = "Accept"
    return await asyncio.to_thread(VersionReportRead.of, report)


@router.get(
    "/{bank}/versions/{version}/drift",
    dependencies=[caller("read")],
    responses=errors(CalibrationError),
)
async def get_drift(
    bank: BankRef,
    version: VersionRef,
    drifts: Drifts,
    response_set: Annotated[
        str,
        Query(
            min_length=1,
            max_length=200,
            description="Id or name; of answers that came in after the version was made.",
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=1000, description="Items to list.")] = 100,
) -> DriftRead:
    """Which items are no longer what they were, judged by new answers: drift, and possible leaks.

    Each item's curve is compared with what the new answers ask for, given the abilities that all
    other items show. If every item had leaked alike, the examinees would merely look abler: a
    signal needs items that did not leak.
    """
    return DriftRead.of(await drifts.look(bank, version, response_set), limit=limit)


@router.post(
    "/{bank}/versions/{version}:validate",
    dependencies=[caller("read")],
    responses=errors(UnknownNameError),
)
async def validate_version(
    bank: BankRef, version: VersionRef, body: ValidationCreate, banks: Banks
) -> ValidationRead:
    """What lint says, and who would be quarantined, under other overrides; nothing is written."""
    return ValidationRead.of(
        await banks.validate_version(bank, version, allow=body.allow, keep=body.keep)
    )
