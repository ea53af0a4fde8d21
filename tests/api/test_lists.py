"""Lists in OpenAI's style: complete and without repeats while entries are written."""

import pytest

from tests.api.calls import got, listing, posted, refusal_of
from tests.api.conftest import Client


async def fill(client: Client, count: int, *, start: int = 0, kind: str = "scripted") -> list[str]:
    ids = []
    for number in range(start, start + count):
        response = await posted(client, "/v1/endpoints", {"name": f"e{number}", "kind": kind}, 201)
        ids.append(response["id"])
    return ids


async def test_an_empty_list_has_no_ids(client: Client) -> None:
    assert await got(client, "/v1/endpoints") == {
        "object": "list",
        "data": [],
        "first_id": None,
        "last_id": None,
        "has_more": False,
    }


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_give_every_entry_once_in_order(client: Client, order: str) -> None:
    ids = await fill(client, 7)
    found: list[str] = []
    params: dict[str, str | int] = {"limit": 3, "order": order}
    while True:
        page = await got(client, "/v1/endpoints", params=params)
        found += [entry["id"] for entry in page["data"]]
        assert page["first_id"] == page["data"][0]["id"]
        assert page["last_id"] == page["data"][-1]["id"]
        if not page["has_more"]:
            break
        params["after"] = page["last_id"]
    # Ids of one millisecond are not ordered by time, but have a fixed order.
    assert found == sorted(ids, reverse=order == "desc")


async def test_added_or_removed_entries_do_not_disturb_paging(client: Client) -> None:
    ids = sorted(await fill(client, 4))
    first = await got(client, "/v1/endpoints?limit=2&order=asc")
    # The entry of the cursor leaves the list, and a new one is added.
    await client.delete(f"/v1/endpoints/{first['last_id']}", headers={"If-Match": '"1"'})
    later = await fill(client, 1, start=4)
    rest = await got(client, f"/v1/endpoints?order=asc&after={first['last_id']}")
    assert [entry["id"] for entry in rest["data"]] == [*ids[2:], *later]


async def test_filters_and_pages_go_together(client: Client) -> None:
    await fill(client, 2)
    real = {"kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1", "model": "m"}
    made = await posted(client, "/v1/endpoints", {"name": "real", **real})
    page = await got(client, "/v1/endpoints?kind=openai_chat&limit=1")
    assert [entry["id"] for entry in page["data"]] == [made["id"]]
    assert page["has_more"] is False
    assert (await listing(client, "/v1/endpoints?name=e1"))[0]["name"] == "e1"


async def test_an_unknown_cursor_is_an_error_not_an_empty_page(client: Client) -> None:
    await refusal_of(client.get("/v1/endpoints?after=end_" + "0" * 26), 404, "not_found")


async def test_an_invalid_page_is_refused(client: Client) -> None:
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=", "after=%27;DROP"):
        at = f"/query/{query.split('=')[0]}"
        await refusal_of(client.get(f"/v1/endpoints?{query}"), at=at)


async def test_items_come_in_pages_of_a_thousand(client: Client) -> None:
    assert (await client.get("/v1/banks/none/items?limit=1000")).status_code == 404
    assert (await client.get("/v1/banks/none/items?limit=1001")).status_code == 422
