"""Two projects in one server: neither finds anything of the other on any page."""

import json

from app.acting import DEFAULT_PROJECT
from app.deps import PROJECT_HEADER
from app.pages.access import PROJECT_COOKIE
from app.services.api_keys import ApiKeyService
from app.services.projects import ProjectService
from app.storage.database import Database
from tests.api.conftest import Client
from tests.pages.browser import csrf_in
from tests.pages.conftest import NewBrowser

THEIRS = "theirs-alone"


async def test_pages_of_one_project_tell_nothing_of_another(
    browser_with: NewBrowser, client: Client, database: Database
) -> None:
    other = await ProjectService(database).create("other")
    item = {"key": "q0", "prompt": "What?", "target": "x", "tags": [f"{THEIRS}-tag"]}
    made = await client.post("/v1/banks", json={"name": f"{THEIRS}-bank"})
    assert made.status_code == 201, made.text
    filled = await client.post(
        f"/v1/banks/{THEIRS}-bank/imports",
        json={
            "items": {"content": json.dumps(item)},
            "parameters": {"content": "item,a,b,c,d\nq0,1,0,0,1\n"},
        },
    )
    assert filled.status_code == 201, filled.text
    endpoint = {"name": f"{THEIRS}-model", "kind": "scripted", "model": THEIRS}
    assert (await client.post("/v1/endpoints", json=endpoint)).status_code == 201
    session = await client.post(
        "/v1/sessions", json={"bank": f"{THEIRS}-bank", "mode": "manual", "metadata": {"a": THEIRS}}
    )
    assert session.status_code == 201, session.text
    path = f"/sessions/{session.json()['id']}"

    mine = await browser_with("read", "run", "banks:write")
    stranger = await browser_with("read", "run", "banks:write", project_id=other.id)
    pages = {}
    for browser in (mine, stranger):
        starts = ["/", "/sessions", "/sessions/new", "/banks", "/endpoints", path]
        pages[browser] = await browser.walk(starts, of_a_kind=2)
    assert sum(THEIRS in text for text in pages[mine].values()) > 5
    assert path not in pages[stranger]
    assert [at for at, text in pages[stranger].items() if THEIRS in text] == []
    assert (await stranger.get(f"{path}/live")).status_code == 404
    assert (await stranger.form(f"{path}/cancel", of="/")).status_code == 404
    held = await stranger.form("/sessions/new", of="/", bank=f"{THEIRS}-bank", kind="scripted")
    assert held.status_code == 422

    # Whoever looks after one project sees and revokes its keys alone.
    admin = await browser_with("admin", project_id=other.id)
    _, secret = await ApiKeyService(database).create(name=f"{THEIRS}-key", scopes=["admin"])
    shown = (await admin.get("/keys")).text
    assert "browser" in shown
    assert THEIRS not in shown
    assert secret not in shown


async def test_the_report_of_a_lent_version_tells_of_the_readers_own_tests(
    browser_with: NewBrowser, client: Client, database: Database
) -> None:
    other = await ProjectService(database).create("other")
    bank = await client.post("/v1/banks", json={"name": "lent", "shared": True})
    assert bank.status_code == 201, bank.text
    item = {"key": "q0", "prompt": "What?", "target": "x"}
    body = {"items": {"content": json.dumps(item)}, "provisional": True}
    filled = await client.post("/v1/banks/lent/imports", json=body)
    assert filled.status_code == 201, filled.text
    manual = {"bank": "lent", "mode": "manual", "stopping": {"se": None, "max_items": 1}}
    session = await client.post("/v1/sessions", json=manual)
    assert session.status_code == 201, session.text
    path = f"/v1/sessions/{session.json()['id']}"
    token = (await client.get(f"{path}/next-item")).json()["step_token"]
    told = await client.post(f"{path}/responses", json={"step_token": token, "response": "x"})
    assert told.status_code == 201, told.text
    version = f"/banks/{bank.json()['id']}/versions/1"
    for project, n_examinees in ((DEFAULT_PROJECT, 1), (other.id, 0)):
        browser = await browser_with("read", project_id=project)
        assert f"{n_examinees} models have answered" in (await browser.get(version)).text


async def test_a_key_of_all_projects_works_in_the_one_that_the_browser_has_chosen(
    browser_with: NewBrowser, client: Client, database: Database
) -> None:
    other = await ProjectService(database).create("Other <i>")
    headers = {PROJECT_HEADER: other.id}
    bank = {"name": "of-the-other"}
    assert (await client.post("/v1/banks", json=bank, headers=headers)).status_code == 201
    over_all = await browser_with("admin")
    assert "Project: <bdi>default</bdi>" in (await over_all.get("/banks")).text
    assert "of-the-other" not in (await over_all.get("/banks")).text
    assert "Other &lt;i&gt;" in (await over_all.get("/projects")).text
    loaded = csrf_in((await over_all.get("/")).text)
    chosen = await over_all.form("/projects", of="/projects", project=other.id)
    assert chosen.headers["location"] == "/"
    assert {"HttpOnly", "SameSite=lax"} <= set(chosen.headers["set-cookie"].split("; "))
    shown = (await over_all.get("/banks")).text
    assert "of-the-other" in shown
    assert "Project: <bdi>Other &lt;i&gt;</bdi>" in shown
    # What was filled in for the first project is not carried out in the second.
    refused = await over_all.send_form("/endpoints", csrf=loaded, name="mine", kind="scripted")
    assert refused.status_code == 403
    assert "present login and project" in refused.text
    over_all.cookies.set(PROJECT_COOKIE, "prj_" + "9" * 26, domain="sextant.test")
    assert "Project: <bdi>default</bdi>" in (await over_all.get("/banks")).text

    # To a key of one project the cookie opens nothing.
    for of_one in (await browser_with("admin", project_id=DEFAULT_PROJECT), await browser_with()):
        of_one.cookies.set(PROJECT_COOKIE, other.id, domain="sextant.test")
        assert "of-the-other" not in (await of_one.get("/banks")).text
        refused = await of_one.form("/projects", of="/login", project=other.id)
        assert refused.status_code in (303, 403)
        assert PROJECT_COOKIE not in refused.headers.get("set-cookie", "")
