"""No route shows content of a withheld bank to a key without the scope to write banks.

Every field of a bank holds a canary; sessions of every kind use it, and keys of every scope call
every route of the OpenAPI document. docs/withheld.md has the table.
`tests/pages/test_every_page.py` asks for every page.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from starlette.responses import JSONResponse
from structlog.typing import EventDict

from app.demo.model_server import create_model_server
from app.settings import Settings
from app.worker.loop import running_worker
from tests.api.calls import bank_of, ended, got, listing, posted, problem_of, refusal_of
from tests.api.conftest import Client, NewClient
from tests.api.test_webhooks import HOOK
from tests.servers import serving
from tests.servers.fault_server import FaultServer
from tests.services.catalog import PARAMETERS, QUESTIONS, write_entry

CANARY = "canary"
BANK, TWIN = "secret", "twin"
N_ITEMS = 10
STOPPING = {"se": None, "min_items": 1, "max_items": N_ITEMS}
SHORTER = STOPPING | {"max_items": N_ITEMS - 1}
ENDED = {"completed", "failed", "cancelled"}
#: Routes that show content to bank writers; the canary must appear there.
SHOWN_TO_OWNERS = {
    "/v1/banks",
    "/v1/banks/{bank}",
    "/v1/banks/{bank}/items",
    "/v1/banks/{bank}/items/{item}",
    "/v1/banks/{bank}/versions/{version}/export",
    "/v1/rankings",
    "/v1/rankings/{ranking_id}",
    "/v1/rankings/{ranking_id}/events",
    "/v1/gates",
    "/v1/gates/{gate_id}",
    "/v1/sessions",
    "/v1/sessions/{session_id}",
    "/v1/sessions/{session_id}/changes",
    "/v1/sessions/{session_id}/events",
    "/v1/sessions/{session_id}/export",
    "/v1/sessions/{session_id}/next-item",
    "/v1/sessions/{session_id}/report",
    "/v1/sessions/{session_id}/responses",
}


def echoing() -> FastAPI:
    """Return a model that repeats its prompt; below `/broken` it does so in error messages."""
    app = FastAPI()

    @app.post("/{how}/chat/completions")
    async def complete(how: str, request: Request) -> JSONResponse:
        prompt = json.dumps((await request.json())["messages"])
        if how == "broken":
            return JSONResponse({"error": {"message": f"No room for {prompt}"}}, 500)
        message = {"role": "assistant", "content": prompt, "reasoning_content": prompt}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        return JSONResponse(
            {"id": "1", "object": "chat.completion", "created": 1, "model": "echo"}
            | {"choices": [choice], "usage": usage}
        )

    return app


@dataclass
class World:
    """Ids of everything made from a withheld bank, by route parameter."""

    owner: Client
    ids: dict[str, list[str]] = field(default_factory=dict)
    sessions: dict[str, str] = field(default_factory=dict)

    async def post(self, path: str, body: object) -> dict[str, Any]:
        return await posted(self.owner, path, body)

    async def session(self, name: str, path: str = "/v1/sessions", **body: Any) -> str:
        if path == "/v1/sessions":
            body = {"bank": BANK, "stopping": STOPPING, "seed": 5, **body}
        made: str = (await self.post(path, body))["id"]
        self.sessions[name] = made
        await ended(self.owner, f"/v1/sessions/{made}", *ENDED, "awaiting_response")
        return made


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Settings with a catalogue entry whose bank is withheld."""
    folder = write_entry(tmp_path / "catalog", '{file = "test.jsonl"}', '{file = "irt.csv"}')
    entry = (folder / "small.toml").read_text().replace('"MIT"', '"MIT"\nvisibility = "withheld"')
    (folder / "small.toml").write_text(entry)
    (folder / "test.jsonl").write_bytes(QUESTIONS.replace(b"What", CANARY.encode()))
    (folder / "irt.csv").write_bytes(PARAMETERS)
    return settings.model_copy(update={"catalog": folder})


