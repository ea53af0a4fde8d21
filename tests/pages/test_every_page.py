"""Every page with a route, requested by callers who may not see it.

A page without a row in `PAGES` fails the first test; the other tests check the rows.
"""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute

from app.acting import Acting, acting_for
from app.deps import ScopeName
from app.pages.live import Live
from app.pages.routing import PageRoute
from app.services.visibility import View
from app.settings import Settings
from app.storage.database import Database
from tests.api.calls import answered_by, posted
from tests.api.test_projects import NOWHERE, STOPPING, Member, furnished
from tests.databases import executed
from tests.pages.browser import Browser, logged_in
from tests.services.catalog import write_entry, write_files

_SCOPES: Final[tuple[ScopeName, ...]] = ("read", "run", "banks:write")
#: A question of their bank, or an answer to one.
_TEXT: Final = re.compile(r"theirs-\d\?")
#: Requested by programs; without stored data of a project.
_NO_PAGES: Final = {"/openapi.json", "/healthz", "/readyz", "/metrics", "/static/{name}"}


@dataclass(frozen=True)
class Row:
    """A page, or a form to send.

    Attributes:
        needs: Scopes that are all required; None if the page is public.
        query: Query string of its path, with `{names}`.
        forms: Fields sent to it, with `{names}`.
        shows_texts: Whether bank writers see texts of a withheld bank there.
    """

    needs: tuple[ScopeName, ...] | None = ("read",)
    query: str = ""
    forms: tuple[dict[str, str], ...] = ({},)
    shows_texts: bool = False


_READ, _TEXTS = Row(), Row(shows_texts=True)
_RUN = Row(("run",))
_TYPED = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
_ON_THEIRS = {"bank": "{bank}", "endpoint_id": "{endpoint_id}"}
PAGES: Final = {
    # The first page omits what a key may not see; it says so.
    "GET /": Row(()),
    "GET /login": Row(None),
    "POST /login": Row(None),
    "POST /logout": Row(None),
    "GET /docs": Row(None),
    "GET /sessions": _READ,
    "GET /sessions/new": Row(("run",)),
    "POST /sessions/new": Row(
        ("run",),
        forms=(
            {**_ON_THEIRS, "do": "start"},
            {**_ON_THEIRS, "do": "ask"},
            {**_ON_THEIRS, "do": "forecast"},
            {"bank": "{bank}", **_TYPED, "do": "preview"},
            {"endpoint_id": "{endpoint_id}", "do": "probe"},
        ),
        shows_texts=True,
    ),
    "GET /sessions/{session_id}": _TEXTS,
    "GET /sessions/{session_id}/live": Row(query="?after=1", shows_texts=True),
    "GET /sessions/{session_id}/answers": _TEXTS,
    "GET /sessions/{session_id}/steps/{step}": _TEXTS,
    "POST /sessions/{session_id}/cancel": _RUN,
    "POST /sessions/{session_id}/pause": _RUN,
    "POST /sessions/{session_id}/resume": _RUN,
    "POST /sessions/{session_id}/delete": _RUN,
    "POST /sessions/{session_id}/extend": Row(
        ("read", "run"), forms=({"max_items": "many"}, {"max_items": "3"}), shows_texts=True
    ),
    "POST /sessions/{session_id}/answer": Row(
        ("run",), forms=({"step_token": "s", "response": "x"}, {})
    ),
    "GET /banks": _READ,
    "GET /banks/{bank}": _TEXTS,
    "GET /banks/{bank}/versions/{version}": _READ,
    "GET /banks/{bank}/versions/{version}/items": _READ,
    "GET /banks/{bank}/versions/{version}/items/{item:path}": _TEXTS,
    "GET /banks/{bank}/leaderboard": _READ,
    "GET /rankings": _READ,
    "GET /rankings/new": Row(("read", "run")),
    "POST /rankings/new": Row(
        ("read", "run"),
        forms=({"bank": "{bank}", "endpoint-{endpoint_id}": "yes", "max_items": "0"},),
    ),
    "GET /rankings/{ranking_id}": _READ,
    "POST /rankings/{ranking_id}/cancel": _RUN,
    "GET /compare": Row(query="?first={session_id}&second={session_id}"),
    "GET /gates": _READ,
    "POST /gates": Row(
        ("read", "run"),
        forms=({"session_id": "{session_id}", "threshold": "0.5"}, {"session_id": "{session_id}"}),
    ),
    "GET /gates/{gate_id}": _READ,
    "GET /calibrations": _READ,
    "GET /calibrations/{calibration_id}": _READ,
    "POST /calibrations/{calibration_id}/cancel": Row(("banks:write",)),
    "POST /calibrations/{calibration_id}/publish": Row(
        ("read", "banks:write"), forms=({"bank": "{bank}"}, {"bank": "new"})
    ),
    "GET /endpoints": _READ,
    "POST /endpoints": Row(("read", "run"), forms=({},)),
    "GET /endpoints/{endpoint_id}": _READ,
    "POST /endpoints/{endpoint_id}/probe": Row(("read", "run")),
    "POST /endpoints/{endpoint_id}/delete": Row(("run",), forms=({"revision": "1"},)),
    "GET /keys": Row(("admin",)),
    "POST /keys": Row(("admin",)),
    "POST /keys/{key_id}/revoke": Row(("admin",)),
    "GET /projects": Row(("admin",)),
    "POST /projects": Row(("admin",), forms=({"project": "{project}"},)),
}
_NAMES: Final = {**NOWHERE, "step": "1", "tag": "banks", "name": "BankRead"}


