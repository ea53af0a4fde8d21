"""A browser without scripts: it keeps cookies, sends forms and follows links."""

import re
from collections.abc import Collection
from html import unescape
from typing import Final

import httpx2
from fastapi import FastAPI

from app.deps import ScopeName
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from tests.api.conftest import BASE_URL
from tests.reports.pages import Page

_LINK: Final = re.compile(r'(?:href|hx-get|data-stream)="(/[^"]*)"')
#: Pages without stored data.
_LEFT_OUT: Final = ("/static/", "/docs", "/openapi.json", "/login")


class Browser(httpx2.AsyncClient):
    """Keeps cookies, sends forms as pages do, and follows redirects."""

    async def form(self, action: str, /, *, of: str = "/login", **fields: str) -> httpx2.Response:
        """Send a form with the token of the page `of`, and with fields that its form has."""
        page = (await self.get(of)).text
        named = Page(page).forms.get(action, fields.keys())
        assert fields.keys() <= set(named), (of, action, fields.keys() - set(named))
        return await self.send_form(action, csrf=csrf_in(page), **fields)

    async def send_form(self, action: str, /, **fields: str) -> httpx2.Response:
        """Send a form of our own origin with exactly these fields."""
        return await self.post(action, data=fields, headers={"Origin": BASE_URL})

    async def walk(
        self, begin: Collection[str], *, of_a_kind: int, streams: Collection[str] = ()
    ) -> dict[str, str]:
        """Follow links and return the text of each page by path.

        Args:
            begin: Paths to start from.
            of_a_kind: Number of pages to open among those whose paths differ only in ids.
            streams: Paths of ended sessions, whose streams therefore end.
        """
        waiting, seen = list(begin), set(begin)
        kinds: dict[str, int] = {}
        found: dict[str, str] = {}
        while waiting:
            path = waiting.pop(0)
            answer = await self.get(path)
            assert answer.status_code < 500, (path, answer.text)
            if answer.status_code == 200:
                found[path] = answer.text + str(answer.headers)
            for link in map(unescape, _LINK.findall(answer.text)):
                bare = link.partition("#")[0]
                kind = re.sub(r"[a-z]{3}_[0-9a-z]{26}|=[^&]*|[0-9]+", "*", bare)
                is_open = "/live" in bare and bare.partition("/live")[0] not in streams
                if bare in seen or is_open or bare.startswith(_LEFT_OUT):
                    continue
                if kinds.setdefault(kind, 0) < of_a_kind:
                    kinds[kind] += 1
                    seen.add(bare)
                    waiting.append(bare)
        return found


async def logged_in(app: FastAPI, database: Database, *scopes: ScopeName, **of: str) -> Browser:
    """Return a browser logged in with a new key, or without a key if no scopes are given.

    Args:
        app: Application that serves the pages.
        database: Database where the key is stored.
        scopes: Scopes of the key.
        of: `project_id` of the key.
    """
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    browser = Browser(transport=transport, base_url=BASE_URL)
    if scopes:
        keys = ApiKeyService(database)
        _, secret = await keys.create(
            name="browser", scopes=scopes, project_id=of.get("project_id")
        )
        entered = await browser.form("/login", key=secret, next="/")
        assert entered.status_code == 303, entered.text
    return browser


def csrf_in(page: str) -> str:
    """Return the token of a page's forms."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found, page
    return found[1]