@pytest.fixture
def servers() -> Iterator[dict[str, str]]:
    """Start an echoing model, a callback that reveals too much, and a judge."""
    marker = FaultServer()
    marker.canned("mark", {"score": 1.0, "reason": f"{CANARY}-said", "version": f"{CANARY}-1"})
    with (
        serving(echoing()) as echo,
        serving(marker.app) as callback,
        serving(create_model_server(theta=0, seed=1)) as judge,
    ):
        yield {"echo": echo, "callback": f"{callback}/mark", "judge": f"{judge}/v1"}


@pytest.fixture
async def world(app: FastAPI, client: Client, servers: dict[str, str]) -> World:
    """Create resources while a worker runs; later work stays queued."""
    async with running_worker(app.state.services):
        return await _made(client, servers)


async def _made(client: Client, servers: dict[str, str]) -> World:
    world = World(client)
    webhook = (await world.post("/v1/webhooks", HOOK))["id"]
    endpoints = [
        ("echo", "openai_chat", f"{servers['echo']}/plain"),
        ("broken", "openai_chat", f"{servers['echo']}/broken"),
        ("marker", "callback", servers["callback"]),
        ("judge", "openai_chat", servers["judge"]),
    ]
    made = {}
    for name, kind, url in endpoints:
        body: dict[str, Any] = {"name": name, "kind": kind, "base_url": url, "api_key": "sk-x"}
        body["retry"] = {"max_attempts": 2, "base_s": 0.01, "cap_s": 0.01}
        made[name] = (await world.post("/v1/endpoints", body | {"model": f"sextant-{name}"}))["id"]
    await _banks(world)
    scripted = {"kind": "scripted", "model": "able", "options": {"theta": 50}}
    asked = {"endpoint_id": made["echo"], "pretest": {"items_per_session": 2}}
    echo = await world.session("echo", **asked, stopping=SHORTER)
    knowing = await world.session("scripted", endpoint=scripted, stopping=SHORTER)
    await world.session("broken", endpoint_id=made["broken"])
    manual = await world.session("manual", mode="manual")
    awaited = await got(client, f"/v1/sessions/{manual}/next-item")
    told = {"step_token": awaited["step_token"], "response": f"{CANARY} by hand"}
    await world.post(f"/v1/sessions/{manual}/responses", told)
    await world.session("extended", f"/v1/sessions/{echo}:extend", stopping=STOPPING)
    await world.session("replayed", f"/v1/sessions/{echo}:replay", estimator={"method": "wle"})
    twin = (await got(client, f"/v1/banks/{TWIN}"))["latest_version"]["id"]
    await world.session("moved", f"/v1/sessions/{knowing}:replay", bank_version_id=twin)
    moved = world.sessions["moved"]
    await world.session("again", f"/v1/sessions/{moved}:extend", stopping=STOPPING)
    await world.session("rescored", f"/v1/sessions/{echo}:rescore")
    named = {"scorer": {"name": "numeric", "params": {}}}
    await world.session("renamed", f"/v1/sessions/{knowing}:rescore", **named)
    await world.session("unmarked", f"/v1/sessions/{world.sessions['broken']}:rescore")
    broken = {"endpoint_id": made["broken"]}
    body = {"bank": BANK, "min_items": 3, "max_items": 4, "seed": 1}
    body |= {"failures": {"max_consecutive": 2}}
    rivals = [{"endpoint_id": made["echo"]}, {"endpoint": scripted}, broken]
    ranking = (await world.post("/v1/rankings", {**body, "endpoints": rivals}))["id"]
    dumb = {"endpoint": {"kind": "openai_chat", "base_url": endpoints[1][2], "model": "dumb"}}
    failing = {**body, "endpoints": [broken, dumb]}
    failed = (await world.post("/v1/rankings", failing))["id"]
    pair = [{"name": "a"}, {"name": "b"}]
    by_hand = (await world.post("/v1/rankings", {**body, "examinees": pair}))["id"]
    for each in (ranking, failed):
        await ended(client, f"/v1/rankings/{each}")
    gates = []
    for name in ("echo", "broken"):
        gated = {"session_id": world.sessions[name], "threshold": 0.5}
        gates.append((await world.post("/v1/gates", gated))["id"])
    await world.post("/v1/response-sets", {"name": "secret-answers"})
    await world.post("/v1/response-sets/secret-answers:collect", {"bank": BANK, "simulated": True})
    members = await listing(client, "/v1/sessions?limit=100")
    left_behind = next(s["id"] for s in members if s["ranking_id"] == failed)
    installation = (await world.post("/v1/catalog/small:install", {}))["id"]
    installed = await ended(client, f"/v1/installations/{installation}")
    assert installed["status"] == "completed", installed["failure"]
    delivered = await listing(client, f"/v1/webhooks/{webhook}/deliveries?limit=100")
    assert {"session.failed", "ranking.failed", "gate.decided"} < {one["type"] for one in delivered}
    world.ids = {
        "bank": [BANK, "small"],
        "installation_id": [installation],
        "version": ["latest"],
        "item": ["q0", "q1", "q11"],
        "session_id": [*world.sessions.values(), left_behind],
        "ranking_id": [ranking, failed, by_hand],
        "gate_id": gates,
        "webhook_id": [webhook],
        "delivery_id": [delivered[0]["id"]],
        "response_set": ["secret-answers"],
        "endpoint_id": list(made.values()),
        "calibration_id": ["cal_" + "0" * 26],
        "key_id": ["key_" + "0" * 26],
        "project": ["default"],
        "name": ["exact", "callback", "small"],
    }
    return world


