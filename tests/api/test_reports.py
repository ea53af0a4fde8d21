"""Reports of bank versions over HTTP."""

import pytest
from fastapi import Request

from app.api.downloads import preferred
from tests.api.calls import got, posted, refusal_of
from tests.api.conftest import Client

URL = "/v1/banks/sums/versions/latest/report"


@pytest.fixture(autouse=True)
async def _bank(client: Client) -> None:
    await client.post("/v1/banks", json={"name": "sums"})
    parameters = {"content": 'item,a,b,c,d\n"<i>q1",1.2,-0.3,0.25,1\nq2,-0.8,0.5,0,1\n'}
    await posted(client, "/v1/banks/sums/imports", {"parameters": parameters}, 201)


async def test_a_report_is_json_by_default(client: Client) -> None:
    report = await got(client, URL)
    assert report["object"] == "version_report"
    assert report["identity"]["n_quarantined"] == 1
    assert report["flagged"][0]["reasons"][0][0] == "negative_slope"
    assert report["calibration"] is None
    assert any("1 question (items) in use" in sentence for sentence in report["summary"])


WANTED = [
    ("?format=html", "application/json", True),
    ("?format=json", "text/html", False),
    ("", "text/html,application/xhtml+xml,*/*;q=0.8", True),
    ("", "application/json, text/html;q=0.5", False),
    ("", "*/*", False),
    ("", "text/*", True),
    ("", "text/html;q=high", False),
]


async def test_a_browser_gets_the_page(client: Client) -> None:
    for query, accept, is_page in WANTED:
        response = await client.get(URL + query, headers={"Accept": accept})
        assert response.status_code == 200, accept
        media_type = "text/html" if is_page else "application/json"
        assert response.headers["content-type"].partition(";")[0] == media_type
        assert response.headers["vary"] == "Accept"
        if is_page:
            assert "<h1>sums, version 1</h1>" in response.text
            assert "<i>" not in response.text.replace('<i class="key', "")
            policy = response.headers["content-security-policy"]
            assert policy == "default-src 'none'; style-src 'unsafe-inline'"


async def test_a_report_of_nothing_is_a_problem(client: Client) -> None:
    await refusal_of(client.get("/v1/banks/none/versions/1/report"), 404)
    await refusal_of(client.get(f"{URL}?format=pdf"))


def test_the_first_media_type_wins_where_all_are_accepted() -> None:
    asked = Request({"type": "http", "headers": []})
    assert preferred(asked, "json", "html") == "json"
