"""Named examinees who answer by hand, over HTTP."""

import asyncio
from typing import Any

import pytest

from tests.api.calls import answered, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, NewClient

pytestmark = pytest.mark.usefixtures("services")

AGENT = {"name": "solver", "kind": "agent", "model": "m-1", "scaffold": "loop 2"}
ANSWERS = [{"score": score} for score in (1.0, 0.0, 1.0, 1.0, 0.0, 1.0)]


def session_of(examinee: dict[str, Any] | None = AGENT, **said: Any) -> dict[str, Any]:
    named = {} if examinee is None else {"examinee": examinee}
    return {"mode": "manual", "bank": "demo", "stopping": {"max_items": 6}, **named, **said}


async def begun(client: Client, *said: Any, **more: Any) -> dict[str, Any]:
    return await posted(client, "/v1/sessions", session_of(*said, **more), 201)


async def test_two_sessions_of_one_name_are_one_examinee_everywhere(client: Client) -> None:
    sessions = [
        await answered(client, (await begun(client, seed=seed))["id"], *ANSWERS) for seed in (1, 2)
    ]
    for session in sessions:
        assert session["status"] == "completed"
        assert session["examinee"] == {**AGENT, "settings": {}}
        assert (session["self_reported"], session["endpoint"]) == (True, None)
        assert session["headline"]["examinee"] == "solver"

    brief = await client.get(f"/v1/sessions/{sessions[0]['id']}", params={"view": "brief"})
    assert len(brief.text) <= 600
    told = brief.json()
    assert (told["examinee"], told["bank"], told["items"]) == ("solver", "demo", 6)
    assert told["score"] == sessions[0]["score"]["value"]
    assert told["trust"] == sessions[0]["headline"]["trust"]["level"]
    assert told["theta"] == sessions[0]["estimate"]["theta"]

    board = await got(client, "/v1/banks/demo/leaderboard")
    (row,) = board["data"]
    assert (row["session_id"], row["self_reported"]) == (sessions[1]["id"], True)
    assert row["examinee"]["scaffold"] == "loop 2"
    assert (row["endpoint"]["name"], row["endpoint"]["model"]) == ("solver", "m-1")

    both = {"session_ids": [session["id"] for session in sessions]}
    compared = await posted(client, "/v1/comparisons", both)
    assert (compared["first"]["label"], compared["second"]["label"]) == ("solver", "solver")

    assert (await client.post("/v1/response-sets", json={"name": "by-hand"})).status_code == 201
    await posted(client, "/v1/response-sets/by-hand:collect", {"bank": "demo"}, 200)
    collected = await got(client, "/v1/response-sets/by-hand")
    assert collected["n_examinees"] == 1

    listed = await listing(client, "/v1/sessions", params={"examinee": "solver"})
    assert {one["id"] for one in listed} == {session["id"] for session in sessions}


async def test_leaderboards_group_by_model_scaffold_and_reporter(client: Client) -> None:
    others = [
        AGENT,
        {**AGENT, "name": "other model", "model": "m-2"},
        {**AGENT, "name": "other scaffold", "scaffold": "loop 3"},
        {"name": "ada", "kind": "person"},
    ]
    for examinee in others:
        await answered(client, (await begun(client, examinee))["id"], *ANSWERS)

    async def names(**query: Any) -> set[str]:
        board = await got(client, "/v1/banks/demo/leaderboard", params=query)
        return {row["endpoint"]["name"] for row in board["data"]}

    assert await names(model="m-1") == {"solver", "other scaffold"}
    assert await names(scaffold="loop 2") == {"solver", "other model"}
    assert await names(model="m-1", scaffold="loop 2") == {"solver"}
    assert len(await names(self_reported=True)) == 4
    assert await names(self_reported=False) == set()


async def test_a_name_belongs_to_the_key_that_first_used_it_and_to_admins(
    client: Client, client_with: NewClient
) -> None:
    mine, theirs = [await client_with("run", "read") for _ in range(2)]
    await begun(mine)
    await problem_of(theirs, "/v1/sessions", session_of(), 403, says="was named by another key")
    await begun(mine)
    await begun(client)

    says = (
        "The examinee 'solver' is an agent (model m-1, scaffold loop 2); this request says an "
        "agent (model m-2, scaffold loop 2). Another examinee needs another name."
    )
    other = session_of({**AGENT, "model": "m-2"})
    await problem_of(mine, "/v1/sessions", other, 409, "already_exists", says=says)


