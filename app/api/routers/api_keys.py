"""Keys of this API, and the audit trail: who changed what, when, and from where."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Annotated

from fastapi import Depends, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from app.api.downloads import file_responses
from app.api.errors import errors
from app.api.parameters import Paging, id_path, list_of
from app.api.routing import IDEMPOTENT, make_router
from app.api.schemas.projects import ApiKeyCreate, ApiKeyUpdate, UseRead
from app.deps import AllServices, Caller, caller
from app.errors import NotFoundError
from app.fair_semaphore import FairSemaphore
from app.records.api_keys import ApiKey, ApiKeyCreated, AuditEntry, AuditFilter
from app.records.fields import convert
from app.shapes import ListRead, Moment

router = make_router("/api-keys", tag="api keys")
audit = make_router("/audit", tag="audit")

KeyId = Annotated[str, id_path("key")]


Admin = Annotated[Caller, caller("admin")]


@router.post("", status_code=201, dependencies=[IDEMPOTENT], responses=errors(NotFoundError))
async def create_api_key(
    body: ApiKeyCreate, response: Response, opened: AllServices, who: Admin
) -> ApiKeyCreated:
    """Create a key. Only this answer shows its secret."""
    project_id = who.administered
    if body.project is not None:
        project_id = (await opened.projects.find(body.project)).id
        if who.administered not in (None, project_id):
            raise NotFoundError("project", body.project)
    elif project_id is None and "admin" not in body.scopes:
        project_id = who.project_id
    key, secret = await opened.api_keys.create(
        name=body.name,
        scopes=body.scopes,
        expires_at=body.expires_at,
        limits=body.limits,
        project_id=project_id,
    )
    response.headers["Location"] = f"/v1/api-keys/{key.id}"
    return convert(ApiKeyCreated, key, secret=secret)


@router.get("", responses=errors(NotFoundError))
async def list_api_keys(page: Paging, opened: AllServices, who: Admin) -> ListRead[ApiKey]:
    """List all keys, including revoked ones, the newest first; without secrets.

    An admin key of one project sees the keys of that project.
    """
    return list_of(await opened.api_keys.page(page, project_id=who.administered))


@router.get("/{key_id}/spend")
async def get_api_key_spend(key_id: KeyId, opened: AllServices, who: Admin) -> UseRead:
    """Usage of the limits of a key. Your own key's is also in `/v1/projects/{project}/spend`."""
    key, today, stored = await opened.api_keys.spend(key_id, project_id=who.administered)
    return UseRead.of_limits(key.limits, today, stored)


@router.patch("/{key_id}")
async def update_api_key(
    key_id: KeyId, body: ApiKeyUpdate, opened: AllServices, who: Admin
) -> ApiKey:
    """Change the limits of a key.

    The limits of a revoked key apply to the tests that it left running.
    """
    return await opened.api_keys.limit(key_id, body.limits, project_id=who.administered)


@router.delete("/{key_id}", status_code=204)
async def revoke_api_key(key_id: KeyId, opened: AllServices, who: Admin) -> None:
    """Revoke a key at once; it stays listed. Revoking it again changes nothing."""
    await opened.api_keys.revoke(key_id, project_id=who.administered)


_ENTRY = TypeAdapter(AuditEntry)
#: Entries of one read.
_PAGE = 250
_READING = FairSemaphore(1, waiting=10_000, spare=1)

_Text = Annotated[str | None, Query(min_length=1, max_length=200)]
_Moment = Annotated[Moment | None, Query()]


async def _wanted(
    who: Admin,
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


@audit.get("", responses=errors(NotFoundError))
async def list_audit(page: Paging, wanted: Wanted, opened: AllServices) -> ListRead[AuditEntry]:
    """List changes, the newest first.

    An admin key of one project sees the changes of that project.
    """
    async with opened.database.reading() as uow:
        return list_of(await uow.audit.page(page, wanted))


@audit.get(
    "/export", response_class=StreamingResponse, responses=file_responses(["application/x-ndjson"])
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
    return "".join(json.dumps(_ENTRY.dump_python(entry, mode="json")) + "\n" for entry in page)