@dataclass(frozen=True)
class Ask:
    """One request, with `{names}` in place of ids."""

    page: str
    path: str
    form: dict[str, str] | None

    def names_something(self) -> bool:
        return any(f"{{{name}}}" in f"{self.path}{self.form}" for name in NOWHERE)


def asks(pages: Collection[str] = tuple(PAGES)) -> Iterator[Ask]:
    """Yield the requests of these pages: pages are read before forms are sent."""
    for page in sorted(pages, key=lambda one: one.startswith("POST")):
        method, path = page.replace(":path}", "}").split()
        row = PAGES[page]
        forms: tuple[dict[str, str] | None, ...] = row.forms if method == "POST" else (None,)
        for form in forms:
            yield Ask(page, path + row.query, form)


async def asked(browser: Browser, ask: Ask, ids: dict[str, str]) -> tuple[int, str]:
    """Return status, text and redirect of the response, with ids replaced by their names."""
    sent = json.dumps([ask.path, ask.form])
    for name, made in ids.items():
        sent = sent.replace(f"{{{name}}}", made)
    path, form = json.loads(sent)
    if form is None:
        answer = await browser.get(path)
    else:
        answer = await browser.form(path, **form)
    text = f"{answer.text} {answer.headers.get('location', '')}"
    for name in NOWHERE.keys() & ids.keys():
        text = text.replace(ids[name], f"{{{name}}}")
    return answer.status_code, text


def test_every_page_of_the_app_has_a_row(app: FastAPI) -> None:
    routes = [one for one in app.routes if not getattr(one, "path", "").startswith("/v1/")]
    programs = {getattr(one, "path", "") for one in routes if not isinstance(one, PageRoute)}
    assert programs == _NO_PAGES
    of_the_api = [one for one in app.routes if getattr(one, "path", "").startswith("/v1/")]
    assert all(isinstance(one, APIRoute) and one.include_in_schema for one in of_the_api)
    pages = [one for one in routes if isinstance(one, PageRoute)]
    assert {f"{method} {one.path}" for one in pages for method in one.methods or ()} == set(PAGES)


