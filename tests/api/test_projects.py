"""Projects: on every route, resources of another project do not exist."""

import json
import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from app.acting import EVERYBODY, acting_for
from app.services.api_keys import ApiKeyService
from app.services.projects import ProjectService
from app.storage.database import Database
from app.storage.scoping import of_opened
from tests.api.calls import got, listing, posted, refusal_of
from tests.api.conftest import Client, client_of
from tests.api.test_webhooks import HOOK

ITEMS = "\n".join(
    json.dumps({"key": f"q{n}", "prompt": f"theirs-{n}?", "target": "x"}) for n in range(4)
)
NUMBERS = "item,a,b,c,d\n" + "".join(f"q{n},1.2,{n / 2 - 1:g},0,1\n" for n in range(4))
TABLE = {"parameters": {"content": NUMBERS}}
STOPPING = {"se": None, "min_items": 1, "max_items": 3}
SHEETS = "examinee,item,score\n" + "".join(
    f"e{e},q{n},{int(e % 9 > 2 * n)}\n" for e in range(60) for n in range(4)
)
#: By route parameter, an id that exists in no project, to compare with guessed ids.
NOWHERE = {
    "bank": "bnk_" + "0" * 26,
    "item": "itm_" + "0" * 26,
    "version": "bkv_" + "0" * 26,
    "endpoint_id": "end_" + "0" * 26,
    "session_id": "ses_" + "0" * 26,
    "ranking_id": "rnk_" + "0" * 26,
    "gate_id": "gat_" + "0" * 26,
    "response_set": "rsp_" + "0" * 26,
    "calibration_id": "cal_" + "0" * 26,
    "installation_id": "ins_" + "0" * 26,
    "webhook_id": "whk_" + "0" * 26,
    "delivery_id": "whd_" + "0" * 26,
    "key_id": "key_" + "0" * 26,
    "project": "prj_" + "1" * 26,
    "bank_name": "nowhere-bank",
    "endpoint_name": "nowhere-endpoint",
    "set_name": "nowhere-answers",
}
#: Bodies that name a resource.
BODIES: dict[str, list[dict[str, Any]]] = {
    "/v1/sessions": [
        {"mode": "manual", "bank": "{bank}"},
        {"mode": "manual", "bank_version_id": "{version}"},
        {"bank": "mine", "endpoint_id": "{endpoint_id}"},
    ],
    "/v1/rankings": [
        {"bank": "{bank}", "examinees": [{"name": "a"}, {"name": "b"}], "min_items": 1},
        *(
            {"bank": bank, "endpoints": [{"endpoint_id": "{endpoint_id}"}] * 2, "min_items": 1}
            for bank in ("{bank}", "mine")
        ),
    ],
    "/v1/gates": [{"session_id": "{session_id}", "threshold": 0.5}],
    "/v1/comparisons": [{"session_ids": ["{session_id}", "{session_id}"]}],
    "/v1/simulations": [{"bank": "{bank}", "n_examinees": 5}],
    "/v1/calibrations": [{"response_set": "{response_set}", "model": "2pl"}],
    "/v1/banks": [
        {
            "name": "judged",
            "default_scorer": {
                "name": "judge",
                "params": {"judges": ["{endpoint_id}"], "rubric": "r"},
            },
        }
    ],
    "/v1/api-keys": [{"name": "k", "scopes": ["read"], "project": "{project}"}],
    "/v1/api-keys/{key_id}": [{"limits": {"usd_per_day": 1}}],
    "/v1/rankings/{ranking_id}:join": [{"examinee": {"name": "a"}}],
    "/v1/sessions/{session_id}:replay": [{"bank_version_id": "{version}"}, {}],
    "/v1/sessions/{session_id}/responses": [{"step_token": "s", "response": "x"}],
    "/v1/response-sets/{response_set}:collect": [{"bank": "{bank}"}],
    "/v1/banks/{bank}/imports": [TABLE],
    "/v1/banks/{bank}/items": [{"key": "new", "prompt": "?", "target": "x"}],
    "/v1/banks/{bank}/versions/{version}:compose": [{"items": 2}],
    "/v1/banks/{bank}/versions/{version}/drift": [{"response_set": "{response_set}"}],
}
#: SQL condition for rows of a project; tables without an entry have a project column.
OF_PARENTS = {
    "items": "bank_id IN (SELECT id FROM banks WHERE project_id = :id)",
    "bank_versions": "bank_id IN (SELECT id FROM banks WHERE project_id = :id)",
    "administrations": "session_id IN (SELECT id FROM sessions WHERE project_id = :id)",
    "session_events": "session_id IN (SELECT id FROM sessions WHERE project_id = :id)",
    "ranking_events": "ranking_id IN (SELECT id FROM rankings WHERE project_id = :id)",
    "calibration_events": "calibration_id IN (SELECT id FROM calibrations WHERE project_id = :id)",
    "webhook_deliveries": "webhook_id IN (SELECT id FROM webhooks WHERE project_id = :id)",
    "answer_sheets": "set_id IN (SELECT id FROM response_sets WHERE project_id = :id)",
}
OWN = [
    *("endpoints", "banks", "response_sets", "calibrations", "sessions", "rankings", "gates"),
    *("installations", "webhooks", "api_keys"),
]


