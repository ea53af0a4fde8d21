"""Who changed what, when, and from where."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime

from app.api.downloads import file_responses
from app.api.errors import errors
from app.api.paging import Paging, list_of
from app.api.routing import router as make_router
from app.api.schemas.api_keys import AuditRead
from app.api.schemas.common import ListRead
from app.deps import AllServices, Caller, caller
from app.errors import NotFoundError
from app.fair_semaphore import FairSemaphore
from app.records.api_keys import AuditEntry, AuditFilter

router = make_router("/audit", tag="audit")

#: Entries of one read.
_PAGE = 250
_READING = FairSemaphore(1, waiting=10_000, spare=1)

_Text = Annotated[str | None, Query(min_length=1, max_length=200)]
_Moment = Annotated[AwareDatetime | None, Query()]


async def _wanted(
    who: Annotated[Caller, caller("admin")],
    key_id: _Text = None,
    resource: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=200,
            description="Id of a resource, or a path, or a name in a path.",
        ),
    ] = None,
    action: _Text = None,
    since: _Moment = None,
    until: _Moment = None,
) -> AuditFilter:
    return AuditFilter(
        project_id=who.administered,
        key_id=key_id,
        resource=resource,
        action=action,
        since=since,
        until=until,
    )


Wanted = Annotated[AuditFilter, Depends(_wanted)]


@router.get("", responses=errors(NotFoundError))
async def list_audit(page: Paging, wanted: Wanted, opened: AllServices) -> ListRead[AuditRead]:
    """List changes, the newest first.

    An admin key of one project sees the changes of that project.
    """
    async with opened.database.reading() as uow:
        return list_of(await uow.audit.page(page, wanted), AuditRead.read)


@router.get(
    "/export",
    response_class=StreamingResponse,
    responses=file_responses(["application/x-ndjson"]),
)
async def export_audit(wanted: Wanted, opened: AllServices) -> StreamingResponse:
    """Export the audit trail, or a filtered part, as a file of JSON lines."""

    async def blocks() -> AsyncIterator[str]:
        # However many ask for it, one page is read at a time, and one for another key; nothing is
        # held in the database while a page is not taken.
        page: Sequence[AuditEntry] = ()
        while not page or len(page) == _PAGE:
            async with _READING.turn(), opened.database.reading() as uow:
                page = await uow.audit.following(wanted, page[-1].id if page else None, _PAGE)
            if not page:
                return
            yield await asyncio.to_thread(_lines, page)

    stamp = f"{datetime.now().astimezone():%Y%m%d}"
    return StreamingResponse(
        blocks(),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="audit-{stamp}.jsonl"'},
    )


def _lines(page: Sequence[AuditEntry]) -> str:
    read = (AuditRead.read(entry).model_dump(mode="json") for entry in page)
    return "".join(json.dumps(entry) + "\n" for entry in read)