async def _banks(world: World) -> None:
    """Create the withheld bank with a canary in every field, and an open one without texts."""
    own = [
        {"name": "judge", "params": {"judges": ["judge"], "rubric": f"{CANARY}-rubric"}},
        {"name": "numeric", "params": {}},
        None,
    ]
    items = []
    for number in range(N_ITEMS + 2):  # the last two are in pretest
        key, target = f"q{number}", f"{CANARY}-target-{number}"
        item: dict[str, Any] = {"key": key, "target": target, "tags": ["letters"], "group": "g"}
        if number % 2:
            item["messages"] = [{"role": "user", "content": f"{CANARY}-turn-{number}"}]
        else:
            item["prompt"] = f"{CANARY}-prompt-{number}"
        if number == 1:
            item["target"] = "42"
        if number == 4:
            item |= {"choices": [f"{CANARY}-choice", target]}
        items.append({**item, "scorer": own[number] if number < len(own) else None})
    parameters = "item,a,b,c,d\n" + "".join(
        f"q{number},1.2,{number / 4 - 1:g},0,1\n" for number in range(N_ITEMS)
    )
    callback = {"endpoint": "marker", "params": {"note": f"{CANARY}-param"}}
    prompt = {
        "system": f"{CANARY}-system",
        "prefix": [
            {"role": "user", "content": f"{CANARY}-shot"},
            {"role": "assistant", "content": f"{CANARY}-shown"},
        ],
        "choice_instruction": f"{CANARY}-choose",
        "free_instruction": f"{CANARY}-say",
    }
    given = {"default_scorer": {"name": "callback", "params": callback}, "prompt": prompt}
    lines, numbers = "\n".join(map(json.dumps, items)), {"parameters": {"content": parameters}}
    for name, settings, files in (
        (BANK, {**given, "visibility": "withheld"}, {"items": {"content": lines}, **numbers}),
        (TWIN, {}, numbers),
    ):
        await world.post("/v1/banks", {"name": name, **settings})
        await world.post(f"/v1/banks/{name}/imports", files)


