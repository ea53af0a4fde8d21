"""Keys are created and revoked on their page; the reference lists every call of the API."""

import re

from tests.api.conftest import Client
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page


async def test_a_key_is_shown_once_and_revoked(browser_with: NewBrowser, client: Client) -> None:
    admin, reader = await browser_with("admin"), await browser_with("read", "run", "banks:write")
    assert (await reader.get("/keys")).status_code == 403
    assert (await reader.form("/keys", of="/", name="x")).status_code == 403
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


async def test_the_reference_is_public_and_served_from_here(
    browser_with: NewBrowser,
) -> None:
    nobody = await browser_with()
    shown = (await nobody.get("/docs")).text
    Page(shown)
    addresses = re.findall(r'(?:src|href)="([^"]+)"', shown)
    assert any(address.startswith("/static/swagger-ui-bundle.js?v=") for address in addresses)
    for address in addresses:
        assert address.startswith(("/", "#")), address
        if address.startswith("/static/"):
            assert (await nobody.get(address)).status_code == 200
