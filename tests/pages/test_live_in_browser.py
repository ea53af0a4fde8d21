"""The page of a running session in a real browser: it updates, and survives server restarts."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from playwright.async_api import Browser, Page

from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from tests.demo_bank import install_demo_bank
from tests.pages.chromium import served
from tests.servers import serving

pytestmark = pytest.mark.slow

_QUESTIONS = 16


class Model:
    """A model that answers as many questions as allowed; a retry is the same question."""

    def __init__(self) -> None:
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self._answer)
        self._seen: dict[str, int] = {}
        self._let, self._changed = 0, threading.Condition()

    def let(self, n: int) -> None:
        """Allow answers to the first `n` questions."""
        with self._changed:
            self._let = n
            self._changed.notify_all()

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            number = self._seen.setdefault(json.dumps(body["messages"]), len(self._seen))
            self._changed.wait_for(lambda: number < self._let, timeout=60)
        message = {"role": "assistant", "content": "A 12"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "1", "object": "chat.completion", "choices": [choice]}


class Wire:
    """A network between a browser and a port of this machine, which can be cut."""

    def __init__(self, port: int) -> None:
        self._to, self.port = port, 0
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def mend(self) -> None:
        """Accept connections again, at the same port as before."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def cut(self) -> None:
        """Close open connections and accept no new ones."""
        if self._server is not None:
            self._server.close()
        for one in self._open:
            one.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        ends = {writer, back}
        self._open |= ends
        with contextlib.suppress(OSError):
            await asyncio.gather(_copy(reader, back), _copy(there, writer))
        self._open -= ends
        for end in ends:
            end.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


@pytest.fixture
def model() -> Iterator[tuple[Model, str]]:
    made = Model()
    with serving(made.app) as url:
        yield made, f"{url}/v1"
        made.let(_QUESTIONS)


async def test_a_page_grows_and_outlasts_a_restart_and_a_lost_network(
    settings: Settings, database: Database, chromium: Browser, model: tuple[Model, str]
) -> None:
    await install_demo_bank(database)
    _, secret = await ApiKeyService(database).create(name="me", scopes=["admin"])
    answering, url = model
    context = await chromium.new_context()
    page = await context.new_page()
    page.set_default_timeout(60_000)
    async with AsyncExitStack() as first:
        base = await first.enter_async_context(served(settings, database))
        wire = Wire(port := int(base.rpartition(":")[2]))
        await wire.mend()
        path = await _begun(base, secret, url)
        await page.goto(f"http://127.0.0.1:{wire.port}{path}")
        await page.fill("#key", secret)
        await page.press("#key", "Enter")
        await page.wait_for_selector("#course")
        await page.evaluate("window.loaded = 1")
        answering.let(6)
        await _answered(page, 6)
        await _course(page, 6)
        assert "ability after it" in await page.inner_text("#step-6")
        assert "%" in await page.inner_text("#figures .big")
        assert await page.evaluate("window.loaded") == 1  # the page does not reload
    await page.wait_for_selector("#lost:visible")
    async with served(settings, database, port):
        answering.let(9)
        await _answered(page, 9)
        await page.wait_for_selector("#lost", state="hidden")
        wire.cut()
        await page.wait_for_selector("#lost:visible")
        answering.let(12)
        await wire.mend()
        await _answered(page, 12)
        await _course(page, 12)
        answering.let(_QUESTIONS)
        await page.wait_for_selector("text=Before you rely on it")
        await context.close()
        wire.cut()


async def _answered(page: Page, step: int) -> None:
    await page.wait_for_selector(f"#step-{step} .mark:is(.right, .wrong)")


async def _course(page: Page, points: int) -> None:
    """Wait for so many distinct points; a score can be shown before its point."""
    await page.wait_for_selector(f"#numbers tbody tr:nth-child({points})", state="attached")
    assert await page.locator("#numbers tbody tr").count() == points
    drawn = page.locator("#course svg")
    assert await drawn.count() == 2
    for chart in await drawn.all():
        assert f"after {points} answers" in (await chart.get_attribute("aria-label") or "")


async def _begun(base: str, secret: str, url: str) -> str:
    """Start a session of the model; return its path."""
    headers = {"Authorization": f"Bearer {secret}"}
    body = {
        "bank": "demo",
        "endpoint": {"kind": "openai_chat", "base_url": url, "model": "m"},
        "stopping": {"score_margin": None, "max_items": _QUESTIONS},
        "concurrency": 1,
        "unparsed_policy": "wrong",
    }
    async with httpx2.AsyncClient(base_url=f"{base}/v1", headers=headers, timeout=60) as client:
        made = await client.post("/sessions", json=body)
    assert made.status_code == 202, made.text
    return f"/sessions/{made.json()['id']}"
