"""The page of a version: how evenly sessions use its items."""

import pytest

from app.storage.database import Database
from tests.api.conftest import Client
from tests.api.test_in_flight import begun
from tests.demo_bank import install_demo_bank
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page


@pytest.fixture(autouse=True)
async def bank(database: Database) -> None:
    await install_demo_bank(database)


async def test_it_shows_use_of_items(client: Client, browser_with: NewBrowser) -> None:
    browser = await browser_with("read")
    path = "/banks/demo/versions/1"
    assert "What tests asked" not in (await browser.get(path)).text
    await begun(client)
    shown = (await browser.get(path)).text
    Page(shown)
    assert "1 test asked 4 of 360 items: one of them in 100" in shown
