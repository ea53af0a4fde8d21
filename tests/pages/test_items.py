"""The items of a version: their use, their table, and the page of one."""

import asyncio
import html
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from fastapi import FastAPI

from app.api.schemas.versions import VersionItemRead
from app.pages import items
from app.pages.items import ItemRow, Items, Wanted, chosen, flag_counts, held, items_of
from app.records.banks import ItemAnswer, ItemUse
from app.services.banks.items import ItemUses
from app.services.container import Services
from app.services.projects import ProjectService
from app.settings import Settings
from app.storage.database import Database
from tests.api.calls import posted
from tests.api.conftest import Client
from tests.api.test_in_flight import begun
from tests.api.test_several_abilities import install
from tests.demo_bank import install_demo_bank
from tests.pages.browser import Browser
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page
from tests.services.banks import make_bank, question, spread
from tests.services.calibrations import answers, csv_of
from tests.services.calibrations import run as run_calibration
from tests.services.sessions import opened


async def test_a_version_shows_use_of_its_items(
    client: Client, database: Database, browser_with: NewBrowser
) -> None:
    await install_demo_bank(database)
    browser = await browser_with("read")
    path = "/banks/demo/versions/1"
    assert "What tests asked" not in (await browser.get(path)).text
    await begun(client)
    shown = (await browser.get(path)).text
    Page(shown)
    assert "1 test asked 4 of 360 items: one of them in 100" in shown
    assert re.search(r'href="/banks/bnk_\w+/versions/1/items"', shown)


async def test_a_version_says_which_parameters_it_left_out(
    app: FastAPI, browser_with: NewBrowser
) -> None:
    await make_bank(app.state.services, "few", spread("q1", "lost"), [question("q1")])
    shown = (await (await browser_with("read")).get("/banks/few/versions/1")).text
    told = "1 calibrated item left out, since the bank has no such items (<bdi>lost</bdi>)."
    assert told in shown


async def test_the_page_of_an_item_is_found_by_any_key(
    app: FastAPI, browser_with: NewBrowser
) -> None:
    await make_bank(app.state.services, "few", spread("arc/1"), [question("arc/1")])
    for key in ("arc/1", "arc%2F1"):
        page = await (await browser_with("read")).get(f"/banks/few/versions/1/items/{key}")
        assert page.status_code == 200, key


def row(position: int, b: float | None, **given: object) -> ItemRow:
    item = {
        "item_id": f"itm_{position}",
        "key": f"Key {position}",
        "position": position,
        "status": "active",
        "a": 1.0,
        "b": b,
        "intercept": 0.0,
        "c": 0.0,
        "d": 1.0,
        "k": None,
        "flags": [],
        "pretest_sessions": 0,
        **given,
    }
    used = {"position": position, "asked": position, "tests": position, "marked": 0}
    use = ItemUse(**used, mean=None) if position else None
    return ItemRow(VersionItemRead.read(item), (f"task-{position % 2}",), use)


FLAG = {
    "code": "misfit",
    "severity": "warning",
    "field": "a",
    "value": 1.0,
    "message": "It leaves.",
}
ROWS = [
    row(0, 0.5),
    row(1, None, status="pretest"),
    row(2, -1.0, status="quarantined", flags=[FLAG, FLAG]),
    row(3, 2.0, flags=[FLAG]),
]
ITEMS = Items(ROWS, n_tests=9, flags=flag_counts(ROWS))


def positions(**wanted: object) -> list[int]:
    return [found.item.position for found in chosen(ITEMS, Wanted(**wanted))]  # type: ignore[arg-type]


def test_items_are_sorted_with_missing_values_last_in_both_orders() -> None:
    assert positions() == [0, 1, 2, 3]
    assert positions(sort="b") == [2, 0, 3, 1]
    assert positions(sort="b", descending=True) == [3, 0, 2, 1]
    assert positions(sort="asked", descending=True) == [3, 2, 1, 0]
    assert positions(sort="flags", descending=True)[:2] == [2, 3]


def test_items_are_filtered_by_state_task_finding_and_part_of_their_key() -> None:
    assert positions(status="quarantined") == [2]
    assert positions(tag="task-1") == [1, 3]
    assert positions(flag="misfit") == [2, 3]
    assert positions(text="kEY 3") == [3]
    assert positions(text="(", flag="misfit") == []
    assert ITEMS.flags == {"misfit": 2}  # items, not findings


async def test_rows_are_read_in_slices_and_once_for_all_readers(
    settings: Settings, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items, "_AT_ONCE", 100)
    async with opened(settings, database) as services:
        version = await services.versions.get("demo", "latest")
        loaded = await services.versions.load(version.id)

        async def look() -> Items:
            return await items_of(services, version, loaded, seen_by="somebody")

        found = await asyncio.gather(*(look() for _ in range(5)))

    assert [one.item.position for one in found[0].rows] == list(range(loaded.bank.n_items))
    assert len(found[0].rows) % 100
    assert all(one is found[0] for one in found)


