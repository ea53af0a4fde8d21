"""Pages in this process, as a browser without scripts sees them."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest
from fastapi import FastAPI

from app.deps import ScopeName
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from tests.api.conftest import (  # noqa: F401 (fixtures of the API are those of the pages)
    BASE_URL,
    _helpers_stay,
    anonymous,
    app,
    client,
    client_with,
    logs,
)


class Browser(httpx2.AsyncClient):
    """Keeps cookies, sends forms as pages do, and goes where it is sent."""

    async def form(self, action: str, /, *, of: str = "/login", **fields: str) -> httpx2.Response:
        """Send a form with the token that the page `of` holds."""
        token = csrf_in((await self.get(of)).text)
        return await self.send_form(action, csrf=token, **fields)

    async def send_form(self, action: str, /, **fields: str) -> httpx2.Response:
        """Send a form of our own origin with just these fields."""
        return await self.post(action, data=fields, headers={"Origin": BASE_URL})


NewBrowser = Callable[..., Awaitable[Browser]]


def csrf_in(page: str) -> str:
    """The token of a page's forms."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found, page
    return found[1]


@pytest.fixture
async def browser_with(app: FastAPI, database: Database) -> AsyncIterator[NewBrowser]:  # noqa: F811
    """Makes browsers that are logged in with a key of the given scopes, or with none."""
    browsers: list[Browser] = []

    async def make(*scopes: ScopeName) -> Browser:
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        browser = Browser(transport=transport, base_url=BASE_URL)
        browsers.append(browser)
        if scopes:
            _, secret = await ApiKeyService(database).create(name="browser", scopes=scopes)
            entered = await browser.form("/login", key=secret, next="/")
            assert entered.status_code == 303, entered.text
        return browser

    yield make
    for browser in browsers:
        await browser.aclose()
