"""Keys of this API. The secret is shown once, when a key is made."""

from typing import Annotated

from fastapi import Path, Response

from app.api.errors import errors
from app.api.idempotency import IDEMPOTENT
from app.api.paging import Paging, list_of
from app.api.routing import router as make_router
from app.api.schemas.api_keys import ApiKeyCreate, ApiKeyCreated, ApiKeyRead
from app.api.schemas.common import ListRead
from app.deps import ApiKeys, caller
from app.errors import NotFoundError

router = make_router("/api-keys", tag="api keys")

KeyId = Annotated[
    str, Path(pattern=r"^key_[0-9a-z]{26}$", examples=["key_01jd0000000000000000000000"])
]


@router.post("", status_code=201, dependencies=[caller("admin"), IDEMPOTENT])
async def create_api_key(body: ApiKeyCreate, response: Response, keys: ApiKeys) -> ApiKeyCreated:
    """Make a key. This answer is the only place where its secret is shown."""
    key, secret = await keys.create(name=body.name, scopes=body.scopes, expires_at=body.expires_at)
    response.headers["Location"] = f"/v1/api-keys/{key.id}"
    return ApiKeyCreated.with_secret(key, secret)


@router.get("", dependencies=[caller("admin")], responses=errors(NotFoundError))
async def list_api_keys(page: Paging, keys: ApiKeys) -> ListRead[ApiKeyRead]:
    """All keys, revoked ones included, the newest first; without secrets."""
    return list_of(await keys.page(page), ApiKeyRead.read)


@router.delete("/{key_id}", status_code=204, dependencies=[caller("admin")])
async def revoke_api_key(key_id: KeyId, keys: ApiKeys) -> None:
    """Revoke a key at once; it stays listed. Revoking it again changes nothing."""
    await keys.revoke(key_id)
