"""Endpoints over HTTP: saved fields, hidden secrets, refused input."""

from typing import Any

from fastapi import FastAPI

from tests.api.calls import got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, NewClient
from tests.api.test_problems import assert_problem
from tests.servers import serving
from tests.servers.fault_server import FaultServer

KEY = "sk-very-secret-key"
FULL: dict[str, Any] = {
    "name": "llama local",
    "kind": "openai_chat",
    "base_url": "http://127.0.0.1:8080/v1",
    "model": "llama-3.2-3b",
    "api_key": KEY,
    "headers": {"X-Team": "blue-secret"},
    "sampling": {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "seed": 3, "stop": ["\n"]},
    "reasoning": {"open": "<r>", "close": "</r>"},
    "limits": {
        "rpm": 60,
        "tpm": 10_000,
        "concurrency": 4,
        "usd_per_day": 5,
        "tokens_per_day": 1_000_000,
    },
    "price": {"input_per_1m": 0.5, "output_per_1m": 1.5, "currency": "USD"},
    "retry": {
        "max_attempts": 2,
        "base_s": 0.5,
        "cap_s": 8,
        "max_wait_s": 60,
        "cold_start_wait_s": 10,
    },
    "timeout_s": 30,
    "metadata": {"owner": "blue"},
}


async def create(client: Client, **changes: Any) -> dict[str, Any]:
    return await posted(client, "/v1/endpoints", FULL | changes, 201)


async def patch(client: Client, endpoint: dict[str, Any], change: dict[str, Any]) -> Any:
    return await client.patch(
        f"/v1/endpoints/{endpoint['id']}",
        json=change,
        headers={"If-Match": f'"{endpoint["revision"]}"'},
    )


async def test_saved_fields_are_shown_and_secrets_are_not(client: Client) -> None:
    created = await create(client)
    shown = {name: value for name, value in FULL.items() if name not in ("api_key", "headers")}
    assert {name: created[name] for name in shown} == shown
    assert created["api_key_set"] is True
    assert created["header_names"] == ["X-Team"]
    assert created["id"].startswith("end_")
    for response in (
        await client.get(f"/v1/endpoints/{created['id']}"),
        await client.get("/v1/endpoints"),
    ):
        assert KEY not in response.text
        assert "blue-secret" not in response.text
    assert await got(client, f"/v1/endpoints/{created['id']}") == created


async def test_what_is_left_out_gets_the_documented_defaults(client: Client) -> None:
    body = await posted(client, "/v1/endpoints", {"name": "s", "kind": "scripted"})
    schema = (await got(client, "/openapi.json"))["components"]["schemas"]
    declared = schema["NamedEndpointCreate"]["properties"]
    assert body["timeout_s"] == declared["timeout_s"]["default"]
    retry = schema["RetryPolicy"]["properties"]
    assert body["retry"] == {name: field["default"] for name, field in retry.items()}
    assert set(body["limits"].values()) == {None}
    assert body["api_key_set"] is False


async def test_a_change_leaves_other_fields_alone(client: Client) -> None:
    created = await create(client)
    response = await patch(client, created, {"model": "llama-4", "price": {"input_per_1m": 1.0}})
    assert response.status_code == 200
    changed = response.json()
    assert changed["model"] == "llama-4"
    assert changed["price"] == {"input_per_1m": 1.0, "output_per_1m": None, "currency": "USD"}
    moved = {"model", "price", "revision", "updated_at"}
    assert {k: v for k, v in changed.items() if k not in moved} == {
        k: v for k, v in created.items() if k not in moved
    }
    assert changed["revision"] == 2


async def test_a_key_can_be_replaced_and_removed(client: Client) -> None:
    created = await create(client)
    replaced = (await patch(client, created, {"api_key": "another-key"})).json()
    assert replaced["api_key_set"] is True
    removed = (await patch(client, replaced, {"api_key": None, "headers": {}})).json()
    assert removed["api_key_set"] is False
    assert removed["header_names"] == []


