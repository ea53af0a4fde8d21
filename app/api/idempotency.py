"""Idempotency-Key: a creating call that is repeated gets the first answer and creates nothing.

The first answer is kept for a day per API key. Only success is kept: a call that failed may be
corrected and sent again with the same key.
"""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, Header, Request, Response, params

from app.deps import services
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    IdempotencyInFlightError,
    InvalidInputError,
)
from app.storage.database import Database
from app.storage.repositories.idempotency import ABANDONED_AFTER, StoredResponse
from app.storage.secrets import SecretBox

_KEY_PATTERN: Final = r"^[!-~]([ -~]{0,253}[!-~])?$"
#: Larger answers are not kept; those that create something are far below.
MAX_KEPT_BYTES: Final = 1024 * 1024
#: Seconds between two notes that a call is still being worked on.
_ALIVE_S = ABANDONED_AFTER.total_seconds() / 5
_KEPT_HEADERS: Final = ("content-type", "location", "etag")


async def idempotency_key(
    _: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=_KEY_PATTERN,
            description="Any text of up to 255 printable ASCII characters, new for each intent.",
        ),
    ] = None,
) -> None:
    """Marks a route as one that honours Idempotency-Key; `ApiRoute` does the work."""


#: For creating routes: `@router.post("", status_code=201, dependencies=[IDEMPOTENT, ...])`.
IDEMPOTENT: Final[params.Depends] = Depends(idempotency_key)


async def once(
    request: Request,
    run: Callable[[Request], Awaitable[Response]],
    *,
    principal: str,
    key: str,
) -> Response:
    """Run a creating call, or give the answer that its first run got.

    Args:
        request: Body not yet consumed, or cached.
        run: Carries the call out.
        principal: Whose key it is; the same text of another caller is another key.
        key: The Idempotency-Key.

    Raises:
        InvalidInputError: The key is empty, too long or not printable ASCII.
        IdempotencyMismatchError: The key was used with another request.
        IdempotencyInFlightError: The first call has no answer yet.
        IdempotencyAnswerLostError: It was carried out, and its server died before it answered.
        SecretsError: The first answer cannot be decrypted; or no answer could be encrypted, which
            is found out before anything is carried out.
    """
    if re.fullmatch(_KEY_PATTERN, key) is None:
        expected = "expected 1 to 255 printable ASCII characters"
        raise InvalidInputError(
            f"Idempotency-Key: {expected}.",
            problems=[FieldProblem("/header/Idempotency-Key", expected)],
        )
    opened = await services(request)
    database = opened.database
    opened.secrets.encrypt("")
    fingerprint = await _fingerprint(request)
    try:
        async with database.unit_of_work() as uow:
            stored = await uow.idempotency.begin(principal, key, fingerprint)
    except IdempotencyInFlightError:
        async with database.unit_of_work() as uow:
            await uow.idempotency.count_from_now(principal, key)
        raise
    if stored is not None:
        return Response(
            opened.secrets.decrypt(stored.body),
            stored.status,
            {**stored.headers, "Idempotent-Replayed": "true"},
        )
    kept: StoredResponse | None = None
    alive = asyncio.create_task(_keep_alive(database, principal, key))
    try:
        response = await run(request)
        kept = _kept(response, opened.secrets)
    finally:
        alive.cancel()
        await asyncio.wait([alive])
        async with database.unit_of_work() as uow:
            if kept is None:
                await uow.idempotency.forget(principal, key)
            else:
                await uow.idempotency.finish(principal, key, kept)
    return response


async def _keep_alive(database: Database, principal: str, key: str) -> None:
    """Until cancelled: a call that waits in a line, or imports for minutes, is not lost."""
    while True:
        await asyncio.sleep(_ALIVE_S)
        with contextlib.suppress(DatabaseUnavailableError):
            async with database.reading() as uow:
                await uow.idempotency.keep_alive(principal, key)


def _kept(response: Response, secrets: SecretBox) -> StoredResponse | None:
    body = getattr(response, "body", None)  # a streamed answer has none
    if response.status_code >= 400 or not isinstance(body, bytes) or len(body) > MAX_KEPT_BYTES:
        return None
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    # Encrypted, since an answer may hold what is shown only once: the secret of a new API key.
    sealed = secrets.encrypt(body.decode())
    return StoredResponse(status=response.status_code, headers=headers, body=sealed)


async def _fingerprint(request: Request) -> str:
    digest = hashlib.sha256()
    for part in (request.method.encode(), request.url.path.encode(), request.url.query.encode()):
        digest.update(part + b"\n")
    digest.update(await request.body())
    return digest.hexdigest()
