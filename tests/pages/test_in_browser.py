"""Pages in a real browser: a session run by keyboard alone from login to result, a call tried in
the reference, and checks of each page for accessibility, layout, and the size of downloads."""

import asyncio
import json
from importlib.resources import files
from typing import Any

import pytest
from playwright.async_api import Browser, Page

from app.pages.routers import ROUTERS
from app.pages.routing import PageRoute
from tests.exchange.lm_eval_files import folders
from tests.pages.chromium import Watched

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fits_here")]

_WIDTHS = (320, 390, 768, 1440)
_PAGE_BYTES = 250_000
#: Pages below the address of a bank about its origin.
_OF_A_BANK = ("", "/versions/1")
#: Elements beyond the right edge of the window, except in tables that scroll.
_CUT = """[...document.querySelectorAll('main *')].filter(one =>
    one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.wide, svg')
).map(one => one.outerHTML.slice(0, 120)).slice(0, 3)"""
_BYTES = """performance.getEntriesByType('resource').concat(
    performance.getEntriesByType('navigation')
).reduce((sum, one) => sum + one.decodedBodySize, 0)"""
#: Only faults are asserted; passed checks are not read.
_AXE = "axe.run({resultTypes: ['violations'], preload: false})"


async def focus(page: Page, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(80):
        if await page.evaluate("s => document.activeElement.matches(s)", selector):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"the keyboard does not reach {selector}")


def _fixed_pages() -> set[str]:
    """Return addresses of pages without parameters."""
    routes = [one for router in ROUTERS for one in router.routes if isinstance(one, PageRoute)]
    return {one.path for one in routes if "GET" in (one.methods or ()) and "{" not in one.path}


async def test_a_test_by_keyboard_and_every_page_for_everybody(
    site: Watched, chromium: Browser
) -> None:
    await _tries_a_call(chromium, site)
    path = await _by_keyboard(chromium, site)
    others = await _hostile(site, path[-30:]) + await _made(site)
    await _for_everybody(chromium, site, path, others)
    assert site.told == []


async def _tries_a_call(browser: Browser, site: Watched) -> None:
    page = await browser.new_page()
    page.set_default_timeout(60_000)
    site.watch(page)
    await page.goto(f"{site.base}/docs")
    await page.click("button.authorize")
    await page.fill(".auth-container input", site.secret)
    await page.click(".auth-btn-wrapper button.authorize")
    await page.click(".btn-done")
    await page.click("#operations-tag-banks")
    await page.click("#operations-banks-list_banks .opblock-summary-control")
    await page.click("text=Try it out")
    await page.click("button.execute")
    await page.wait_for_selector(".live-responses-table >> text=has_more")
    await page.close()


async def _by_keyboard(browser: Browser, site: Watched) -> str:
    """Log in, start a session of a scripted model, and wait for the result."""
    page = await browser.new_page()
    page.set_default_timeout(60_000)
    site.watch(page)
    await page.goto(f"{site.base}/sessions/new")
    await page.wait_for_selector("#key")
    await focus(page, "#key")
    await page.keyboard.type(site.secret)
    await page.keyboard.press("Enter")
    await page.wait_for_selector("#takes-exact b")
    # Three fields: the model, its precision, and the option "scripted" under "More".
    await focus(page, "[name=model]")
    await page.keyboard.type("<script>alert(1)</script>")
    await focus(page, "[name=precision]")
    await page.keyboard.press("ArrowUp")
    await focus(page, "#new summary")
    await page.keyboard.press("Enter")
    await focus(page, "[name=kind]")
    await page.keyboard.type("scripted")
    await focus(page, "[name=max_items]")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/sessions/ses_*")
    # At the end of the session its page becomes the report without a reload.
    await page.wait_for_selector("text=Before you rely on it")
    path = page.url.removeprefix(site.base)
    await page.close()
    return path


