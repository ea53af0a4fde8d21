"""Response sets: recorded answers in, their matrix out."""

import asyncio
from typing import Annotated

from fastapi import Query, Response
from fastapi.responses import StreamingResponse

from app.api.bodies import LARGE, up_to
from app.api.downloads import attachment, file_responses
from app.api.errors import CONDITIONAL
from app.api.etags import ExpectedRevision, etag
from app.api.parameters import Paging, list_of, name_path
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.response_sets import (
    AnswerImportCreate,
    AnswerImportRead,
    CollectionRead,
    ResponseSetCreate,
    ResponseSetRead,
)
from app.deps import AllServices
from app.errors import AlreadyExistsError, FileFormatError, InvalidStateError, NotFoundError
from app.services.responses.collection import Collection
from app.services.responses.service import MatrixFormat
from app.shapes import ListRead

router = make_router("/response-sets", tag="response sets")

SetRef = Annotated[str, name_path("response set", "arc-2026")]


@router.post("", status_code=201, **allow_once("banks:write", AlreadyExistsError))
async def create_response_set(
    body: ResponseSetCreate, response: Response, opened: AllServices
) -> ResponseSetRead:
    """Create an empty response set."""
    made = await opened.response_sets.create(
        body.name, description=body.description, metadata=body.metadata
    )
    response.headers["Location"] = f"/v1/response-sets/{made.id}"
    response.headers["ETag"] = etag(made.revision)
    return ResponseSetRead.read(made)


@router.get("", **allow("read", NotFoundError))
async def list_response_sets(page: Paging, opened: AllServices) -> ListRead[ResponseSetRead]:
    """List response sets, the newest first."""
    async with opened.database.reading() as uow:
        found = await uow.response_sets.list_page(page)
    return list_of(found, ResponseSetRead.read)


@router.get("/{response_set}", **allow("read"))
async def get_response_set(
    response_set: SetRef, response: Response, opened: AllServices
) -> ResponseSetRead:
    """One response set, by id or name."""
    found = await opened.response_sets.get(response_set)
    response.headers["ETag"] = etag(found.revision)
    return ResponseSetRead.read(found)


@router.delete(
    "/{response_set}", status_code=204, **allow("banks:write", InvalidStateError, *CONDITIONAL)
)
async def delete_response_set(
    response_set: SetRef, revision: ExpectedRevision, opened: AllServices
) -> None:
    """Delete a response set with all its answers; refused if a calibration was made from it."""
    await opened.response_sets.delete(response_set, revision)


@router.post(
    "/{response_set}/imports",
    status_code=201,
    openapi_extra=up_to(LARGE),
    **allow_once(
        "banks:write",
        FileFormatError,
        also={200: {"model": AnswerImportRead, "description": "A dry run: nothing was written."}},
    ),
)
async def import_answers(
    response_set: SetRef, body: AnswerImportCreate, response: Response, opened: AllServices
) -> AnswerImportRead:
    """Import recorded answers: all usable ones, with a report of the others.

    A dry run may name a set that does not exist yet.
    For files above the server's body limit use `sextant response-sets import`.
    """
    request = await asyncio.to_thread(body.to_domain)
    if body.dry_run:
        response.status_code = 200
        report = await opened.response_sets.import_set(response_set, request, dry_run=True)
    else:
        report = await opened.response_sets.import_into(response_set, request)
    return AnswerImportRead.read(report)


@router.post("/{response_set}:collect", **allow_once("banks:write"))
async def collect_answers(
    response_set: SetRef, body: Collection, opened: AllServices
) -> CollectionRead:
    """Collect the answers of all ended sessions on a bank, each session once.

    It can be repeated: sessions that were collected before are left out.
    """
    return CollectionRead.read(await opened.collector.collect(response_set, body))


@router.get(
    "/{response_set}/matrix",
    response_class=StreamingResponse,
    **allow("read", also=file_responses(kind.media_type for kind in MatrixFormat)),
)
async def get_matrix(
    response_set: SetRef,
    opened: AllServices,
    file_format: Annotated[
        MatrixFormat,
        Query(
            alias="format",
            description="`csv` and `parquet`: one row per examinee; `long`: one row per answer; "
            "`py-irt`, also called `jsonl`: the input format of py-irt.",
        ),
    ] = MatrixFormat.CSV,
) -> StreamingResponse:
    """Export all scores as a file; cells without a score are empty.

    Repeated answers have a row each in `long`; the other formats have their mean.
    """
    name, blocks = await opened.response_sets.export(response_set, file_format)
    headers = {"Content-Disposition": attachment(f"{name}.{file_format.suffix}")}
    return StreamingResponse(blocks, media_type=file_format.media_type, headers=headers)
