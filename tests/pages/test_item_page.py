"""The page of an item: the answers behind its parameters, and signs of drift."""

import html
import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from fastapi import FastAPI

from app.records.banks import ItemAnswer
from app.services.banks.items import ItemUses
from app.services.container import Services
from app.services.projects import ProjectService
from app.storage.database import Database
from tests.api.calls import posted
from tests.api.conftest import Client
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page
from tests.services.calibrations import answers, csv_of
from tests.services.calibrations import run as run_calibration

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
    bank = await _published(app, client, csv_of(recorded))
    path = f"/banks/{bank}/versions/1/items/q3"
    browser = await browser_with("read")
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


async def _published(app: FastAPI, client: Client, csv: str) -> str:
    """Return the id of a bank calibrated on these answers."""
    services: Services = app.state.services
    await client.post("/v1/response-sets", json={"name": "arc"})
    file = {"name": "scores.csv", "content": csv}
    await posted(client, "/v1/response-sets/arc/imports", {"files": [file]}, 201)
    asked = {"response_set": "arc", "report_card": False, "model": "2pl"}
    made = (await client.post("/v1/calibrations", json=asked)).json()
    await run_calibration(services, made["id"])
    version = await posted(client, f"/v1/calibrations/{made['id']}:publish", {"bank": "arc"}, 201)
    return str(version["bank_id"])
