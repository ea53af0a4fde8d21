"""The pages of rankings: the form, and the ranking it starts."""

import re

from app.storage.database import Database
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page

FORM = "/rankings/new"


async def test_a_ranking_is_begun_from_its_form_and_shown(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    browser = await browser_with("read", "run")
    assert "save them first" in (await browser.get(FORM)).text
    made = []
    for name in ("one", "two"):
        endpoint = {"name": name, "kind": "scripted", "model": f"<i>{name}</i>"}
        made.append((await client.post("/v1/endpoints", json=endpoint)).json()["id"])
    text = (await browser.get(f"{FORM}?bank=demo")).text
    Page(text)
    assert "&lt;i&gt;two&lt;/i&gt;" in text
    both = {f"endpoint-{endpoint}": "yes" for endpoint in made}
    bank = re.findall(r'<option value="(bnk_[0-9a-z]{26})"', text)[0]
    for wrong, said in (
        ({**both, "confidence": "2"}, "number &lt; 1, got 2; for 2 % say 0.02."),
        ({**both, "budget_usd": "much"}, "expected a number"),
        ({f"endpoint-{made[0]}": "yes"}, "at least two"),
        ({}, "endpoints"),
    ):
        refused = await browser.form(FORM, of=FORM, bank=bank, **wrong)
        assert refused.status_code == 422, wrong
        assert said in refused.text
    begun = await browser.form(FORM, of=FORM, bank=bank, **both, max_items="40", budget_items="60")
    assert begun.status_code == 303, begun.text
    (ranking,) = (await client.get("/v1/rankings")).json()["data"]
    assert begun.headers["location"] == f"/rankings/{ranking['id']}"
    assert ranking["rules"]["max_items"] == 40
    assert "Ranking on" in (await browser.get(begun.headers["location"])).text
    assert (await (await browser_with("read")).get(FORM)).status_code == 403
