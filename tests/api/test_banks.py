"""Banks over HTTP."""

import hashlib
import json
from typing import Any

import httpx2
import pytest

from app.services.banks.spec import faults_of
from app.storage.identifiers import new_id
from tests.api.calls import bank_of, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, NewClient

URL = "/v1/banks/sums"
ITEM = {"key": "q1", "prompt": "2 + 2 = ?", "choices": ["3", "4"], "target": "B"}


def ndjson(*rows: dict[str, Any]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


async def made(client: Client, **fields: Any) -> httpx2.Response:
    response = await client.post("/v1/banks", json={"name": "sums", **fields})
    assert response.status_code == 201, response.text
    return response


async def filled(client: Client, **fields: Any) -> None:
    items = [ITEM, {"key": "q2", "prompt": "p", "target": "x", "tags": ["t"]}]
    await bank_of(client, "sums", items, "q1,1.2,-0.3,0.25,1\nq2,0.8,0.5,0,1\n", **fields)


def pointers(response: httpx2.Response) -> set[str]:
    return {error["pointer"] for error in response.json()["errors"]}


async def test_a_bank_is_made_read_changed_and_deleted(client: Client) -> None:
    response = await made(client, description="d", metadata={"k": "v"})
    bank = response.json()
    assert response.headers["location"] == f"/v1/banks/{bank['id']}"
    assert (bank["n_items"], bank["latest_version"]) == (0, None)
    assert bank["default_scorer"] == {"name": "by_kind", "params": {}}
    for reference in (bank["id"], "sums"):
        assert await got(client, f"/v1/banks/{reference}") == bank
    changed = await client.patch(
        "/v1/banks/sums",
        json={"licence": "MIT", "default_scorer": {"name": "numeric"}, "pretest_items": 3},
        headers={"If-Match": response.headers["etag"]},
    )
    assert changed.status_code == 200, changed.text
    assert changed.headers["etag"] == '"2"'
    assert changed.json()["default_scorer"]["name"] == "numeric"
    assert changed.json()["pretest_items"] == 3
    assert changed.json()["description"] == "d"
    stale = client.delete("/v1/banks/sums", headers={"If-Match": '"1"'})
    await refusal_of(stale, 412, "precondition_failed")
    await refusal_of(client.delete("/v1/banks/sums"), 428, "precondition_required")
    gone = await client.delete("/v1/banks/sums", headers={"If-Match": '"2"'})
    assert gone.status_code == 204
    assert (await client.get("/v1/banks/sums")).status_code == 404


async def test_a_prompt_as_long_as_recorded_ones_comes_back_as_it_was_sent(client: Client) -> None:
    turns = [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]
    prompt = {"system": "x" * 20_000, "prefix": turns * 60, "stop": ["\n"], "layout": {"gap": ""}}
    shown = (await made(client, prompt=prompt)).json()["prompt"]
    assert {name: shown[name] for name in ("system", "prefix", "stop")} == {
        name: prompt[name] for name in ("system", "prefix", "stop")
    }
    assert shown["layout"]["gap"] == ""


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"name": "a/b"}, "/name"),
    ({"name": " x"}, "/name"),
    ({"name": "bnk_01m7w8jy4ggdynwdqzq6c115cz"}, "/name"),
    ({"name": "x", "visibility": "secret"}, "/visibility"),
    ({"name": "x", "prompt": {"system": 1}}, "/prompt/system"),
    ({"name": "x", "typo": 1}, "/typo"),
    ({}, "/name"),
]


async def test_an_invalid_bank_is_refused(client: Client) -> None:
    for body, pointer in SENSELESS:
        await problem_of(client, "/v1/banks", body, at=pointer)


