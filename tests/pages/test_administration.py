"""Keys, projects and the reference of the API: what they show, and to whom."""

import json
import re

from app.acting import DEFAULT_PROJECT
from app.deps import PROJECT_HEADER
from app.pages.access import PROJECT_COOKIE
from app.services.projects import ProjectService
from app.storage.database import Database
from tests.api.calls import posted
from tests.api.conftest import Client
from tests.pages.browser import csrf_in
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page


async def test_a_key_is_shown_once_and_revoked(browser_with: NewBrowser, client: Client) -> None:
    admin = await browser_with("admin")
    none = await admin.form("/keys", of="/keys", name="no scopes")
    assert none.status_code == 422
    made = await admin.form(
        "/keys", of="/keys", name="mine", usd_per_day="5", **{"scope-read": "yes"}
    )
    secret = re.search(r"sxt_[A-Za-z0-9_-]{40,}", made.text)
    assert secret is not None
    assert secret[0] not in (await admin.get("/keys")).text
    headers = {"Authorization": f"Bearer {secret[0]}"}
    assert (await client.get("/v1/sessions", headers=headers)).status_code == 200
    keys = (await client.get("/v1/api-keys")).json()["data"]
    (key,) = [key for key in keys if key["name"] == "mine"]
    assert key["limits"]["usd_per_day"] == 5
    assert "usd per day 5" in (await admin.get("/keys")).text
    assert key["scopes"] == ["read"]
    gone = await admin.form(f"/keys/{key['id']}/revoke", of="/keys")
    assert gone.headers["location"] == "/keys"
    (key,) = [k for k in (await client.get("/v1/api-keys")).json()["data"] if k["name"] == "mine"]
    assert key["revoked_at"] is not None


async def test_the_reference_is_public_and_served_from_here(browser_with: NewBrowser) -> None:
    nobody = await browser_with()
    shown = (await nobody.get("/docs")).text
    Page(shown)
    addresses = re.findall(r'(?:src|href)="([^"]+)"', shown)
    assert any(address.startswith("/static/swagger-ui-bundle.js?v=") for address in addresses)
    for address in addresses:
        assert address.startswith(("/", "#")), address
        if address.startswith("/static/"):
            assert (await nobody.get(address)).status_code == 200


async def test_the_report_of_a_shared_version_uses_the_readers_own_sessions(
    browser_with: NewBrowser, client: Client, database: Database
) -> None:
    other = await ProjectService(database).create("other")
    bank = await posted(client, "/v1/banks", {"name": "lent", "shared": True}, 201)
    item = {"key": "q0", "prompt": "What?", "target": "x"}
    body = {"items": {"content": json.dumps(item)}, "provisional": True}
    await posted(client, "/v1/banks/lent/imports", body, 201)
    manual = {"bank": "lent", "mode": "manual", "stopping": {"se": None, "max_items": 1}}
    session = await posted(client, "/v1/sessions", manual, 201)
    path = f"/v1/sessions/{session['id']}"
    token = (await client.get(f"{path}/next-item")).json()["step_token"]
    await posted(client, f"{path}/responses", {"step_token": token, "response": "x"}, 201)
    version = f"/banks/{bank['id']}/versions/1"
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
    # A form filled in for the first project does nothing in the second.
    refused = await over_all.send_form("/endpoints", csrf=loaded, name="mine", kind="scripted")
    assert refused.status_code == 403
    assert "another login or project" in refused.text
    over_all.cookies.set(PROJECT_COOKIE, "prj_" + "9" * 26, domain="sextant.test")
    assert "Project: <bdi>default</bdi>" in (await over_all.get("/banks")).text

    # For a key of one project the cookie changes nothing.
    for of_one in (await browser_with("admin", project_id=DEFAULT_PROJECT), await browser_with()):
        of_one.cookies.set(PROJECT_COOKIE, other.id, domain="sextant.test")
        assert "of-the-other" not in (await of_one.get("/banks")).text
        refused = await of_one.form("/projects", of="/login", project=other.id)
        assert refused.status_code in (303, 403)
        assert PROJECT_COOKIE not in refused.headers.get("set-cookie", "")