_EXAMINEES, _THETA = 120, 0.4


def _live(n_right: int, n: int = 100) -> list[ItemAnswer]:
    """Return answers of tests that ended with one ability, and two uninformative ones."""
    known = [(1.0, _THETA)] * n_right + [(0.0, _THETA)] * (n - n_right)
    return [
        ItemAnswer(
            session_id="ses_" + "0" * 26,
            examinee="m",
            theta=theta,
            step=1,
            outcome="scored",
            score=score,
            answered_at=None,
        )
        for score, theta in [*known, (None, _THETA), (1.0, None)]
    ]


async def test_answers_are_held_against_the_curve_of_one_ability_alone(
    app: FastAPI, database: Database
) -> None:
    await install(app.state.services)
    await install_demo_bank(database)
    one, several = [await app.state.services.versions.load(bank=b) for b in ("demo", "tasks")]
    assert held(one, 0, _live(10, 20)) is not None
    assert held(several, 0, _live(10, 20)) is None


def _text(page: str) -> str:
    """Return the text of a page in one line."""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", page)).split())


@pytest.mark.usefixtures("fits_here")
async def test_recorded_answers_and_drift(
    app: FastAPI,
    client: Client,
    database: Database,
    browser_with: NewBrowser,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recorded = answers(_EXAMINEES)
    browser = await browser_with("read", "banks:write")
    bank = await _published(app, client, browser, csv_of(recorded))
    path = f"/banks/{bank}/versions/1/items/q3"
    shown = (await browser.get(path)).text
    Page(shown)
    marks = recorded.matrix.scores[:, 2]
    right = int(np.count_nonzero(marks == 1))
    text = _text(shown)
    assert f"{_EXAMINEES} answers in the response set arc: " in text
    assert f"{_EXAMINEES - right} wrong" in text
    assert f"{right} right" in text
    table = re.findall(r'class="name">(?:<bdi>)?model-(\d+)<.*?<td>(right|wrong)</td>', shown)
    assert len(table) == 100  # the first, as its heading says
    assert "trial" not in text  # each model answered once
    assert "Page 1 of them, model by model" in text
    assert f'href="/banks/{bank}/versions/1/items/q3?page=2" rel="next"' in shown
    rest = (await browser.get(f"{path}?page=2")).text
    Page(rest)
    table += re.findall(r'class="name">(?:<bdi>)?model-(\d+)<.*?<td>(right|wrong)</td>', rest)
    assert len(dict(table)) == _EXAMINEES
    by_name = dict(zip(map(str, recorded.matrix.examinees), marks, strict=True))
    assert all((by_name[name] == 1) == (told == "right") for name, told in table)
    assert "No test of this version has asked it." in text
    assert "by its curve" not in text

    # In a project that uses a shared bank, the answers belong to the lender.
    await client.patch(f"/v1/banks/{bank}", json={"shared": True}, headers={"If-Match": '"1"'})
    other = await ProjectService(database).create("other")
    borrower = await browser_with("read", project_id=other.id)
    lent = await borrower.get(path)
    assert lent.status_code == 200
    assert "What it was calibrated with" not in lent.text

    services: Services = app.state.services
    parameters = (await services.versions.load(bank=bank)).bank
    p = 1 / (1 + math.exp(-parameters.a[2] * (_THETA - parameters.b[2])))
    se = math.sqrt(p * (1 - p) / 100)
    for share, said in (
        (p, "It still follows its curve."),
        (p + 4 * se, "It has become easier than it was: perhaps it leaked."),
        (p - 4 * se, "It has become harder than it was."),
    ):
        given = _live(round(100 * share))

        async def found(*_: object, given: Sequence[ItemAnswer] = given, **__: object) -> object:
            return given

        monkeypatch.setattr(ItemUses, "answers", found)
        text = _text((await browser.get(path)).text)
        assert said in text
        mean = round(100 * share)
        assert f"the latest 100 of them with a known ability its mean score is {mean}" in text
        assert f"± {196 * se:.1f} points" in text
        assert "Tests of similar ability mean abilitymean score" in text  # as in the chart


async def _published(app: FastAPI, client: Client, browser: Browser, csv: str) -> str:
    """Return the id of a bank calibrated on these answers, and published by its form."""
    services: Services = app.state.services
    await client.post("/v1/response-sets", json={"name": "arc"})
    file = {"name": "scores.csv", "content": csv}
    await posted(client, "/v1/response-sets/arc/imports", {"files": [file]}, 201)
    asked = {"response_set": "arc", "report_card": False, "model": "2pl"}
    made = (await client.post("/v1/calibrations", json=asked)).json()
    await run_calibration(services, made["id"])
    path = f"/calibrations/{made['id']}"
    published = await browser.form(f"{path}/publish", of=path, bank="arc", notes="")
    assert published.status_code == 303, published.text
    _, _, bank, *version = published.headers["location"].split("/")
    assert version == ["versions", "1"]
    return str(bank)
