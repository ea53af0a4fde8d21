"""Banks and imports into them."""

import asyncio
from typing import Annotated

from fastapi import Query, Request, Response

from app.api.bodies import LARGE, up_to
from app.api.disconnects import entered_while_connected
from app.api.errors import CONDITIONAL, errors
from app.api.etags import ExpectedRevision, etag
from app.api.parameters import BankRef, Erase, Paging, list_of
from app.api.routing import IDEMPOTENT, allow, allow_once, make_router
from app.api.schemas.banks import (
    BankCreate,
    BankRead,
    BankUpdate,
    BundleCreate,
    ImportCreate,
    ImportRead,
)
from app.api.schemas.from_results import FromResultsCreate, FromResultsRead
from app.api.schemas.results import LeaderboardRead, MetricName
from app.deps import AllServices, Caller, Seen, caller
from app.errors import (
    AlreadyExistsError,
    ConflictError,
    FileFormatError,
    InvalidStateError,
    ItemBankError,
    NotFoundError,
    UnknownNameError,
)
from app.records.banks import BankSpec
from app.services.results.leaderboards import Wanted
from app.shapes import ListRead, Name

router = make_router("/banks", tag="banks")


@router.post("", status_code=201, **allow_once("banks:write", AlreadyExistsError, UnknownNameError))
async def create_bank(
    body: BankCreate, response: Response, opened: AllServices, view: Seen
) -> BankRead:
    """Create an empty bank."""
    created = await opened.banks.create_bank(body.to_spec())
    response.headers["Location"] = f"/v1/banks/{created.bank.id}"
    response.headers["ETag"] = etag(created.bank.revision)
    return BankRead.of(created, view)


@router.get("", **allow("read", NotFoundError))
async def list_banks(page: Paging, opened: AllServices, view: Seen) -> ListRead[BankRead]:
    """List banks, the newest first."""
    found = await opened.banks.list_banks(page)
    return list_of(
        found,
        lambda overview: BankRead.of(overview, view),
        identify=lambda overview: overview.bank.id,
    )


@router.get("/{bank}", **allow("read"))
async def get_bank(bank: BankRef, response: Response, opened: AllServices, view: Seen) -> BankRead:
    """One bank, by id or name, with its latest version."""
    found = await opened.banks.get_bank(bank)
    response.headers["ETag"] = etag(found.bank.revision)
    return BankRead.of(found, view)


@router.patch(
    "/{bank}",
    **allow("banks:write", AlreadyExistsError, InvalidStateError, UnknownNameError, *CONDITIONAL),
)
async def update_bank(
    bank: BankRef,
    body: BankUpdate,
    revision: ExpectedRevision,
    response: Response,
    opened: AllServices,
    view: Seen,
) -> BankRead:
    """Change the settings of a bank. Its versions do not change."""
    changed = await opened.banks.update_bank(bank, revision, body.to_changes())
    response.headers["ETag"] = etag(changed.bank.revision)
    return BankRead.of(changed, view)


@router.delete("/{bank}", status_code=204, **allow("banks:write", InvalidStateError, *CONDITIONAL))
async def delete_bank(
    bank: BankRef, revision: ExpectedRevision, opened: AllServices, erase: Erase = False
) -> None:
    """Delete a bank and free its name. Sessions on its versions keep their results."""
    await opened.banks.delete_bank(bank, revision, erases=erase)


@router.post(
    ":import",
    status_code=201,
    openapi_extra=up_to(LARGE),
    **allow_once("banks:write", ConflictError, FileFormatError, ItemBankError, UnknownNameError),
)
async def import_bundle(body: BundleCreate, response: Response, opened: AllServices) -> ImportRead:
    """Create a bank from a bundle, or a new version of the bank of its name: all or nothing.

    A bundle that was modified after it was written is refused.
    """
    sent = await asyncio.to_thread(body.bundle.to_domain, "bundle")
    report = await opened.bundles.import_file(sent, body.name)
    if report.version is not None:
        response.headers["Location"] = f"/v1/banks/{report.bank.id}/versions/{report.version.id}"
    return ImportRead.read(report)


