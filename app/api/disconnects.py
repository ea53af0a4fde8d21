"""Work that is worth doing only as long as somebody waits for the answer."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the client hangs up.

    A server tells a handler so only when asked. The body has to be read already.

    Raises:
        ClientDisconnect: Nobody waits for an answer any more.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def entered_while_connected(
    request: Request, context: AbstractAsyncContextManager[T]
) -> AsyncIterator[T]:
    """The value of `context`, whose entering ends when the client hangs up.

    For work that waits its turn before it writes something: once it has begun to write, it goes on
    to its end, so that an Idempotency-Key tells what became of it.

    Raises:
        ClientDisconnect: As `while_connected`.
    """
    async with AsyncExitStack() as stack:
        yield await while_connected(request, stack.enter_async_context(context))
