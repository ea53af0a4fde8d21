"""ETags: concurrent changes of one resource lose no update."""

import pytest
from fastapi import Request

from app.api.etags import etag, is_current, not_modified
from tests.api.calls import got, refusal_of
from tests.api.conftest import Client


async def create(client: Client) -> str:
    response = await client.post("/v1/endpoints", json={"name": "a", "kind": "scripted"})
    assert response.headers["etag"] == '"1"'
    assert response.headers["location"] == f"/v1/endpoints/{response.json()['id']}"
    return response.headers["location"]


async def test_a_change_needs_the_state_it_is_based_on(client: Client) -> None:
    path = await create(client)
    for call in (client.patch(path, json={"name": "b"}), client.delete(path)):
        await refusal_of(call, 428, "precondition_required")
    assert (await got(client, path))["name"] == "a"


async def test_the_second_of_two_changes_to_one_state_is_refused(client: Client) -> None:
    path = await create(client)
    read = await client.get(path)
    held = {"If-Match": read.headers["etag"]}
    first = await client.patch(path, json={"name": "b"}, headers=held)
    assert first.status_code == 200
    assert first.headers["etag"] == '"2"'
    for call in (
        client.patch(path, json={"name": "c"}, headers=held),
        client.delete(path, headers=held),
    ):
        await refusal_of(call, 412, "precondition_failed")
    assert (await got(client, path))["name"] == "b"


async def test_a_tag_that_is_not_one_strong_tag_of_ours_matches_nothing(client: Client) -> None:
    path = await create(client)
    for tag in ("*", "1", 'W/"1"', '"1", "2"', '"one"', '""', '"' + "9" * 30 + '"'):
        await refusal_of(client.patch(path, json={"name": "b"}, headers={"If-Match": tag}), 412)


@pytest.mark.parametrize(
    ("header", "current"),
    [('"abc"', True), ('"x", W/"abc"', True), ("*", True), ('"x"', False), ("abc", False)],
)
def test_a_client_with_the_current_state_gets_304(header: str, current: bool) -> None:
    request = Request(
        {"type": "http", "headers": [(b"if-none-match", header.encode())], "method": "GET"}
    )
    assert is_current(request, etag("abc")) is current


def test_not_modified_repeats_the_tag_and_has_no_body() -> None:
    response = not_modified(etag("abc"))
    assert (response.status_code, response.headers["etag"], response.body) == (304, '"abc"', b"")