async def test_an_item_is_added_read_changed_and_deleted(client: Client) -> None:
    await made(client)
    response = await client.post("/v1/banks/sums/items", json=ITEM)
    assert response.status_code == 201, response.text
    item = response.json()
    assert item["target"] == ["4"]
    assert await got(client, "/v1/banks/sums/items/q1") == item
    assert await got(client, response.headers["location"]) == item
    changed = await client.patch(
        "/v1/banks/sums/items/q1",
        json={"target": 0, "expected_tokens": {"in": 5}, "tags": ["x"]},
        headers={"If-Match": response.headers["etag"]},
    )
    assert changed.status_code == 200, changed.text
    assert changed.json()["target"] == ["3"]
    assert changed.json()["expected_tokens"] == {"in": 5, "out": None}
    assert (changed.json()["id"], changed.json()["tags"]) == (item["id"], ["x"])
    match = {"If-Match": '"2"'}
    faulty = {"choices": ["a", "b"]}
    await refusal_of(client.patch(f"{URL}/items/q1", json=faulty, headers=match), at="/target")
    await problem_of(client, "/v1/banks/sums/items", ITEM, 409, "already_exists")
    gone = await client.delete("/v1/banks/sums/items/q1", headers=match)
    assert gone.status_code == 204
    assert (await client.get("/v1/banks/sums/items/q1")).status_code == 404


FAULTY_ITEMS: list[tuple[dict[str, Any], str]] = [
    ({"target": "C"}, "/target"),
    ({"prompt": None}, "/prompt"),
    ({"choices": ["only one"]}, "/choices"),
    ({"expected_tokens": {"in": True}}, "/expected_tokens/in"),
    ({"b": 1.0}, "/b"),
    ({"scorer": {"name": "nope"}}, "/scorer"),
]


@pytest.mark.parametrize("tag", ['W/"1"', '"1-gzip"', 'W/"1-br"'])
async def test_a_tag_that_a_compressing_proxy_changed_names_its_revision(
    client: Client, tag: str
) -> None:
    await made(client)
    for status in (200, 412):
        call = await client.patch(
            "/v1/banks/sums", json={"licence": "x"}, headers={"If-Match": tag}
        )
        assert call.status_code == status


async def test_a_change_to_a_frozen_item_says_so_whatever_state_it_names(client: Client) -> None:
    await filled(client)
    path = "/v1/banks/sums/items/q1"
    for tag in ('"1"', '"99"'):
        call = client.patch(path, json={"tags": ["x"]}, headers={"If-Match": tag})
        await refusal_of(call, 409, "invalid_state", says="is frozen")
    call = client.patch(path, json={"choices": ["a", "b"]}, headers={"If-Match": '"99"'})
    await refusal_of(call, 422, at="/target")