async def test_a_stored_key_does_not_follow_the_endpoint_to_another_host(client: Client) -> None:
    created = await create(client)
    elsewhere = {"base_url": "http://127.0.0.2:8080/v1"}
    await refusal_of(patch(client, created, elsewhere), at="/api_key")
    await refusal_of(patch(client, created, elsewhere | {"api_key": "new"}), at="/headers")
    moved = await patch(client, created, elsewhere | {"api_key": "new", "headers": {}})
    assert moved.status_code == 200
    same_host = await patch(client, moved.json(), {"base_url": "http://127.0.0.2:8080/api"})
    assert same_host.status_code == 200


async def test_its_maker_or_an_admin_changes_it(client: Client, client_with: NewClient) -> None:
    victim = await client_with("run", "banks:write", "read")
    attacker = await client_with("run", "banks:write", "read")
    created = await create(victim)
    match = {"If-Match": '"1"'}
    for call in (
        patch(attacker, created, {"model": "other"}),
        patch(attacker, created, {"base_url": "http://127.0.0.3:1/v1", "api_key": "mine"}),
        attacker.delete(f"/v1/endpoints/{created['id']}", headers=match),
    ):
        await refusal_of(call, 403, "missing_scope", says="was made by another key")
    renamed = await patch(victim, created, {"name": "mine"})
    assert renamed.status_code == 200, renamed.text
    assert (await patch(client, renamed.json(), {"model": "other"})).status_code == 200


async def test_two_endpoints_cannot_share_a_name_until_one_is_deleted(client: Client) -> None:
    created = await create(client)
    says = f"Among the endpoints there is already one with the name {FULL['name']!r}."
    await problem_of(client, "/v1/endpoints", FULL, 409, "already_exists", says=says)
    deleted = await client.delete(f"/v1/endpoints/{created['id']}", headers={"If-Match": '"1"'})
    assert deleted.status_code == 204
    assert deleted.content == b""
    assert (await client.get(f"/v1/endpoints/{created['id']}")).status_code == 404
    assert await listing(client, "/v1/endpoints") == []
    await create(client)


UNWORKABLE: list[tuple[dict[str, Any], str]] = [
    ({"kind": "openai_chatt"}, "/kind"),
    ({"base_url": ""}, "/base_url"),
    ({"base_url": "ftp://host/v1"}, "/base_url"),
    ({"base_url": "http://user:pw@host/v1"}, "/base_url"),
    ({"base_url": "http://host:99999/v1"}, "/base_url"),
    ({"model": " "}, "/model"),
    ({"options": {"theta": 1}}, "/options"),
    ({"headers": {"X-A": "b\r\nX-Evil: 1"}}, "/headers"),
    ({"kind": "scripted", "options": {"theta": "high"}}, "/options"),
    ({"metadata": {str(n): "" for n in range(17)}}, "/metadata"),
    ({"headers": {"bad name": "x"}}, "/headers"),
    ({"limits": {"rpm": 1e-9}}, "/limits/rpm"),  # a call in two thousand years
    ({"limits": {"tpm": 1e-9}}, "/limits/tpm"),
    ({"price": {"currency": "EUR"}}, "/price/currency"),
]


async def test_what_cannot_work_is_refused_at_once(client: Client) -> None:
    for change, pointer in UNWORKABLE:
        response = await client.post("/v1/endpoints", json=FULL | change)
        assert response.status_code == 422, (change, response.text)
        if pointer == "/kind":
            assert "openai_chat" in response.json()["detail"]  # suggests a near miss
        assert response.json()["errors"][0]["pointer"].startswith(pointer)
        assert KEY not in response.text


async def test_faults_of_an_inline_endpoint_are_pointed_at(client: Client, app: FastAPI) -> None:
    await app.state.services.banks.ensure_demo_bank()
    wrong = {"endpoint": {"kind": "openai_chat", "base_url": "ftp://host/v1", "model": "m"}}
    right = {"endpoint": {"kind": "scripted", "model": "m"}}
    measured = {"bank": "demo", **wrong}
    optimal = {"selection": {"criterion": "d_optimal"}}
    item = (await listing(client, "/v1/banks/demo/items?limit=1"))[0]["key"]
    ranking = {"bank": "demo", "endpoints": [right, wrong]}
    unfit = {"session": {**measured, **right, **optimal}, "threshold": 0.0}
    for path, body, pointer in (
        ("sessions", measured, "/endpoint/base_url"),
        ("rankings", ranking, "/endpoints/1/endpoint/base_url"),
        ("gates", {"session": measured, "threshold": 0.0}, "/session/endpoint/base_url"),
        ("gates", unfit, "/session/selection/criterion"),
        (f"banks/demo/items/{item}:preview", wrong, "/endpoint/base_url"),
    ):
        await problem_of(client, f"/v1/{path}", body, at=pointer)


