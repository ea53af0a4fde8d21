"""Pages over HTTP, and the real browser that opens them."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import uvicorn
from playwright.async_api import Page

from app.main import ApiServer, create_app
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.databases import collect_cancelled


@dataclass
class Watched:
    """A server with the demo bank: its key, and console messages and requests of its pages."""

    base: str
    secret: str = ""
    told: list[str] = field(default_factory=list)

    def client(self) -> httpx2.AsyncClient:
        """Return a client of the API with a key of all scopes."""
        headers = {"Authorization": f"Bearer {self.secret}"}
        return httpx2.AsyncClient(base_url=f"{self.base}/v1", headers=headers, timeout=60)

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self.told.append(message.text))
        page.on("pageerror", lambda error: self.told.append(str(error)))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith((self.base, "data:"))
                else self.told.append(request.url)
            ),
        )


@asynccontextmanager
async def served(settings: Settings, database: Database, port: int = 0) -> AsyncIterator[str]:
    """Serve the pages over HTTP with a worker; return their address. A free port is the default."""
    app = create_app(settings, database, background=running_worker)
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=2)
    server = ApiServer(config, app)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await serving
        listener.close()
        collect_cancelled()  # the streams that were open