async def test_a_change_never_replaces_a_state_that_it_was_not_made_of(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(client)
    path = "/v1/banks/sums/items/q1"
    await posted(client, "/v1/banks/sums/items", {"key": "q1", "prompt": "1?", "target": ["1"]})

    async def overtaken(*scorers: Any) -> Any:
        monkeypatch.undo()
        other = await client.patch(path, json={"tags": ["kept"]}, headers={"If-Match": '"1"'})
        assert other.headers["etag"] == '"2"'
        return await faults_of(*scorers)

    monkeypatch.setattr("app.services.banks.items.faults_of", overtaken)
    call = client.patch(path, json={"target": ["2"]}, headers={"If-Match": '"2"'})
    await refusal_of(call, 412, "precondition_failed")
    shown = await got(client, path)
    assert (shown["tags"], shown["target"]) == (["kept"], ["1"])


async def test_a_faulty_item_is_refused_at_its_field(client: Client) -> None:
    await made(client)
    for change, pointer in FAULTY_ITEMS:
        response = await client.post("/v1/banks/sums/items", json={**ITEM, **change})
        assert response.status_code == 422, change
        assert pointers(response) == {pointer}


async def test_each_line_of_a_batch_gets_its_status(client: Client) -> None:
    await made(client)
    far = {"name": "closeness", "params": {"abs_limit": 1}}
    faulty: list[dict[str, Any]] = [
        {"key": "with", "prompt": "p", "b": 1},
        {"key": "odd", "prompt": "p", "scorer": "nope"},
        {"key": "far", "prompt": "p", "target": "far", "scorer": far},
        {"key": "half", "prompt": "p", "\ud800": 1},
    ]
    body = ndjson(ITEM, {"key": "q2"}, ITEM, *faulty) + "\nnot json"
    headers = {"Content-Type": "application/x-ndjson"}
    response = await client.post("/v1/banks/sums/items:batch", content=body, headers=headers)
    assert response.status_code == 200, response.text
    result = response.json()
    assert (result["created"], result["failed"]) == (1, 7)
    assert [line["status"] for line in result["data"]] == ["created", *["failed"] * 7]
    assert result["data"][1]["error"]["errors"][0]["pointer"] == "body:2:prompt"
    assert "expected a number" in result["data"][5]["error"]["detail"]
    url = "/v1/banks/sums/items:batch"
    again = await client.post(url, content=ndjson(ITEM), headers=headers)
    (same,) = again.json()["data"]
    assert (same["status"], same["item_id"]) == ("unchanged", result["data"][0]["item_id"])
    another = ndjson({**ITEM, "prompt": "Another?"})
    (other,) = (await client.post(url, content=another, headers=headers)).json()["data"]
    assert other["error"]["code"] == "already_exists"
    await problem_of(client, "/v1/banks/sums/items:batch", [ITEM], 415, "unsupported_media_type")


async def test_files_are_imported_and_the_version_read_in_every_way(client: Client) -> None:
    await filled(client)
    version = await got(client, "/v1/banks/sums/versions/latest")
    assert (version["number"], version["response_model"]) == (1, "3pl")
    assert version["lint"]["items"] == {"active": 2, "quarantined": 0, "pretest": 0}
    response = await client.get("/v1/banks/sums/versions/1")
    assert response.json() == version
    assert await got(client, f"/v1/banks/sums/versions/{version['id']}") == version
    held = await client.get(
        "/v1/banks/sums/versions/1", headers={"If-None-Match": response.headers["etag"]}
    )
    assert (held.status_code, held.content) == (304, b"")
    items = await got(client, "/v1/banks/sums/versions/1/items?status=active&limit=1")
    assert items["has_more"]
    (item,) = items["data"]
    assert (item["key"], item["a"], item["c"]) == ("q1", 1.2, 0.25)
    assert item["b"] == pytest.approx(-0.3)
    newest = await got(client, "/v1/banks/sums/versions/1/items?order=desc")
    assert newest["data"][-1] == item
    rest = await client.get(f"/v1/banks/sums/versions/1/items?after={items['last_id']}")
    assert [item["key"] for item in rest.json()["data"]] == ["q2"]
    curve = await got(client, "/v1/banks/sums/versions/1/information?theta=-1:1:0.5")
    assert curve["theta"] == [-1.0, -0.5, 0.0, 0.5, 1.0]
    assert curve["scale"] == version["scale"]
    for information, se in zip(curve["information"], curve["se"], strict=True):
        assert se == pytest.approx(information**-0.5)
    bank = await got(client, "/v1/banks/sums")
    assert (bank["n_items"], bank["latest_version"]) == (2, version)
    listed = await got(client, "/v1/banks/sums/versions")
    assert listed["data"] == [version]
    path, match = "/v1/banks/sums/items/q1", {"If-Match": '"1"'}
    changed = client.patch(path, json={"tags": ["new"]}, headers=match)
    for used in (changed, client.delete(path, headers=match)):
        await refusal_of(used, 409, "invalid_state", says="version 1")


async def test_an_invalid_range_of_theta_is_refused(client: Client) -> None:
    await filled(client)
    for theta in ("1", "a:b:c", "1:0:0.1", "0:1:0", "0:1:-1", "0:1e9:1", "nan:1:1"):
        curve = client.get(f"{URL}/versions/1/information", params={"theta": theta})
        await refusal_of(curve, at="/query/theta", says="expected start:stop:step")


async def test_findings_are_listed_and_can_be_overridden(client: Client) -> None:
    await filled(client)
    parameters = [{"key": "q1", "a": -1.0, "b": 0}, {"key": "q2", "b": 1.5}]
    response = await posted(client, f"{URL}/versions", {"parameters": parameters}, 201)
    assert response["lint"]["findings"] == {"negative_slope": 1}
    (flagged,) = await listing(client, "/v1/banks/sums/versions/2/lint")
    assert (flagged["key"], flagged["status"]) == ("q1", "quarantined")
    assert (flagged["flags"][0]["field"], flagged["flags"][0]["value"]) == ("a", -1.0)
    validate = f"{URL}/versions/2:validate"
    assert (await posted(client, validate, {}))["quarantined"] == ["q1"]
    allowed = await posted(client, validate, {"allow": ["negative_slope"]})
    assert (allowed["quarantined"], allowed["n_findings"]) == ([], 1)
    await problem_of(client, validate, {"allow": ["slope"]}, 422, "unknown_name")


CITIES: dict[str, Any] = {"choices": ["Berlin", "Paris"], "target": "B"}
DOUBTFUL: dict[str, dict[str, Any]] = {
    "listed": {"scorer": "includes", **CITIES},
    "matched": {
        "scorer": {"name": "pattern", "params": {"pattern": r"\b(Berlin|Paris)\b", "group": 1}},
        **CITIES,
    },
    "overlaps": {"scorer": {"name": "similarity", "params": {"method": "token_set"}}, **CITIES},
    "by_letter": CITIES,
    "open": {"scorer": "includes", "target": "Paris"},
    "formula": {"scorer": "numeric", "target": ["2", "2x"]},
    "weight": {"scorer": "numeric", "target": "5kg"},
    "number": {"scorer": "numeric", "target": "2.5"},
    "text": {"target": "2x"},
}
WARNINGS = {
    ("listed", "rewards_listing"),
    ("matched", "rewards_listing"),
    ("overlaps", "rewards_listing"),
    ("formula", "formula_target"),
}


async def test_lint_and_report_warn_of_rewarded_lists_and_formula_targets(client: Client) -> None:
    await made(client)
    rows = [{"key": key, "prompt": f"{key}?", **item} for key, item in DOUBTFUL.items()]
    body: dict[str, Any] = {"items": {"content": ndjson(*rows)}}
    sent = await posted(client, "/v1/banks/sums/imports", body)
    assert {(found["key"], found["code"]) for found in sent["findings"]} == WARNINGS
    assert {found["severity"] for found in sent["findings"]} == {"warning"}
    # The items are read again from storage.
    parameters = [{"key": key, "b": 0.1 * n} for n, key in enumerate(DOUBTFUL)]
    version = await posted(client, f"{URL}/versions", {"parameters": parameters})
    assert version["lint"]["items"]["quarantined"] == 0
    flagged = await listing(client, "/v1/banks/sums/versions/1/lint")
    assert {(item["key"], item["flags"][0]["code"]) for item in flagged} == WARNINGS
    page = await client.get("/v1/banks/sums/versions/1/report", params={"format": "html"})
    assert "Score it by `choice`" in page.text
    assert "compared as a formula" in page.text


async def test_a_banks_own_scorer_is_warned_of_on_items_with_options(client: Client) -> None:
    await made(client, default_scorer={"name": "includes"})
    rows = ({"key": "q1", "prompt": "?", **CITIES}, {"key": "q2", "prompt": "!", "target": "x"})
    sent = await posted(client, f"{URL}/imports", {"items": {"content": ndjson(*rows)}})
    (found,) = sent["findings"]
    assert (found["key"], found["code"]) == ("q1", "rewards_listing")


UNUSABLE: list[tuple[list[dict[str, Any]], str]] = [
    ([], "parameters"),
    ([{"key": "q1", "b": 0}, {"key": "q1", "b": 1}], "occurs already"),
    ([{"key": "q1", "b": 0, "c": 0.5, "d": 0.4}], "0 <= c < d <= 1"),
    ([{"key": "zz", "b": 0}], "rows are named like 'zz', items like 'q1'"),
    ([{"key": "q1", "b": "0"}], "b"),
    ([{"key": "q1", "b": 1e300}], "b"),
]


async def test_parameters_that_cannot_be_used_make_no_version(client: Client) -> None:
    await filled(client)
    for parameters, detail in UNUSABLE:
        problem = await problem_of(client, f"{URL}/versions", {"parameters": parameters})
        assert detail in str(problem)
        assert (await listing(client, "/v1/banks/sums/versions"))[0]["number"] == 1


FAULTY_FILES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "invalid_input", "give items, parameters or both"),
    ({"items": {"content": "{"}}, "invalid_file", "items:1"),
    ({"items": {"content": "x,y\n1,2\n", "name": "f.csv"}}, "invalid_file", "f.csv:1:x"),
    ({"parameters": {"content": "item,a,b\nq1,1,nan\n"}}, "invalid_file", "finite"),
    ({"parameters": {"content": "item,a,b,c,d\nq1,1,0,0.5,0.2\n"}}, "invalid_item_bank", "c"),
    ({"parameters": {"content": "item,a,b\n"}}, "invalid_file", "at least one item"),
    ({"parameters": {"content": "a,b\n"}, "scale": ""}, "invalid_input", "/scale"),
]


