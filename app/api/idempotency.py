"""Idempotency-Key: repeating a call that creates something returns the first reply.

The first reply is kept for a day, by API key. Failures are not kept: a failed call may be corrected
and sent again with the same key.
"""

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import Request, Response

from app.deps import services
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    IdempotencyInFlightError,
    InvalidInputError,
)
from app.storage.repositories.idempotency import ABANDONED_AFTER, StoredResponse
from app.storage.secrets import SecretBox

KEY_PATTERN: Final = r"^[!-~]([ -~]{0,253}[!-~])?$"
#: Larger replies are not kept; those of calls that create something are far smaller.
MAX_KEPT_BYTES: Final = 1024 * 1024
#: Seconds between two signs that a call is still in work.
_ALIVE_S = ABANDONED_AFTER.total_seconds() / 5
_KEPT_HEADERS: Final = ("content-type", "location", "etag")


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
    if re.fullmatch(KEY_PATTERN, key) is None:
        expected = "expected 1 to 255 printable ASCII characters"
        raise InvalidInputError(
            f"Idempotency-Key: {expected}.",
            problems=[FieldProblem("/header/Idempotency-Key", expected)],
        )
    opened = await services(request)
    database = opened.database
    opened.secrets.encrypt("")
    digest = hashlib.sha256(f"{request.method}\n{request.url.path}\n{request.url.query}\n".encode())
    digest.update(await request.body())
    try:
        async with database.unit_of_work() as uow:
            stored = await uow.idempotency.begin(principal, key, digest.hexdigest())
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

    async def keep_alive() -> None:  # the call may queue, or import for minutes
        while True:
            await asyncio.sleep(_ALIVE_S)
            with contextlib.suppress(DatabaseUnavailableError):
                async with database.reading() as uow:
                    await uow.idempotency.keep_alive(principal, key)

    kept: StoredResponse | None = None
    alive = asyncio.create_task(keep_alive())
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


def _kept(response: Response, secrets: SecretBox) -> StoredResponse | None:
    body = getattr(response, "body", None)  # a streamed reply has none
    if response.status_code >= 400 or not isinstance(body, bytes) or len(body) > MAX_KEPT_BYTES:
        return None
    headers = {name: response.headers[name] for name in _KEPT_HEADERS if name in response.headers}
    # Encrypted, because a reply may hold what is shown only once: the secret of a new API key.
    sealed = secrets.encrypt(body.decode())
    return StoredResponse(status=response.status_code, headers=headers, body=sealed)