class Member:
    """Clients with keys of one project."""

    def __init__(self, app: FastAPI, database: Database, name: str) -> None:
        self._app, self._database, self.name = app, database, name
        self.project_id = ""
        self.key_id = ""

    async def client(self, *scopes: str) -> Client:
        if not self.project_id:
            self.project_id = (await ProjectService(self._database).create(self.name)).id
        key, secret = await ApiKeyService(self._database).create(
            name=f"{self.name}-key", scopes=scopes, project_id=self.project_id
        )
        self.key_id = key.id
        return client_of(self._app, secret)


@pytest.fixture
async def theirs(app: FastAPI, database: Database) -> Member:
    return Member(app, database, "theirs")


@pytest.fixture
async def ours(app: FastAPI, database: Database) -> Member:
    return Member(app, database, "ours")


async def bank_made(client: Client, name: str, **fields: Any) -> dict[str, Any]:
    bank = await posted(client, "/v1/banks", {"name": name, **fields})
    await posted(client, f"/v1/banks/{name}/imports", {"items": {"content": ITEMS}, **TABLE})
    return bank


async def furnished(member: Member) -> dict[str, str]:
    """Create one of every resource in a project; return ids by route parameter."""
    async with await member.client("admin") as client:
        ids = await one_of_each(client)
    return {**ids, "key_id": member.key_id, "project": member.project_id}


async def one_of_each(client: Client) -> dict[str, str]:
    """Create resources as `furnished` does, but no key and no project."""
    bank = await bank_made(client, "theirs-bank")
    version = (await got(client, "/v1/banks/theirs-bank"))["latest_version"]["id"]
    item = (await got(client, "/v1/banks/theirs-bank/items/q1"))["id"]
    scripted = {"kind": "scripted", "model": "theirs-model", "options": {"theta": 1}}
    endpoint = await posted(client, "/v1/endpoints", {"name": "theirs-endpoint", **scripted})
    manual = {"mode": "manual", "bank": "theirs-bank", "stopping": STOPPING}
    session = await posted(client, "/v1/sessions", {**manual, "metadata": {"who": "theirs-meta"}})
    live = {"bank": "theirs-bank", "endpoint_id": endpoint["id"], "stopping": STOPPING}
    await posted(client, "/v1/sessions", live)
    gate = await posted(client, "/v1/gates", {"session_id": session["id"], "threshold": 0.5})
    rivals = [{"endpoint_id": endpoint["id"]}, {"endpoint": {**scripted, "model": "theirs-2"}}]
    body = {"bank": "theirs-bank", "endpoints": rivals, "min_items": 1, "max_items": 3}
    ranking = await posted(client, "/v1/rankings", body)
    answers = await posted(client, "/v1/response-sets", {"name": "theirs-answers"})
    given = {"files": [{"content": SHEETS, "name": "theirs.csv"}]}
    await posted(client, f"/v1/response-sets/{answers['id']}/imports", given)
    wanted = {"response_set": answers["id"], "model": "2pl", "report_card": False}
    calibration = await posted(client, "/v1/calibrations", wanted)
    installation = await posted(client, "/v1/catalog/small:install", {})
    webhook = await posted(client, "/v1/webhooks", HOOK)
    told = await listing(client, f"/v1/webhooks/{webhook['id']}/deliveries")
    return {
        "bank": bank["id"],
        "item": item,
        "version": version,
        "endpoint_id": endpoint["id"],
        "session_id": session["id"],
        "ranking_id": ranking["id"],
        "gate_id": gate["id"],
        "response_set": answers["id"],
        "calibration_id": calibration["id"],
        "installation_id": installation["id"],
        "webhook_id": webhook["id"],
        "delivery_id": told[0]["id"],
        "bank_name": "theirs-bank",
        "endpoint_name": "theirs-endpoint",
        "set_name": "theirs-answers",
    }