async def test_files_with_faults_are_refused_with_the_place(client: Client) -> None:
    await made(client)
    for body, code, text in FAULTY_FILES:
        assert text in str(await problem_of(client, f"{URL}/imports", body, 422, code))


NOT_THERE = [
    "/v1/banks/none",
    "/v1/banks/none/items",
    "/v1/banks/none/versions",
    "/v1/banks/sums/items/none",
    "/v1/banks/sums/items?after=itm_0",
    "/v1/banks/sums/versions/2",
    "/v1/banks/sums/versions/999999999",
    "/v1/banks/sums/versions/bkv_00000000000000000000000000/lint",
    "/v1/banks/sums/versions/1/items?after=itm_0",
]


async def test_what_is_not_there_is_a_404(client: Client) -> None:
    await filled(client)
    for path in NOT_THERE:
        await refusal_of(client.get(path), 404, "not_found")


async def test_a_dry_run_may_name_a_bank_that_is_not_there(client: Client) -> None:
    body = {"items": {"content": '{"id": "q1", "prompt": "1 + 1?", "target": "2"}'}}
    trial = body | {"dry_run": True}
    told = await posted(client, "/v1/banks/new/imports", trial, 200)
    assert (told["items"]["accepted"], told["dry_run"]) == (1, True)
    assert await listing(client, "/v1/banks") == []
    await problem_of(client, "/v1/banks/new/imports", body, 404, "not_found")
    gone = f"/v1/banks/{new_id('bnk')}/imports"
    await problem_of(client, gone, trial, 404, "not_found")