async def test_each_page_refuses_a_key_without_its_scopes(app: FastAPI, database: Database) -> None:
    ids = {**_NAMES, "project": "default"}
    for without in (*_SCOPES, "admin"):
        has = [scope for scope in _SCOPES if scope != without]
        async with aclosing(await logged_in(app, database, *has)) as browser:
            for ask in asks([page for page, row in PAGES.items() if without in (row.needs or ())]):
                status, text = await asked(browser, ask, ids)
                assert (status, "This needs a key with the scope" in text) == (403, True), ask
    # These scopes suffice: any other error is reported.
    for needs in {row.needs for row in PAGES.values() if row.needs is not None}:
        async with aclosing(await logged_in(app, database, *(needs or ("run",)))) as browser:
            for ask in asks([page for page, row in PAGES.items() if row.needs == needs]):
                assert (await asked(browser, ask, ids))[0] != 403, ask
    async with aclosing(await logged_in(app, database)) as nobody:
        for ask in asks([page for page, row in PAGES.items() if row.needs is not None]):
            status, text = await asked(nobody, ask, ids)
            assert (status, text[:7]) == (303, " /login"), ask


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with the catalogue from which a project is furnished."""
    folder = write_files(write_entry(tmp_path / "catalog"))
    return settings.model_copy(update={"catalog": folder})


@pytest.fixture
async def theirs(app: FastAPI, database: Database) -> Member:
    return Member(app, database, "theirs")


async def test_no_page_tells_of_another_project_or_changes_it(
    app: FastAPI, database: Database, theirs: Member
) -> None:
    ids = {**_NAMES, **await furnished(theirs)}
    ours = Member(app, database, "ours")
    await (await ours.client("admin")).aclose()
    async with aclosing(
        await logged_in(app, database, "admin", project_id=ours.project_id)
    ) as stranger:
        for ask in asks([page for page, row in PAGES.items() if row.needs is not None]):
            status, text = await asked(stranger, ask, ids)
            assert "theirs" not in text, ask
            if ask.names_something():
                assert status >= 400, ask
                assert (status, text) == await asked(stranger, ask, _NAMES), ask


async def test_readers_of_a_withheld_bank_find_no_text_on_any_page(
    app: FastAPI, database: Database, theirs: Member
) -> None:
    ids = {**_NAMES, **await furnished(theirs)}
    del ids["project"]
    async with aclosing(await theirs.client("admin")) as owner:
        body = {"visibility": "withheld", "prompt": {"system": "theirs-8?"}}
        withheld = await owner.patch(
            f"/v1/banks/{ids['bank']}", json=body, headers={"If-Match": '"1"'}
        )
        assert withheld.status_code == 200, withheld.text
        await answered_by(owner, ids["session_id"], lambda _: {"response": "theirs-9?"})
        manual = {"mode": "manual", "bank": ids["bank"], "stopping": STOPPING}
        awaiting, delayed = [(await posted(owner, "/v1/sessions", manual))["id"] for _ in range(2)]
    delay = "UPDATE sessions SET status = 'waiting', waiting_reason = %s WHERE id = %s"
    await executed(database, delay, ["It said: theirs-7?", delayed])
    pages = [page for page in PAGES if not page.endswith("/delete")]
    pages = [page for page in pages if PAGES[page].needs not in (None, ("admin",))]
    found: list[set[str]] = []
    for scopes in (_SCOPES[:2], _SCOPES):
        async with aclosing(
            await logged_in(app, database, *scopes, project_id=theirs.project_id)
        ) as browser:
            found.append(set())
            for ask in asks(pages):
                status, text = await asked(browser, ask, ids)
                assert status < 500, (ask, text)
                if _TEXT.search(text):
                    found[-1].add(ask.page)
            for session_id in (awaiting, delayed):
                waiting = await browser.get(f"/sessions/{session_id}")
                assert bool(_TEXT.search(waiting.text)) == ("banks:write" in scopes)
        with acting_for(Acting(theirs.project_id)):
            view = View(is_whole="banks:write" in scopes)
            (frame,) = await Live().since(app.state.services, view, delayed, 0)
        assert ("theirs-7?" in str(frame.data)) == view.is_whole
    readers, owners = found
    assert readers == set()
    assert owners == {page for page, row in PAGES.items() if row.shows_texts}
