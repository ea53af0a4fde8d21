"""A whole session in a real browser without scripts: all works except live updates."""

import asyncio

import pytest
from playwright.async_api import Browser, Page

from tests.pages.chromium import Watched
from tests.services.calibrations import answers, csv_of

#: Chromium's messages about a refused form, and about a logout.
_NO_FAULTS = ("422 (Unprocessable Entity)", 'Cleared data types: "cache".')

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("fits_here")]


async def test_from_the_log_in_to_a_gate(site: Watched, chromium: Browser) -> None:
    base = site.base
    context = await chromium.new_context(java_script_enabled=False)
    page = await context.new_page()
    page.set_default_timeout(60_000)
    site.watch(page)
    calibration = await _calibrated(site)

    await page.goto(f"{base}/endpoints")
    await page.fill("#key", site.secret)
    await page.click("button.main")
    for name in ("first", "second"):
        await _save_endpoint(page, name)
    tests = [await _test(page, base, name) for name in ("first", "second")]
    await page.goto(f"{base}/compare?first={tests[0]}")
    await page.click("tbody a")
    await page.wait_for_selector("text=First minus second")
    await _publish(page, f"{base}/calibrations/{calibration}")
    await _rank(page)
    await page.goto(f"{base}/gates")
    await page.select_option("[name=session_id]", tests[0])
    await page.select_option("[name=metric]", "theta")
    await page.fill("[name=threshold]", "-5")
    await page.click("button.main:text('Make the gate')")
    assert await page.inner_text("h1") == "Go"
    await page.click("text=Log out")
    await page.wait_for_url("**/login")
    await context.close()
    assert [told for told in site.told if not told.endswith(_NO_FAULTS)] == []


async def _calibrated(site: Watched) -> str:
    """Start a calibration by a call, since no page does."""
    async with site.client() as client:
        file = {"name": "scores.csv", "content": csv_of(answers(80))}
        await client.post("/response-sets", json={"name": "arc"})
        await client.post("/response-sets/arc/imports", json={"files": [file]})
        asked = {"response_set": "arc", "report_card": False, "model": "1pl"}
        made = await client.post("/calibrations", json=asked)
    assert made.status_code == 202, made.text
    return str(made.json()["id"])


async def _until(page: Page, there: str) -> None:
    """Reload the page by its own link until an element appears; leave time for the work."""
    async with asyncio.timeout(240):
        while not await page.locator(there).count():
            await asyncio.sleep(0.5)
            await page.click("noscript a:text('Load again')")


async def _save_endpoint(page: Page, name: str) -> None:
    await page.click("nav a:text('Endpoints')")
    await page.fill("[name=name]", name)
    await page.click("summary:text('More')")
    await page.select_option("[name=kind]", "scripted")
    await page.fill("[name=model]", f"scripted-{name}")
    await page.fill("[name=rpm]", "many")
    await page.click("button:text('Save')")
    await page.wait_for_selector("[role=alert]")  # the typed text stays
    await page.fill("[name=rpm]", "")
    await page.click("button:text('Save')")
    await page.click("button:text('Probe it')")
    await page.wait_for_selector("text=It answered in")


async def _test(page: Page, base: str, endpoint: str) -> str:
    """Run a session of the endpoint from forecast to report; return its id."""
    await page.click("nav a:text('Endpoints')")
    await page.click(f"th a:has-text('{endpoint}')")
    await page.click("text=Test it")
    await page.click("summary:text('More')")
    await page.fill("[name=max_items]", "12")
    if endpoint == "first":
        await _looks_ahead(page)
    await page.click("button:text-is('Start')")
    await page.wait_for_url("**/sessions/ses_*")
    await _until(page, "text=Before you rely on it")
    here = page.url
    await page.click("text=Question by question")
    await page.click("article a:text('Details')")
    await page.wait_for_selector("text=was scored")
    return here.removeprefix(f"{base}/sessions/")


async def _looks_ahead(page: Page) -> None:
    for button, found in (
        ("Forecast", "#forecast .cards"),
        ("What it will ask", "#found pre, #found p"),
        ("Probe the endpoint", "#found li"),
    ):
        await page.click(f"button:text('{button}')")
        await page.wait_for_selector(found)
        assert await page.input_value("[name=max_items]") == "12"


async def _publish(page: Page, path: str) -> None:
    await page.goto(path)
    await _until(page, "[name=bank]")
    await page.fill("[name=bank]", "published")
    await page.click("button:text('Publish')")
    await page.wait_for_url("**/banks/*/versions/1")
    await page.click("main a.button.main")
    await page.fill("[name=text]", "q12")
    await page.click("button:text('Show')")
    assert await page.locator("tbody tr").count() == 1
    await page.click("tbody a")
    await page.wait_for_selector("text=How it was answered")


async def _rank(page: Page) -> None:
    await page.click("nav a:text('Rankings')")
    await page.click("text=New ranking")
    for box in await page.locator("[type=checkbox]").all():
        await box.check()
    await page.select_option("[name=bank]", label="demo (360 items)")
    await page.fill("[name=max_items]", "12")
    await page.click("button:text('Start')")
    await page.wait_for_url("**/rankings/rnk_*")
    await _until(page, ".state.completed")
