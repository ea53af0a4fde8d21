"""Exposure: how evenly the tests of a version use its items."""

import pytest

from app.engine.inference.diagnostics import exposure_rates, overlap, use_counts
from app.printable import percent
from app.services.banks.items import LEAST_TESTS
from tests.api.calls import got, posted
from tests.api.conftest import Client
from tests.api.test_in_flight import awaited, begun, told

PATH = "/v1/banks/demo/versions/latest/exposure"


@pytest.mark.usefixtures("services")
async def test_exposure_counts_tests_that_asked_an_item(client: Client) -> None:
    empty = await got(client, PATH)
    assert [empty[name] for name in ("tests", "n_asked", "overlap", "most_asked")] == [0, 0, 0, []]

    asked: list[list[str]] = []
    for seed in range(LEAST_TESTS):
        short = {"stopping": {"max_items": 3}, "concurrency": 1, "preset": "ability"}
        path = await begun(client, seed=seed, **short)
        items, seen = await awaited(client, path), []
        while items:
            seen.append(items[0]["item"]["id"])
            items = (await told(client, path, items[0]))["next_items"]
        asked.append(seen)

    shown = await got(client, PATH)
    names = sorted({name for test in asked for name in test})
    tests = [[names.index(name) for name in test] for test in asked]
    rates = exposure_rates(tests, len(names))
    assert (shown["tests"], shown["n_items"]) == (LEAST_TESTS, 360)
    assert shown["n_asked"] == len(names)
    assert shown["exposure_max"] == pytest.approx(rates.max())
    assert shown["exposure_mean"] == pytest.approx(rates.sum() / 360)
    assert shown["overlap"] == pytest.approx(overlap(use_counts(tests, len(names)), LEAST_TESTS))
    assert [one["exposure"] for one in shown["most_asked"]] == sorted(rates, reverse=True)[:10]
    dates = next(one for one in shown["tasks"] if one["tag"] == "dates")
    of_dates = sum(name.startswith("dates") for test in asked for name in test)
    assert (dates["asked"], dates["bank"]) == pytest.approx((of_dates / (3 * LEAST_TESTS), 1 / 6))
    assert f"one item was in {percent(rates.max())} of the tests (guide: 30 %)" in shown["caution"]


@pytest.mark.usefixtures("services")
async def test_an_extension_asks_what_its_test_did_not(client: Client) -> None:
    async def asked(path: str) -> None:
        while items := await awaited(client, path):
            if (await told(client, path, items[0]))["finished_at"]:
                return

    path = await begun(client, stopping={"max_items": 3}, concurrency=1)
    await asked(path)
    longer = await posted(client, f"{path}:extend", {"stopping": {"max_items": 5}}, 202)
    await asked(f"/v1/sessions/{longer['id']}")
    await posted(client, f"/v1/sessions/{longer['id']}:replay", {}, 201)
    # Both ask two questions more; they are one test.
    other = await posted(client, f"{path}:extend", {"stopping": {"max_items": 5}}, 202)
    await asked(f"/v1/sessions/{other['id']}")
    shown = (await client.get(PATH)).json()
    assert (shown["tests"], shown["n_asked"]) == (1, 5)
    assert [one["asked"] for one in shown["most_asked"]] == [1] * 5
