"""Keys of this API. The secret is shown once, when a key is made."""

from typing import Annotated

from fastapi import Path, Response

from app.api.errors import errors
from app.api.idempotency import IDEMPOTENT
from app.api.paging import Paging, list_of
from app.api.routing import router as make_router
from app.api.schemas.api_keys import (
    ApiKeyCreate,
    ApiKeyCreated,
    ApiKeyRead,
    ApiKeyUpdate,
)
from app.api.schemas.common import ListRead
from app.api.schemas.projects import UseRead
from app.deps import AllServices, Caller, caller
from app.errors import NotFoundError
from app.records.fields import convert
from app.records.projects import Limits

router = make_router("/api-keys", tag="api keys")

KeyId = Annotated[
    str, Path(pattern=r"^key_[0-9a-z]{26}$", examples=["key_01jd0000000000000000000000"])
]


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
        limits=convert(Limits, body.limits),
        project_id=project_id,
    )
    response.headers["Location"] = f"/v1/api-keys/{key.id}"
    return ApiKeyCreated.with_secret(key, secret)


@router.get("", responses=errors(NotFoundError))
async def list_api_keys(page: Paging, opened: AllServices, who: Admin) -> ListRead[ApiKeyRead]:
    """List all keys, including revoked ones, the newest first; without secrets.

    An admin key of one project sees the keys of that project.
    """
    return list_of(await opened.api_keys.page(page, project_id=who.administered), ApiKeyRead.read)


@router.get("/{key_id}/spend")
async def get_api_key_spend(key_id: KeyId, opened: AllServices, who: Admin) -> UseRead:
    """Usage of the limits of a key. Your own key's is also in `/v1/projects/{project}/spend`."""
    key, today, stored = await opened.api_keys.spend(key_id, project_id=who.administered)
    return UseRead.of_limits(key.limits, today, stored)


@router.patch("/{key_id}")
async def update_api_key(
    key_id: KeyId, body: ApiKeyUpdate, opened: AllServices, who: Admin
) -> ApiKeyRead:
    """Change the limits of a key.

    The limits of a revoked key apply to the tests that it left running.
    """
    changed = await opened.api_keys.limit(key_id, body.to_changes(), project_id=who.administered)
    return ApiKeyRead.read(changed)


@router.delete("/{key_id}", status_code=204)
async def revoke_api_key(key_id: KeyId, opened: AllServices, who: Admin) -> None:
    """Revoke a key at once; it stays listed. Revoking it again changes nothing."""
    await opened.api_keys.revoke(key_id, project_id=who.administered)
