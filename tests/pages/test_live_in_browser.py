"""The page of a running session in a real browser: it updates, and survives server restarts."""

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

_QUESTIONS = 12


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


@pytest.fixture
def model() -> Iterator[tuple[Model, str]]:
    made = Model()
    with serving(made.app) as url:
        yield made, f"{url}/v1"
        made.let(_QUESTIONS)


async def test_a_page_grows_and_outlasts_a_restart(
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
        path = await _begun(base, secret, url)
        await page.goto(f"{base}{path}")
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
    async with served(settings, database, int(base.rpartition(":")[2])):
        answering.let(9)
        await _answered(page, 9)
        await page.wait_for_selector("#lost", state="hidden")
        await _course(page, 9)
        answering.let(_QUESTIONS)
        await page.wait_for_selector("text=Before you rely on it")
        await context.close()


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