#: Bodies for routes that refuse an empty one.
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/comparisons": [{"session_ids": ["{echo}", "{scripted}"]}],
    "/v1/simulations": [{"bank": BANK, "stopping": STOPPING, "n_examinees": 5}],
    "/v1/sessions": [{"bank": BANK, "mode": "manual", "stopping": STOPPING}],
    "/v1/gates": [
        {"session_id": "{broken}", "threshold": 0.5},
        {"session": {"bank": BANK, "mode": "manual", "stopping": STOPPING}, "threshold": 0.5},
    ],
    "/v1/rankings": [
        {"bank": BANK, "endpoints": [{"endpoint_id": "end_" + "0" * 26}] * 2},
        {"bank": BANK, "examinees": [{"name": "c"}, {"name": "d"}], "min_items": 3},
    ],
    "/v1/scorers/{name}:test": [
        {"item": {"prompt": "?", "target": "x"}, "answer": "y", "params": {}}
    ],
    "/v1/sessions/{session_id}:rescore": [
        {},
        {"scorer": {"name": "callback", "params": {"endpoint": "marker"}}},
    ],
    "/v1/sessions/{session_id}/responses": [{"step_token": "wrong", "response": "x"}],
    "/v1/banks/{bank}/versions/{version}:compose": [{"items": 3}],
}
#: These would end or remove what other requests need.
LEFT_ALONE = re.compile(r":(cancel|pause|probe)$")


@dataclass(frozen=True)
class Ask:
    """One request that the OpenAPI document allows."""

    route: str
    method: str
    path: str
    headers: dict[str, str]
    body: object = None


def asks(document: dict[str, Any], world: World) -> Iterator[Ask]:
    """Yield every GET and POST route for every resource, in every format it offers."""
    for route, operations in document["paths"].items():
        names = re.findall(r"{(\w+)}", route)
        for method in ("get", "post"):
            operation = operations.get(method)
            if operation is None or (method == "post" and LEFT_ALONE.search(route)):
                continue
            for values in product(*(world.ids[name] for name in names)):
                path = route
                for name, value in zip(names, values, strict=True):
                    path = path.replace(f"{{{name}}}", value)
                if method == "get":
                    yield from _forms(route, path, operation, document["components"])
                    continue
                for body in BODIES.get(route, [{}]):
                    sent = json.dumps(body)
                    for name, made in world.sessions.items():
                        sent = sent.replace(f"{{{name}}}", made)
                    yield Ask(route, "POST", path, {}, json.loads(sent))


def _forms(
    route: str, path: str, operation: dict[str, Any], components: dict[str, Any]
) -> Iterator[Ask]:
    parameters = {}
    for one in operation.get("parameters", ()):
        named = components["parameters"].get(one.get("$ref", "").rpartition("/")[2], one)
        parameters[named["name"]] = named["schema"]
    query = "limit=100&" if "limit" in parameters else ""
    if "response_set" in parameters and parameters["response_set"].get("minLength"):
        query += "response_set=secret-answers&"
    offered: list[str | None] = [None]
    if file_formats := parameters.get("format"):
        named = file_formats.get("$ref", "").rpartition("/")[2]
        offered += components["schemas"].get(named, file_formats)["enum"]
    for file_format in offered:
        extra = f"format={file_format}" if file_format else ""
        yield Ask(route, "GET", f"{path}?{query}{extra}", {})
    if "text/event-stream" in json.dumps(operation):
        yield Ask(route, "GET", path, {"Accept": "text/event-stream"})


async def found_by(
    client: Client, world: World, *, by: Collection[str] = ("GET", "POST")
) -> tuple[set[tuple[str, str]], int]:
    """Return where a caller finds the canary, and how many requests succeeded."""
    document = await got(client, "/openapi.json")
    leaks, answered = set(), 0
    live = {world.sessions["manual"], world.ids["ranking_id"][-1]}
    for ask in asks(document, world):
        if ask.method not in by:
            continue
        if "Accept" in ask.headers and any(name in ask.path for name in live):
            continue  # an endless stream; the list of its events has the same content
        answer = await client.request(ask.method, ask.path, headers=ask.headers, json=ask.body)
        assert answer.status_code < 500, (ask, answer.text)
        answered += answer.status_code < 300
        if CANARY in (answer.text + str(answer.headers)).lower():
            leaks.add((ask.method, ask.route))
    return leaks, answered