async def _hostile(site: Watched, done: str) -> list[str]:
    """Return pages of resources with hostile names and texts, and of a failed session."""
    markup = "<script>alert(1)</script>&amp;\u202eright to left\u202c "
    long = markup * 3 + "x" * 80
    item = {"key": long.strip(), "prompt": markup + "w" * 10_000, "target": "1", "tags": [long]}
    async with site.client() as client:

        async def post(path: str, **body: object) -> dict[str, Any]:
            answer = await client.post(path, json=body)
            assert answer.is_success, answer.text
            made: dict[str, Any] = answer.json()
            return made

        name = long.replace("/", "").replace(":", "")[:190] + "x"
        bank = await post("/banks", name=name, default_scorer={"name": "exact"})
        await post(
            f"/banks/{bank['id']}/imports",
            items={"name": "items.jsonl", "content": json.dumps(item)},
            parameters={"content": f'item,a,b,c,d\n"{item["key"]}",1,0,0,1\n'},
        )
        dead = await post(
            "/endpoints",
            name=long[:190] + "x",
            kind="openai_chat",
            base_url="http://127.0.0.1:9/v1",
            model=markup + "m" * 300,
            api_key="wrong",
        )
        asked = {"bank": bank["id"], "endpoint_id": dead["id"]}
        failed = await post("/sessions", **asked, metadata={long[:60]: long[:400]})
        await post(f"/sessions/{failed['id']}:cancel")
        gate = await post("/gates", session_id=done, threshold=0.0)
        others = [{"endpoint": {"kind": "scripted", "model": f"{markup}{n}"}} for n in range(2)]
        ranking = await post("/rankings", bank="demo", endpoints=others, min_items=2)
    return [
        *(f"/banks/{bank['id']}", f"/banks/{bank['id']}/versions/1", f"/endpoints/{dead['id']}"),
        *(f"/banks/{bank['id']}/versions/1/items", f"/sessions/{failed['id']}"),
        *(f"/compare?first={done}&second={failed['id']}", f"/gates/{gate['id']}"),
        f"/rankings/{ranking['id']}",
    ]


async def _made(site: Watched) -> list[str]:
    """Return pages of a bank with guessed parameters, and of one made from results."""
    lines = [{"key": f"q{n}", "prompt": f"{n} + {n}?", "target": str(2 * n)} for n in range(8)]
    items = {"name": "items.jsonl", "content": "\n".join(map(json.dumps, lines))}
    files = [{"name": name, "content": text} for name, text in folders(24, 16).items()]
    async with site.client() as client:

        async def ended(path: str, body: object, at: str) -> dict[str, Any]:
            made = await client.post(path, json=body)
            assert made.is_success, made.text
            found: dict[str, Any] = made.json()
            found = found.get("calibration", found)
            while found["finished_at"] is None:
                await asyncio.sleep(0.1)
                found = (await client.get(f"{at}/{found['id']}")).json()
            assert found["status"] == "completed", found
            return found

        await client.post("/banks", json={"name": "guessed", "default_scorer": {"name": "exact"}})
        await client.post("/banks/guessed/imports", json={"items": items, "provisional": True})
        scripted = {"kind": "scripted", "model": "m", "options": {"theta": 1.0}}
        asked = {"bank": "guessed", "endpoint": scripted}
        test = await ended("/sessions", asked, "/sessions")
        body = {"name": "results", "files": files, "model": "1pl", "report_card": False}
        calibration = await ended("/banks:from-results", body, "/calibrations")
        assert calibration["bank_version_id"], calibration
    return [
        *(f"/sessions/{test['id']}", f"/calibrations/{calibration['id']}"),
        *(f"/banks/{bank}{what}" for bank in ("guessed", "results") for what in _OF_A_BANK),
    ]


async def _for_everybody(browser: Browser, site: Watched, path: str, others: list[str]) -> None:
    """Check each page in light and dark mode: axe faults, cut content, and size of downloads."""
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text()
    context = await browser.new_context()
    await context.add_init_script(axe)
    page = await context.new_page()
    page.set_default_timeout(60_000)
    site.watch(page)
    await page.goto(f"{site.base}/login")
    await page.fill("#key", site.secret)
    await page.press("#key", "Enter")
    await page.wait_for_selector("text=Last results")
    bank = await page.get_attribute("main a[href^='/banks/']", "href")
    assert bank is not None
    version = "/".join(bank.split("/")[:3]) + "/versions/1"
    await page.goto(f"{site.base}{version}/items")
    item = await page.get_attribute("tbody a", "href")
    pages = (
        *("/", "/sessions", "/sessions/new", path, f"{path}/answers", f"{path}/steps/1"),
        *("/banks", f"/compare?first={path[-30:]}", version, f"{version}/items?sort=b", str(item)),
        *(f"{version.partition('/versions')[0]}/leaderboard", "/rankings", "/gates"),
        *("/calibrations", "/endpoints", "/keys", "/projects", "/rankings/new", "/compare"),
        *("/login", *others),
    )
    assert {*pages, "/docs"} >= _fixed_pages()  # that page is Swagger UI's
    faults: list[tuple[Any, ...]] = []
    for where in pages:
        await page.emulate_media(color_scheme="dark" if len(where) % 2 else "light")
        answer = await page.goto(site.base + where)
        assert answer is not None
        assert answer.status == 200, where
        if (size := await page.evaluate(_BYTES)) > _PAGE_BYTES:
            faults.append((where, size))
        for width in _WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            faults += [(where, width, cut) for cut in await page.evaluate(_CUT)]
        found = (await page.evaluate(_AXE))["violations"]
        faults += [(where, one["id"], one["nodes"][0]["html"][:200]) for one in found]
    assert faults == []
    await context.close()
