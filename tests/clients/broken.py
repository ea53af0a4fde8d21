"""Real connections, the first of which break."""

from collections.abc import AsyncIterator

import httpx2
from typing_extensions import override


class Breaking(httpx2.AsyncHTTPTransport):
    """Drops the first responses to requests of one method and path, completely or in part.

    Args:
        method: Method of these requests.
        ends: Suffix of their paths.
        times: Number of responses to drop.
        halves: Whether half of the first piece still arrives.
    """

    def __init__(self, method: str, ends: str, *, times: int, halves: bool = False) -> None:
        super().__init__()
        self._method, self._ends, self._halves = method, ends, halves
        self.left = times

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await super().handle_async_request(request)
        wanted = request.method == self._method and request.url.path.endswith(self._ends)
        if not (wanted and self.left):
            return answer
        self.left -= 1
        if self._halves:
            return httpx2.Response(answer.status_code, headers=answer.headers, stream=_Half(answer))
        await answer.aread()
        raise httpx2.ReadError("the connection broke")


class _Half(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response) -> None:
        self._answer = answer

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_raw():
            yield piece[: len(piece) // 2]
            break
        await self._answer.aclose()
        raise httpx2.ReadError("the connection broke")
