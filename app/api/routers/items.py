"""Items of banks."""

from typing import Annotated

from fastapi import Path, Request, Response

from app.api.bodies import MEDIUM, require_media_type, up_to
from app.api.disconnects import while_connected
from app.api.errors import CONDITIONAL, HTTP_CODES, documented, errors
from app.api.etags import ExpectedRevision, etag
from app.api.parameters import BankRef, PagingInOrder, list_of
from app.api.routing import allow, allow_once, make_router
from app.api.schemas.answers import PreviewCreate, PreviewRead
from app.api.schemas.items import (
    BatchRead,
    ItemCreate,
    ItemRead,
    ItemUpdate,
    MatchCreate,
    MatchRead,
)
from app.deps import AllServices, Caller, Seen, caller
from app.errors import (
    AlreadyExistsError,
    BlockedAddressError,
    FileFormatError,
    InvalidInputError,
    InvalidStateError,
    NotFoundError,
    SecretsError,
    UnknownNameError,
)
from app.exchange.item_record import parse_item
from app.shapes import ListRead

router = make_router("/banks", tag="banks")

ItemRef = Annotated[str, Path(min_length=1, max_length=512, description="Id or key of the item.")]

_NDJSON = ("application/x-ndjson", "application/jsonl", "text/plain", "application/octet-stream")
_NDJSON_BODY = {
    "requestBody": {
        "required": True,
        "description": f"One item a line, at most 1000, as {', '.join(_NDJSON)}.",
        # Of these, generated clients know how to write only this one.
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "example": '{"key": "q1", "prompt": "2 + 2 = ?", "target": "4"}\n',
            }
        },
    }
}


@router.post(
    "/{bank}/items",
    status_code=201,
    openapi_extra=up_to(MEDIUM),
    **allow_once("banks:write", AlreadyExistsError),
)
async def create_item(
    bank: BankRef, body: ItemCreate, response: Response, opened: AllServices
) -> ItemRead:
    """Add one item. It can be changed until a version includes it."""
    created = await opened.items.add(bank, parse_item(body.model_dump()))
    response.headers["Location"] = f"/v1/banks/{created.bank_id}/items/{created.id}"
    response.headers["ETag"] = etag(created.revision)
    return ItemRead.of(created)


@router.get("/{bank}/items", **allow("read"))
async def list_items(
    bank: BankRef, page: PagingInOrder, view: Seen, opened: AllServices
) -> ListRead[ItemRead]:
    """List the items of a bank, the oldest first."""
    found = await opened.items.list_page(bank, page, reveal=view.is_whole)
    return list_of(found, ItemRead.of)


@router.post("/{bank}/items:match", openapi_extra=up_to(MEDIUM), **allow("read"))
async def match_items(
    bank: BankRef, body: MatchCreate, view: Seen, opened: AllServices
) -> MatchRead:
    """Find which of the given items a bank has.

    To match a withheld bank by content hash, a key needs `banks:write`.
    """
    matched = await opened.items.match(bank, body.keys, body.content_hashes, reveal=view.is_whole)
    wanted = dict.fromkeys([*body.keys, *body.content_hashes])
    return MatchRead(matched=matched, missing=[one for one in wanted if one not in matched])


@router.get("/{bank}/items/{item:path}", **allow("read"))
async def get_item(
    bank: BankRef, item: ItemRef, view: Seen, response: Response, opened: AllServices
) -> ItemRead:
    """One item, by id or key."""
    found = await opened.items.get(bank, item, reveal=view.is_whole)
    response.headers["ETag"] = etag(found.revision)
    return ItemRead.of(found)


@router.patch(
    "/{bank}/items/{item:path}",
    openapi_extra=up_to(MEDIUM),
    **allow("banks:write", AlreadyExistsError, InvalidStateError, *CONDITIONAL),
)
async def update_item(
    bank: BankRef,
    item: ItemRef,
    body: ItemUpdate,
    revision: ExpectedRevision,
    response: Response,
    opened: AllServices,
) -> ItemRead:
    """Change an item that is in no version."""
    changed = await opened.items.update(
        bank, item, revision, body.model_dump(include=body.model_fields_set)
    )
    response.headers["ETag"] = etag(changed.revision)
    return ItemRead.of(changed)


@router.delete(
    "/{bank}/items/{item:path}",
    status_code=204,
    **allow("banks:write", InvalidStateError, *CONDITIONAL),
)
async def delete_item(
    bank: BankRef, item: ItemRef, revision: ExpectedRevision, opened: AllServices
) -> None:
    """Delete an item that is in no version."""
    await opened.items.delete(bank, item, revision)


@router.post(
    "/{bank}/items/{item:path}:preview",
    responses=errors(
        BlockedAddressError, InvalidInputError, NotFoundError, SecretsError, UnknownNameError
    ),
)
async def preview_item(
    bank: BankRef,
    item: ItemRef,
    body: PreviewCreate,
    who: Annotated[Caller, caller("run")],
    view: Seen,
    opened: AllServices,
    request: Request,
) -> PreviewRead:
    """Ask an endpoint one item: shows the exact request, the answer, and how it is scored.

    Nothing is stored. The endpoint, and a scorer that makes calls, are really called and paid. If
    the client disconnects, the preview ends. Items of a withheld bank also need the scope
    `banks:write`.
    """
    found = opened.previews.preview(
        bank, item, body.chosen(), view, prompt=body.prompt.changes(), send=body.send
    )
    return PreviewRead.read(await while_connected(request, found))


@router.post(
    "/{bank}/items:batch",
    openapi_extra={**_NDJSON_BODY, **up_to(MEDIUM)},
    **allow_once(
        "banks:write",
        FileFormatError,
        also={**documented(413, [HTTP_CODES[413]]), **documented(415, [HTTP_CODES[415]])},
    ),
)
async def add_items(bank: BankRef, request: Request, opened: AllServices) -> BatchRead:
    """Add items line by line; each line succeeds or fails on its own."""
    require_media_type(request, *_NDJSON)
    return BatchRead.of(await opened.items.add_batch(bank, await request.body()))