async def test_an_endpoint_of_the_same_name_is_another_examinee(client: Client) -> None:
    endpoint = {"name": "solver", "kind": "scripted", "model": "solver", "options": {"theta": 0}}
    made = await posted(client, "/v1/endpoints", endpoint)
    session = await begun(client)
    assert [one["id"] for one in await listing(client, "/v1/endpoints")] == [made["id"]]

    await answered(client, session["id"], *ANSWERS)
    (row,) = await listing(client, "/v1/banks/demo/leaderboard")
    by_hand = row["endpoint"]["id"]
    assert by_hand != made["id"]
    # A named examinee is not called, and not changed or deleted as an endpoint.
    assert (await client.get(f"/v1/endpoints/{by_hand}")).status_code == 404
    gone = await client.delete(f"/v1/endpoints/{by_hand}", headers={"If-Match": '"1"'})
    assert gone.status_code == 404
    live = {"bank": "demo", "endpoint_id": by_hand}
    says = "'solver' answers by hand, so it cannot be asked"
    await problem_of(client, "/v1/sessions", live, says=says)
    ranked = {"bank": "demo", "endpoints": [{"endpoint_id": i} for i in (by_hand, made["id"])]}
    assert (await client.post("/v1/rankings", json=ranked)).status_code == 422
    live = session_of(mode="live", endpoint_id=by_hand)
    await problem_of(client, "/v1/sessions", live, says="a live session takes no examinee")


async def test_a_name_ends_with_its_last_session(client: Client, client_with: NewClient) -> None:
    mine, theirs = [await client_with("run", "read") for _ in range(2)]
    session = await begun(mine)
    await mine.post(f"/v1/sessions/{session['id']}:cancel")
    assert (await mine.delete(f"/v1/sessions/{session['id']}")).status_code == 204
    await begun(theirs)


async def test_concurrent_sessions_with_a_new_name_share_the_examinee(client: Client) -> None:
    made = await asyncio.gather(*(client.post("/v1/sessions", json=session_of()) for _ in range(6)))
    assert [one.status_code for one in made] == [201] * 6
    await asyncio.gather(*(answered(client, one.json()["id"], *ANSWERS) for one in made))
    (row,) = await listing(client, "/v1/banks/demo/leaderboard")
    assert row["examinee"]["name"] == "solver"


async def test_an_extended_session_keeps_its_examinee(client: Client) -> None:
    session = await answered(client, (await begun(client, seed=1))["id"], *ANSWERS)
    longer = {"stopping": {"max_items": 8}}
    extended = await posted(client, f"/v1/sessions/{session['id']}:extend", longer, 202)
    more = await answered(client, extended["id"], *ANSWERS[:2])
    assert (more["status"], more["examinee"]["name"]) == ("completed", "solver")
    (row,) = await listing(client, "/v1/banks/demo/leaderboard")
    assert row["session_id"] == more["id"]


async def test_sessions_are_found_by_metadata_model_and_time(client: Client) -> None:
    first = await begun(client, metadata={"commit": "abc", "branch": "main"})
    second = await begun(client, {**AGENT, "name": "b", "model": "m-2"}, metadata={"commit": "abc"})

    async def found(**query: str) -> list[str]:
        return [one["id"] for one in await listing(client, "/v1/sessions", params=query)]

    assert await found(**{"metadata.commit": "abc"}) == [second["id"], first["id"]]
    assert await found(**{"metadata.commit": "abc", "metadata.branch": "main"}) == [first["id"]]
    assert await found(**{"metadata.commit": "abd"}) == []
    assert await found(model="m-2") == [second["id"]]
    assert await found(since=second["created_at"]) == [second["id"]]
    assert await found(before=second["created_at"]) == [first["id"]]
    await refusal_of(client.get("/v1/sessions", params={"since": "yesterday"}))
