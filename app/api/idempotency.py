"""Idempotency-Key: repeating a call that creates something returns the first reply.

The first reply is kept for a day, by API key. Failures are not kept: a failed call may be corrected
and sent again with the same key.
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
#: Larger replies are not kept; those of calls that create something are far smaller.
MAX_KEPT_BYTES: Final = 1024 * 1024
#: Seconds between two signs that a call is still in work.
_ALIVE_S = ABANDONED_AFTER.total_seconds() / 5
_KEPT_HEADERS: Final = ("content-type", "location", "etag")


async def idempotency_key(
    _: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            pattern=_KEY_PATTERN,
            description="Any text of up to 255 printable ASCII characters, new for each operation. "
            "A repeated request with the same key is carried out only once.",
        ),
    ] = None,
) -> None:
    """Mark a route as one that honours Idempotency-Key; `ApiRoute` does the work."""


#: Dependency of creating routes: `@router.post("", status_code=201, **allow_once("run"))`.
IDEMPOTENT: Final[params.Depends] = Depends(idempotency_key)


async def once(
    request: Request, run: Callable[[Request], Awaitable[Response]], *, principal: str, key: str
) -> Response:
    """Run a call that creates something, or return the reply of its first run.

    Args:
        request: The request; its body is not consumed yet, or is cached.
        run: Runs the call.
        principal: The caller; callers do not share keys, even with the same text.
        key: The Idempotency-Key.

    Raises:
        InvalidInputError: The key is empty, too long or not printable ASCII.
        IdempotencyMismatchError: The key was used with another request.
        IdempotencyInFlightError: The first call has no answer yet.
        IdempotencyAnswerLostError: The call ran, but its server died before it replied.
        SecretsError: The first reply cannot be decrypted, or no reply could be encrypted; the
            latter is found before the call runs.
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
    """Mark the call as in work until cancelled; it may queue, or import for minutes."""
    while True:
        await asyncio.sleep(_ALIVE_S)
        with contextlib.suppress(DatabaseUnavailableError):
            async with database.reading() as uow:
                await uow.idempotency.keep_alive(principal, key)


def _kept(response: Response, secrets: SecretBox) -> StoredResponse | None:
    body = getattr(response, "body", None)  # a streamed reply has none
    if response.status_code >= 400 or not isinstance(body, bytes) or len(body) > MAX_KEPT_BYTES:
        return None
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    # Encrypted, because a reply may hold what is shown only once: the secret of a new API key.
    sealed = secrets.encrypt(body.decode())
    return StoredResponse(status=response.status_code, headers=headers, body=sealed)


async def _fingerprint(request: Request) -> str:
    digest = hashlib.sha256()
    for part in (request.method.encode(), request.url.path.encode(), request.url.query.encode()):
        digest.update(part + b"\n")
    digest.update(await request.body())
    return digest.hexdigest()
