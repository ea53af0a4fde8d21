"""Response sets: recorded answers in, their matrix out."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Response
from fastapi.responses import StreamingResponse

from app.api.errors import errors
from app.api.etags import ExpectedRevision, etag
from app.api.idempotency import IDEMPOTENT
from app.api.paging import Paging, list_of
from app.api.routing import router as make_router
from app.api.schemas.common import ListRead
from app.api.schemas.response_sets import (
    AnswerImportCreate,
    AnswerImportRead,
    ResponseSetCreate,
    ResponseSetRead,
)
from app.deps import ResponseSets, caller
from app.engine.responses import ResponseTable
from app.errors import (
    AlreadyExistsError,
    FileFormatError,
    InvalidStateError,
    NotFoundError,
    PreconditionFailedError,
    PreconditionRequiredError,
)
from app.exchange.matrices import write_csv, write_parquet
from app.exchange.py_irt import write_py_irt

router = make_router("/response-sets", tag="response sets")

SetRef = Annotated[
    str,
    Path(
        min_length=1,
        max_length=200,
        description="Id or name of the response set.",
        examples=["arc-2026"],
    ),
]
MatrixFormat = Literal["csv", "jsonl", "parquet"]

_MEDIA_TYPES: dict[MatrixFormat, str] = {
    "csv": "text/csv",
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}
_MATRIX: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The file.",
        "content": {
            media_type: {"schema": {"type": "string", "format": "binary"}}
            for media_type in _MEDIA_TYPES.values()
        },
    }
}
#: Lines are sent in blocks: each block is a message of its own.
_BLOCK_BYTES = 1 << 18


@router.post(
    "",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses=errors(AlreadyExistsError),
)
async def create_response_set(
    body: ResponseSetCreate, response: Response, sets: ResponseSets
) -> ResponseSetRead:
    """Make an empty response set."""
    made = await sets.create(body.name, description=body.description, metadata=body.metadata)
    response.headers["Location"] = f"/v1/response-sets/{made.id}"
    response.headers["ETag"] = etag(made.revision)
    return ResponseSetRead.of(made)


@router.get("", dependencies=[caller("read")], responses=errors(NotFoundError))
async def list_response_sets(page: Paging, sets: ResponseSets) -> ListRead[ResponseSetRead]:
    """Response sets, the newest first."""
    found = await sets.list_page(page)
    return list_of(found, ResponseSetRead.of, identify=lambda response_set: response_set.id)


@router.get("/{response_set}", dependencies=[caller("read")])
async def get_response_set(
    response_set: SetRef, response: Response, sets: ResponseSets
) -> ResponseSetRead:
    """One response set, by id or name."""
    found = await sets.get(response_set)
    response.headers["ETag"] = etag(found.revision)
    return ResponseSetRead.of(found)


@router.delete(
    "/{response_set}",
    status_code=204,
    dependencies=[caller("banks:write")],
    responses=errors(InvalidStateError, PreconditionFailedError, PreconditionRequiredError),
)
async def delete_response_set(
    response_set: SetRef, revision: ExpectedRevision, sets: ResponseSets
) -> None:
    """Delete a response set with all its answers, unless a calibration is made from it."""
    await sets.delete(response_set, revision)


@router.post(
    "/{response_set}/imports",
    status_code=201,
    dependencies=[caller("banks:write"), IDEMPOTENT],
    responses={
        200: {"model": AnswerImportRead, "description": "A dry run: nothing was written."},
        **errors(FileFormatError),
    },
)
async def import_answers(
    response_set: SetRef, body: AnswerImportCreate, response: Response, sets: ResponseSets
) -> AnswerImportRead:
    """Import recorded answers: all that can be used, with a report of what cannot.

    Files above the server's body limit come in through `sextant response-sets import`.
    """
    request = await asyncio.to_thread(body.to_domain)
    report = await sets.import_into(response_set, request, dry_run=body.dry_run)
    if body.dry_run:
        response.status_code = 200
    return AnswerImportRead.of(report)


@router.get(
    "/{response_set}/matrix",
    dependencies=[caller("read")],
    response_class=StreamingResponse,
    responses=_MATRIX,
)
async def get_matrix(
    response_set: SetRef,
    sets: ResponseSets,
    file_format: Annotated[
        MatrixFormat,
        Query(
            alias="format",
            description="`csv` and `parquet`: one row an examinee; `jsonl`: as py-irt reads it.",
        ),
    ] = "csv",
) -> StreamingResponse:
    """All scores as a file; the mean of repeated answers, nothing where there is no answer."""
    table = await sets.matrix(response_set)
    content = await asyncio.to_thread(_written, table, file_format)
    return StreamingResponse(content, media_type=_MEDIA_TYPES[file_format])


def _written(table: ResponseTable, file_format: MatrixFormat) -> Iterator[bytes]:
    match file_format:
        case "csv":
            return _blocks(write_csv(table))
        case "jsonl":
            return _blocks(write_py_irt(table))
        case "parquet":
            return iter([write_parquet(table)])


def _blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    block = bytearray()
    for line in lines:
        block += line
        if len(block) >= _BLOCK_BYTES:
            yield bytes(block)
            block.clear()
    yield bytes(block)
