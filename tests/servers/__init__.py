"""Real servers for tests: helpers that start them in a thread or as a process.

`fault_server` answers like a language model with faults on demand; `tiny_llama` is the real
llama.cpp server on a tiny random model.
"""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn

ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT_S = 60


def free_port() -> int:
    """Return an unused port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve an ASGI application from a thread on a free loopback port; yield `http://host:port`.

    The thread shares the caller's memory, so a test can read what the application recorded.
    """
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="test-server", daemon=True
    )
    thread.start()
    try:
        # The listener already queues connections, so there is no need to wait for the loop.
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(_START_TIMEOUT_S)
        listener.close()


@contextmanager
def spawned(module: str, *arguments: str) -> Iterator[str]:
    """Run `python -m module arguments` until the block ends; yield the URL that it prints.

    The program prints one JSON line `{"url": ...}` on standard output once it listens.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{module} ended with code {process.wait()} before it listened")
        yield str(json.loads(line)["url"])
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


@asynccontextmanager
async def raw_server(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """Serve raw TCP; `handle` serves one connection, which is closed when it returns."""
    handlers: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handlers.add(task)
        try:
            await handle(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)