MATCHED: list[dict[str, Any]] = [
    {"key": "q1", "prompt": "2 + 2 = ?", "target": ["4"]},
    {"key": "q2", "prompt": "Which?", "choices": ["a", "b"], "target": ["b"]},
    {"key": "q3", "messages": [{"role": "user", "content": "Hé?"}], "target": ["x"]},
]


def hash_of(item: dict[str, Any]) -> str:
    """Compute the hash as the API describes it."""
    messages = [[turn["role"], turn["content"]] for turn in item.get("messages", [])]
    parts = [item.get("prompt"), messages, item.get("choices", []), item["target"]]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


async def filled_to_match(client: Client, **settings: Any) -> None:
    await posted(client, "/v1/banks", {"name": "own", **settings})
    for item in MATCHED:
        await posted(client, "/v1/banks/own/items", item)


MATCH = "/v1/banks/own/items:match"


async def test_items_are_matched_by_key_and_by_what_they_ask(client: Client) -> None:
    await filled_to_match(client)
    hashes = [hash_of(item) for item in MATCHED]
    wanted = {"keys": ["q2", "no"], "content_hashes": [*hashes, "0" * 64]}
    found = await posted(client, MATCH, wanted, 200)
    assert found["matched"] == {
        "q2": ["q2"],
        **{one: [item["key"]] for one, item in zip(hashes, MATCHED, strict=True)},
    }
    assert found["missing"] == ["no", "0" * 64]
    stored = await got(client, "/v1/banks/own/items/q3")
    assert stored["content_hash"] == hashes[2]


async def test_withheld_items_cannot_be_guessed(client: Client, client_with: NewClient) -> None:
    await filled_to_match(client, visibility="withheld")
    reader = await client_with("read", "run")
    guess = hash_of(MATCHED[0])
    await problem_of(reader, MATCH, {"content_hashes": [guess]}, 403, says="matched by key alone")
    # A hash given as a key beside that of the item reveals nothing either.
    found = await posted(reader, MATCH, {"keys": ["q1", guess]}, 200)
    assert (found["matched"], found["missing"]) == ({"q1": ["q1"]}, [guess])
    assert guess in (await posted(client, MATCH, {"content_hashes": [guess]}, 200))["matched"]


async def test_malformed_hashes_are_refused_with_a_pointer(client: Client) -> None:
    await filled_to_match(client)
    wanted = {"content_hashes": ["0" * 64, "ABC"]}
    says = "expected a SHA-256 of 64 lower-case"
    await problem_of(client, MATCH, wanted, at="/content_hashes/1", says=says)