async def test_the_whole_table(
    world: World, client_with: NewClient, servers: dict[str, str], logs: list[EventDict]
) -> None:
    await _figures_are_told_and_texts_are_null(world, await client_with("read", "run"))
    leaks, answered = await found_by(await client_with("read", "run"), world)
    assert leaks == set()
    assert answered > 100
    # The owner, and callers with fewer scopes, are checked on a part of the sessions.
    some = ("echo", "unmarked", "broken", "manual", "moved")
    world.ids |= {"session_id": [world.sessions[name] for name in some]}
    seen, _ = await found_by(world.owner, world, by={"GET"})
    assert {route for _, route in seen} == SHOWN_TO_OWNERS
    world.ids |= {"session_id": [world.sessions[name] for name in ("echo", "manual")]}
    for scopes in (("read",), ("run",)):
        leaks, answered = await found_by(await client_with(*scopes), world)
        assert leaks == set(), scopes
        assert answered > 0
    writer = await client_with("read", "banks:write")
    seen_by_writer = await writer.get(f"/v1/sessions/{world.sessions['echo']}/responses?limit=100")
    assert CANARY in seen_by_writer.text
    assert CANARY not in str(logs).lower()
    await _only_writers_choose_or_move_a_scorer(world, await client_with("read", "run"), servers)


async def _only_writers_choose_or_move_a_scorer(
    world: World, runner: Client, servers: dict[str, str]
) -> None:
    echo, moved = world.sessions["echo"], world.sessions["moved"]
    for name, params in (
        ("callback", {"endpoint": "marker"}),
        ("judge", {"judges": ["judge"]}),
        ("pattern", {"pattern": "^c"}),
    ):
        for session in (echo, moved):
            scorer = {"scorer": {"name": name, "params": params}}
            rescore = f"/v1/sessions/{session}:rescore"
            await problem_of(runner, rescore, scorer, 403, "missing_scope", says="withheld")
    await posted(runner, f"/v1/sessions/{echo}:rescore", {}, 202)
    # Another bank with a guessed question would tell whether the guess is right.
    by_hand = {"bank": TWIN, "mode": "manual"}
    own = (await posted(runner, "/v1/sessions", by_hand))["id"]
    await posted(runner, f"/v1/sessions/{own}:cancel", {})
    for session, other in ((echo, TWIN), (moved, BANK), (own, BANK)):
        target = (await got(runner, f"/v1/banks/{other}"))["latest_version"]["id"]
        replay = f"/v1/sessions/{session}:replay"
        body = {"bank_version_id": target}
        await problem_of(runner, replay, body, 403, "missing_scope", says="another bank")
    # Scorers of an open bank would receive answers given on a withheld one.
    await refusal_of(runner.post(f"/v1/sessions/{moved}:rescore", json={}), 403, "missing_scope")

    # Scorers used before still score an extended session, though the bank lists them no more.
    bank = await world.owner.get(f"/v1/banks/{BANK}")
    exact = {"default_scorer": {"name": "exact"}}
    match = {"If-Match": bank.headers["etag"]}
    assert (await world.owner.patch(f"/v1/banks/{BANK}", json=exact, headers=match)).is_success
    elsewhere = {"base_url": f"{servers['echo']}/mine", "api_key": None}
    for endpoint in world.ids["endpoint_id"][2:]:  # the endpoints used for scoring
        found = await runner.get(f"/v1/endpoints/{endpoint}")
        match = {"If-Match": found.headers["etag"]}
        changed = await runner.patch(f"/v1/endpoints/{endpoint}", json=elsewhere, headers=match)
        deleted = await runner.delete(f"/v1/endpoints/{endpoint}", headers=match)
        assert (changed.status_code, deleted.status_code) == (403, 403)
    # An item names the judge, which comes last: an endpoint taking its name would be asked.
    gone = await world.owner.delete(f"/v1/endpoints/{endpoint}", headers=match)
    assert gone.status_code == 204
    mine = {"kind": "openai_chat", "name": "judge", "model": "m", **elsewhere}
    for path, body in (
        ("/v1/endpoints", mine),
        ("/v1/sessions", {"bank": BANK, "endpoint": mine}),
        ("/v1/gates", {"session": {"bank": BANK, "endpoint": mine}, "threshold": 0.5}),
        ("/v1/rankings", {"bank": BANK, "endpoints": [{"endpoint": mine}] * 2}),
    ):
        await problem_of(runner, path, body, 403, "missing_scope")
    by_hand = {"bank": BANK, "mode": "manual"}
    await problem_of(runner, "/v1/sessions", by_hand, says="a key that may write it")
    under_test = world.ids["endpoint_id"][0]
    match = {"If-Match": (await runner.get(f"/v1/endpoints/{under_test}")).headers["etag"]}
    change = runner.patch(f"/v1/endpoints/{under_test}", json={"timeout_s": 9}, headers=match)
    await refusal_of(change, 403, says="was made by another key")