async def state_of(database: Database, project_id: str) -> dict[str, Any]:
    """Return a digest of all rows of a project."""
    conditions = dict.fromkeys(OWN, "project_id = :id") | OF_PARENTS
    found = {}
    with acting_for(EVERYBODY):
        async with database.reading() as uow:
            for table, condition in conditions.items():
                query = text(
                    f"SELECT count(*), md5(string_agg(t::text, '' ORDER BY t::text)) "
                    f"FROM {table} t WHERE {condition}"
                ).execution_options(**of_opened("the project"))
                found[table] = tuple((await uow._db.execute(query, {"id": project_id})).one())
    return found


def guesses(document: dict[str, Any]) -> Iterator[tuple[str, str, Any, dict[str, str]]]:
    """Yield method, path, body and headers of every request with `{names}` in place of ids."""
    for route, operations in document["paths"].items():
        names = [name for name in re.findall(r"{(\w+)}", route) if name in NOWHERE]
        for method, operation in operations.items():
            bodies: list[Any] = (
                BODIES.get(route, [{}]) if method in {"post", "patch", "put"} else [None]
            )
            if not names and not any("{" in json.dumps(body) for body in bodies):
                continue
            forms: list[dict[str, str]] = [{}]
            if "text/event-stream" in json.dumps(operation):
                forms.append({"Accept": "text/event-stream"})
            # Each id is tried in any place, not only in that of its kind.
            kinds = [*([name] for name in names[:-1]), *[list(NOWHERE)] * bool(names)]
            for chosen, body, form in product(product(*kinds), bodies, forms):
                path = route.replace("{name}", "exact")
                for name, kind in zip(names, chosen, strict=True):
                    path = path.replace(f"{{{name}}}", f"{{{kind}}}")
                yield method.upper(), path, body, {"If-Match": '"1"', **form}


async def asked(
    client: Client, guess: tuple[str, str, Any, dict[str, str]], ids: dict[str, str]
) -> tuple[int, Any]:
    """Send a guess with these ids; return the response with ids replaced by their names."""
    method, path, body, headers = guess
    sent = json.dumps(body)
    for name, made in ids.items():
        path, sent = path.replace(f"{{{name}}}", made), sent.replace(f"{{{name}}}", made)
    given = {} if body is None else {"json": json.loads(sent)}
    answer = await client.request(method, path, headers=headers, **given)
    told = answer.text
    for name, made in ids.items():
        told = told.replace(made, f"{{{name}}}")
    told = re.sub(r'"request_id":"\w+"', "", told)
    return answer.status_code, told


async def test_no_id_of_another_project_is_accepted_and_nothing_of_it_seen_or_changed(
    database: Database, theirs: Member, ours: Member
) -> None:
    ids = await furnished(theirs)
    client = await ours.client("admin")
    await bank_made(client, "mine")
    before = await state_of(database, theirs.project_id)
    document = await got(client, "/openapi.json")
    count = 0
    for guess in guesses(document):
        there = await asked(client, guess, ids)
        nowhere = await asked(client, guess, NOWHERE)
        assert there == nowhere, guess
        assert there[0] >= 400 or "{" not in guess[1], guess
        count += 2
    for route, operations in document["paths"].items():
        if "get" in operations and "{" not in route and route != "/metrics":
            query = "?bank=mine" if "leaderboard" in route else ""
            listed = (await client.get(route + query)).text
            count += 1
            found = [name for name in (*ids.values(), "theirs") if name in listed]
            assert not found, (route, found)
    assert await state_of(database, theirs.project_id) == before
    assert count > 2000


