"""Work that is only worth doing while a client waits for the answer."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which is cancelled when the client hangs up.

    A server reports that only to a handler that asks. The body must have been read before.

    Raises:
        ClientDisconnect: The client hung up.
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
    """Yield the value of `context`; entering it is cancelled when the client hangs up.

    For work that waits for its turn before it writes something. Once it begins to write, it runs to
    its end, so that a repeated Idempotency-Key gets its result.

    Raises:
        ClientDisconnect: The client hung up before `context` was entered.
    """
    async with AsyncExitStack() as stack:
        yield await while_connected(request, stack.enter_async_context(context))
