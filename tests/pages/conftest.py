"""Pages in this process, requested by a browser without scripts."""

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from fastapi import FastAPI
from playwright.async_api import Browser as Chromium
from playwright.async_api import async_playwright

from app.deps import ScopeName
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from tests.api.conftest import (  # noqa: F401 (fixtures of the API are those of the pages)
    _helpers_stay,
    anonymous,
    app,
    client,
    client_with,
    description,
    logs,
    services,
)
from tests.demo_bank import install_demo_bank
from tests.pages.browser import Browser, logged_in
from tests.pages.chromium import Watched, served

NewBrowser = Callable[..., Awaitable[Browser]]


@pytest.fixture
async def browser_with(app: FastAPI, database: Database) -> AsyncIterator[NewBrowser]:  # noqa: F811
    """Return a function that makes browsers logged in with the given scopes, or not."""
    browsers: list[Browser] = []

    async def make(*scopes: ScopeName, **of: str) -> Browser:
        browsers.append(await logged_in(app, database, *scopes, **of))
        return browsers[-1]

    yield make
    for browser in browsers:
        await browser.aclose()


@pytest.fixture
async def site(settings: Settings, database: Database) -> AsyncIterator[Watched]:
    """Serve the demo bank over HTTP, with a worker and a key of all scopes."""
    await install_demo_bank(database)
    _, secret = await ApiKeyService(database).create(name="<i>me</i>", scopes=["admin"])
    async with served(settings, database) as base:
        yield Watched(base, secret)


@pytest.fixture
async def chromium() -> AsyncIterator[Chromium]:
    """Start the system's Chromium without a window."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()