async def test_a_shared_bank_can_be_used_but_not_changed(theirs: Member, ours: Member) -> None:
    owner, user = await theirs.client("admin"), await ours.client("admin")
    bank = await bank_made(owner, "common", shared=True)
    assert (await listing(user, "/v1/banks"))[0]["id"] == bank["id"]
    assert (await got(user, "/v1/banks/common/items/q1"))["prompt"] == "theirs-1?"
    manual = {"mode": "manual", "bank": "common", "stopping": STOPPING}
    session = await posted(user, "/v1/sessions", manual)
    path = f"/v1/sessions/{session['id']}"
    awaited = await got(user, f"{path}/next-item")
    told = {"step_token": awaited["step_token"], "response": "x"}
    assert (await user.post(f"{path}/responses", json=told)).status_code == 201
    assert await listing(owner, "/v1/sessions") == []
    assert (await owner.get(path)).status_code == 404
    exposure = "/v1/banks/common/versions/latest/exposure"
    assert [(await got(each, exposure))["tests"] for each in (owner, user)] == [0, 1]

    item = {"key": "new", "prompt": "?", "target": "x"}
    head = {"If-Match": '"1"'}
    for call in (
        user.post("/v1/banks/common/items", json=item),
        user.post("/v1/banks/common/imports", json=TABLE),
        user.patch("/v1/banks/common", json={"description": "mine"}, headers=head),
        user.delete("/v1/banks/common", headers=head),
    ):
        await refusal_of(call, 404)
    present = await got(owner, "/v1/banks/common")
    assert (present["n_items"], present["description"]) == (4, "")

    head = {"If-Match": f'"{present["revision"]}"'}
    unshared = owner.patch("/v1/banks/common", json={"shared": False}, headers=head)
    await refusal_of(unshared, 409, says="other projects")
    hidden = owner.patch("/v1/banks/common", json={"visibility": "withheld"}, headers=head)
    await refusal_of(hidden, 422)
    # Other projects may use the name for their own bank, which it then refers to.
    own = await bank_made(user, "common")
    assert (await got(user, "/v1/banks/common"))["id"] == own["id"]


async def test_a_key_of_all_projects_works_in_a_named_one(client: Client, theirs: Member) -> None:
    member = await theirs.client("read", "run", "banks:write")
    bank = await bank_made(member, "a")
    assert bank["project_id"] == theirs.project_id
    assert bank["created_by"] == theirs.key_id
    version = await got(member, "/v1/banks/a/versions/1")
    assert version["created_by"] == theirs.key_id
    more = {"key": "new", "prompt": "?", "target": "x"}
    assert (await posted(member, "/v1/banks/a/items", more))["created_by"] == theirs.key_id
    items = await listing(member, "/v1/banks/a/items")
    assert {item["created_by"] for item in items} == {theirs.key_id}
    there = {"Sextant-Project": "theirs"}
    assert (await client.get("/v1/banks/a")).status_code == 404
    assert (await got(client, "/v1/banks/a", headers=there))["id"] == bank["id"]
    default = {"Sextant-Project": "default"}
    assert (await member.get("/v1/banks/a", headers=default)).status_code == 404
    assert (await member.get("/v1/banks/a", headers=there)).status_code == 200
    assert (await member.get("/v1/projects")).status_code == 403
    assert (await member.get("/v1/projects/theirs")).status_code == 200
    assert (await member.get("/v1/projects/default")).status_code == 404

    project = await got(client, "/v1/projects/theirs")
    path, head = f"/v1/projects/{project['id']}", {"If-Match": '"1"'}
    await refusal_of(client.delete(path, headers=head), 409, says="1 bank")
    empty = await posted(client, "/v1/projects", {"name": "empty"})
    assert empty["created_by"] not in (None, theirs.key_id)
    assert project["created_by"] is None  # created by no key
    path, inside = f"/v1/projects/{empty['id']}", {"Sextant-Project": "empty"}
    assert (await client.get("/v1/banks", headers=inside)).status_code == 200
    assert (await client.delete(path, headers=head)).status_code == 204
    assert (await client.get(path)).status_code == 404
    assert (await client.get("/v1/banks", headers=inside)).status_code == 404