@router.post(
    ":from-results",
    status_code=202,
    dependencies=[IDEMPOTENT],
    responses=errors(ConflictError, FileFormatError, UnknownNameError),
    openapi_extra=up_to(LARGE),
)
async def make_from_results(
    body: FromResultsCreate,
    response: Response,
    opened: AllServices,
    view: Seen,
    who: Annotated[Caller, caller("banks:write")],
) -> FromResultsRead:
    """Create a bank from recorded results: questions, answers, calibration and version.

    Questions and answers are stored at once, all or nothing. A worker then calibrates and
    publishes; poll or cancel the calibration at `Location`. With too few models nothing is
    calibrated, and `stopped` says what is needed. What was read is kept, so the same call with more
    files continues from there.
    """
    wanted = await asyncio.to_thread(body.to_domain)
    begun = await opened.result_banks.begin(wanted)
    if begun.calibration is not None:
        response.headers["Location"] = f"/v1/calibrations/{begun.calibration.id}"
    return FromResultsRead.of(begun, view)


@router.post(
    "/{bank}/imports",
    status_code=201,
    openapi_extra=up_to(LARGE),
    **allow_once(
        "banks:write",
        ConflictError,
        FileFormatError,
        ItemBankError,
        UnknownNameError,
        also={200: {"model": ImportRead, "description": "A dry run: nothing was written."}},
    ),
)
async def import_into_bank(
    bank: BankRef, body: ImportCreate, request: Request, response: Response, opened: AllServices
) -> ImportRead:
    """Import items, parameters or both: all or nothing.

    Parameters make a new version. A dry run may name a bank that does not exist yet.
    For files above the server's body limit use `sextant banks import`, or send the items in parts
    to `items:batch`. Large imports wait for each other; if the client disconnects while it waits,
    nothing is imported.
    """
    items, parameters = body.items, body.parameters
    if not body.dry_run:  # before the files are read
        await opened.banks.get_bank(bank)
    reading = opened.banks.files_read(
        body.to_domain(),
        items=await asyncio.to_thread(items.to_domain, "items") if items else None,
        mapping=body.mapping,
        parameters=await asyncio.to_thread(parameters.to_domain, "parameters")
        if parameters
        else None,
    )
    async with entered_while_connected(request, reading) as read:
        if body.dry_run:
            report = await opened.banks.import_bank(BankSpec(name=bank), read, dry_run=True)
        else:
            report = await opened.banks.import_into(bank, read)
    if body.dry_run:
        response.status_code = 200
    elif report.version is not None:
        response.headers["Location"] = f"/v1/banks/{report.bank.id}/versions/{report.version.id}"
    return ImportRead.read(report)


@router.get("/{bank}/leaderboard", **allow("read", NotFoundError))
async def get_leaderboard(
    bank: BankRef,
    opened: AllServices,
    view: Seen,
    metric: Annotated[
        MetricName, Query(description="Metric of the ranks: the score, or the ability.")
    ] = "score",
    confidence: Annotated[float, Query(gt=0.5, lt=1)] = 0.95,
    model: Annotated[Name | None, Query(description="Only results of this model.")] = None,
    scaffold: Annotated[
        Name | None, Query(description="Only results of agents with this scaffold.")
    ] = None,
    self_reported: Annotated[
        bool | None,
        Query(
            description="True: only results reported by clients. False: only those of endpoints."
        ),
    ] = None,
) -> LeaderboardRead:
    """The present result of each examinee, in tie groups with possible ranks.

    Examinees are endpoints, and named examinees who answer by hand (`self_reported`). The present
    result is one of the examinee's last ten, with the settings of the newest: the newest one whose
    score interval is at most 1.25 times as wide as the narrowest.

    Thetas can only be compared on one scale: results on scales other than the latest version's are
    listed separately. Endpoints in one group do not differ at the given confidence.
    """
    wanted = Wanted(model=model, scaffold=scaffold, self_reported=self_reported)
    found = await opened.leaderboards.of_bank(
        bank, metric=metric, confidence=confidence, wanted=wanted
    )
    return LeaderboardRead.of_bank(found, view)
