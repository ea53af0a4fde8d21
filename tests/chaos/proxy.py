"""A network to Postgres that can be cut: a TCP port before its socket."""

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

_CHUNK = 1 << 16


class Proxy:
    """Forwards connections; on hold nothing passes, and when cut there are no connections."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._passing = asyncio.Event()
        self._passing.set()
        self._is_cut = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Close everything."""
        self.cut()
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # aborted connections close in the next round

    def hold(self) -> None:
        """Hold all data silently."""
        self._passing.clear()

    def cut(self) -> None:
        """Break all connections and accept none."""
        self._is_cut = True
        self._passing.set()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Let all data pass."""
        self._is_cut = False
        self._passing.set()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (task := asyncio.current_task()) is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        ours = [writer]
        self._writers.add(writer)
        try:
            await self._passing.wait()
            if not self._is_cut:
                there, back = await asyncio.open_unix_connection(str(self._socket))
                ours.append(back)
                self._writers.add(back)
                await self._both(self._pump(reader, back), self._pump(there, writer))
        except OSError:
            pass  # no listener
        finally:
            for each in ours:
                each.transport.abort()
                self._writers.discard(each)

    @staticmethod
    async def _both(*pumps: Coroutine[Any, Any, None]) -> None:
        """Run both until one has ended."""
        ways = [asyncio.ensure_future(pump) for pump in pumps]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._passing.wait()
                target.write(data)
                await target.drain()
