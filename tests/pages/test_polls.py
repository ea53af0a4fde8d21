"""Polling by an open page: small responses while nothing happens."""

import re
from datetime import timedelta
from html import unescape

from fastapi import FastAPI

from app.services.container import Services
from app.storage.database import Database
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank
from tests.pages.browser import Browser
from tests.pages.conftest import NewBrowser
from tests.services.calibrations import answers, claimed, csv_of

_HTMX = {"HX-Request": "true"}


def polled(page: str) -> str:
    """Return the path that a part of a page polls; without scripts the page has a link."""
    assert "<html" not in page or re.search("<noscript>.*>Load again<", page)
    (found,) = re.findall(r'hx-get="([^"]*)" hx-trigger="every', page)
    return unescape(found)


async def again(browser: Browser, path: str) -> int:
    """Return the status of a poll when nothing has happened."""
    answer = await browser.get(path, headers=_HTMX)
    assert bool(answer.content) == (answer.status_code == 200)
    return answer.status_code


async def test_a_calibration_is_sent_again_only_after_a_change(
    browser_with: NewBrowser, client: Client, app: FastAPI
) -> None:
    services: Services = app.state.services
    browser = await browser_with("read", "banks:write")
    file = {"name": "scores.csv", "content": csv_of(answers(80))}
    await client.post("/v1/response-sets", json={"name": "arc"})
    await client.post("/v1/response-sets/arc/imports", json={"files": [file]})
    made = await client.post("/v1/calibrations", json={"response_set": "arc", "model": "1pl"})
    path = f"/calibrations/{made.json()['id']}"
    waits = polled((await browser.get(path)).text)
    assert await again(browser, waits) == 204
    record = await claimed(services, made.json()["id"])
    assert record is not None
    begun = await browser.get(waits, headers=_HTMX)
    assert "running" in begun.text
    assert await again(browser, polled(begun.text)) == 204
    async with services.database.unit_of_work() as uow:
        await uow.calibrations.report(record, {"cycle": 7})
    assert "7" in (await browser.get(polled(begun.text), headers=_HTMX)).text
    await browser.form(f"{path}/cancel", of=path)
    ended = await browser.get(polled(begun.text), headers=_HTMX)
    assert "cancelled" in ended.text
    assert "every" not in ended.text


async def test_a_ranking_is_sent_again_only_after_a_change(
    browser_with: NewBrowser, client: Client, database: Database, app: FastAPI
) -> None:
    services: Services = app.state.services
    await install_demo_bank(database)
    browser = await browser_with("read", "run")
    rivals = [{"endpoint": {"kind": "scripted", "model": f"m{n}"}} for n in range(2)]
    made = await client.post("/v1/rankings", json={"bank": "demo", "endpoints": rivals})
    path = f"/rankings/{made.json()['id']}"
    # No event tells that a worker took it: until then the poll returns everything.
    waits = polled((await browser.get(path)).text)
    assert await again(browser, waits) == 200
    async with services.database.unit_of_work() as uow:
        lease = timedelta(minutes=1)
        taken = await uow.rankings.claim(made.json()["id"], worker_id="w", lease=lease)
    assert taken is not None
    runs = polled((await browser.get(waits, headers=_HTMX)).text)
    assert await again(browser, runs) == 204
    await browser.form(f"{path}/cancel", of=path)
    ended = await browser.get(runs, headers=_HTMX)
    assert "cancelled" in ended.text
    assert "every" not in ended.text