async def test_a_probe_reports_what_the_endpoint_can_do(client: Client) -> None:
    server = FaultServer(api_key=KEY)
    with serving(server.app) as url:
        created = await create(client, base_url=f"{url}/ok/v1")
        found = await posted(client, f"/v1/endpoints/{created['id']}:probe", None)
    assert found["capabilities"]["chat"] is True
    assert found["latency_ms"] > 0
    # The stored key and header were decrypted and sent.
    assert server.calls[0].headers["x-team"] == "blue-secret"


async def test_a_probe_without_any_answer_is_a_424_of_its_class(client: Client) -> None:
    with serving(FaultServer(api_key=KEY).app) as url:
        for behaviour, key, code in (
            ("ok", "wrong-key", "endpoint_unauthorized"),
            ("html", KEY, "endpoint_malformed_answer"),
            ("error_500", KEY, "endpoint_fault"),
        ):
            base = f"{url}/{behaviour}/v1"
            created = await create(client, name=behaviour, base_url=base, api_key=key)
            probe = client.post(f"/v1/endpoints/{created['id']}:probe")
            assert key not in str(await refusal_of(probe, 424, code))


NO_URLS = ["http://[::1/", "http://a\u2100b/", "http://a b/", "http://a\\b/", "gopher://a", "a"]
SECRETS_IN_URLS = [
    *("http://127.0.0.1/v1?auth=hidden", "http://127.0.0.1/v1?pass=hidden"),
    *("http://127.0.0.1/v1#hidden", "http://127.0.0.1/v1?x=hidden", "http://u:hidden@127.0.0.1/v1"),
    *("http://127.0.0.1/v1?api-version=1&Key=hidden", "http://127.0.0.1/v1?api-version=1#hidden"),
]


async def test_an_invalid_address_or_one_with_a_secret_is_refused(client: Client) -> None:
    made = await create(client)
    for url in NO_URLS + SECRETS_IN_URLS:
        inline = {name: FULL[name] for name in ("kind", "model", "api_key")} | {"base_url": url}
        for response in (
            await client.post("/v1/endpoints", json=FULL | {"name": "new", "base_url": url}),
            await patch(client, made, {"base_url": url, "api_key": KEY, "headers": {}}),
            await patch(client, made, {"base_url": url}),
            await client.post("/v1/rankings", json={"bank": "demo", "endpoints": [inline, inline]}),
        ):
            assert response.status_code in (404, 422), response.text
            assert "hidden" not in response.text.replace(url, "")


async def test_an_address_with_the_query_of_a_provider_is_accepted(client: Client) -> None:
    url = "http://127.0.0.1:8080/openai/deployments/x?api-version=2024-10-21"
    assert (await create(client, base_url=url))["base_url"] == url


async def test_daily_spending_is_shown_and_a_probe_beyond_it_is_refused(client: Client) -> None:
    body = {
        "name": "poor",
        "kind": "openai_chat",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "price": {"input_per_1m": 1.0, "output_per_1m": 1.0},
        "limits": {"usd_per_day": 0.0001, "tokens_per_day": 1000},
    }
    made = await posted(client, "/v1/endpoints", body)
    spend = await got(client, f"/v1/endpoints/{made['id']}/spend")
    assert spend["usd"] == {"limit": 0.0001, "spent": 0, "reserved": 0, "left": 0.0001}
    assert spend["tokens"]["left"] == 1000
    refused = await client.post(f"/v1/endpoints/{made['id']}:probe")
    assert_problem(refused, 429, "daily_budget_spent")
    assert 1 <= int(refused.headers["Retry-After"]) <= 86_400
    project = await got(client, "/v1/projects/default/spend")
    assert project["usd"] == {"limit": None, "spent": 0, "reserved": 0, "left": None}
    await problem_of(client, "/v1/endpoints", {**body, "name": "free", "price": {}})