async def _figures_are_told_and_texts_are_null(world: World, reader: Client) -> None:
    path = f"/v1/sessions/{world.sessions['scripted']}"
    (mine, *_), (theirs, *_) = [
        (await listing(caller, f"{path}/responses")) for caller in (reader, world.owner)
    ]
    hidden = {name for name in theirs if theirs[name] != mine[name]}
    assert hidden <= {"answer", "extracted", "extractor", "marking", "scorer_hash", "raw"}
    assert {"answer", "scorer_hash"} <= hidden
    assert {mine[name] for name in hidden} == {None}
    session = await got(reader, path)
    assert session["estimate"] == (await world.owner.get(path)).json()["estimate"]
    assert set(session["provenance"]["asking"]) == {"bank_revision", "unparsed_policy"}
    asked = session["provenance"]["asked"]
    assert (asked["mode"], asked["shots"], "scorer" in asked) == ("generate", 1, False)
    bank = await got(reader, f"/v1/banks/{BANK}")
    assert (bank["default_scorer"], bank["prompt"]) == (None, None)
    item = await got(reader, f"/v1/banks/{BANK}/items/q0")
    assert (item["withheld"], item["content_hash"], item["key"]) == (True, None, "q0")
    asked = (await got(reader, f"/v1/sessions/{world.sessions['manual']}/next-item"))["item"]
    assert asked["id"].startswith("q")
    assert (asked["prompt"], asked["messages"], asked["choices"]) == (None, [], [])
    awaited = await reader.post(f"/v1/sessions/{world.sessions['manual']}/next-items", json={})
    assert [one["item"] for one in awaited.json()["data"]] == [asked]
    ranking = f"/v1/rankings/{world.ids['ranking_id'][-1]}"
    awaited = await reader.post(f"{ranking}/next-items", json={"n": 1})
    (asked,) = (one["item"] for one in awaited.json()["data"])
    assert (asked["prompt"], asked["messages"], asked["choices"]) == (None, [], [])
    broken = await got(reader, f"/v1/sessions/{world.sessions['broken']}")
    assert broken["failure"]["code"] == "endpoint_fault"
    assert "banks:write" in broken["stop_detail"]
    # Answers given on an open bank stay open.
    items = [{"key": f"q{number}", "prompt": "What?", "target": "this"} for number in range(2)]
    await bank_of(world.owner, "open", items, "q0,1,0,0,1\nq1,1,1,0,1\n")
    own = {"mode": "manual", "bank": "open", "stopping": STOPPING}
    open_one = await posted(reader, "/v1/sessions", own)
    assert open_one["provenance"]["asking"]["default_scorer"]["name"] == "by_kind"
    awaited = (await got(reader, f"/v1/sessions/{open_one['id']}/next-item"))["item"]
    assert awaited["prompt"] == "What?"
