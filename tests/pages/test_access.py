"""Access to pages: logins, cookies, and which forms are accepted."""

import httpx2
import pytest
from fastapi import FastAPI

from app.main import create_app
from app.pages.access import LOGIN_COOKIE
from app.services.api_keys import ApiKeyService
from app.settings import Settings
from app.storage.database import Database
from app.storage.paging import PageRequest
from tests.api.conftest import BASE_URL, Client
from tests.pages.browser import Browser, csrf_in
from tests.pages.conftest import NewBrowser


async def test_a_login_returns_to_the_requested_page(
    browser_with: NewBrowser, database: Database
) -> None:
    browser = await browser_with()
    sent = await browser.get("/sessions?status=failed")
    assert sent.status_code == 303
    assert sent.headers["location"] == "/login?next=%2Fsessions%3Fstatus%3Dfailed"
    refused = await browser.form("/login", key="sxt_nobodys", next="/")
    assert refused.status_code == 401
    assert "not known here" in refused.text

    _, secret = await ApiKeyService(database).create(name="mine", scopes=["read"])
    entered = await browser.form("/login", of=sent.headers["location"], key=secret, next="/banks")
    assert (entered.status_code, entered.headers["location"]) == (303, "/banks")
    (cookie,) = [
        line for line in entered.headers.get_list("set-cookie") if line.startswith(LOGIN_COOKIE)
    ]
    assert secret not in cookie
    assert {"HttpOnly", "SameSite=lax"} <= set(cookie.split("; "))
    assert (await browser.get("/")).status_code == 200
    # REST accepts only keys: browsers also send cookies with requests of another site.
    assert (await browser.get("/v1/sessions")).status_code == 401


@pytest.mark.parametrize(
    "elsewhere", ["//evil.test", "https://evil.test/", "/\\evil.test", "/\t/evil.test", "evil.test"]
)
async def test_a_login_redirects_to_no_other_site(
    browser_with: NewBrowser, database: Database, elsewhere: str
) -> None:
    browser = await browser_with()
    _, secret = await ApiKeyService(database).create(name="mine", scopes=["read"])
    entered = await browser.form("/login", key=secret, next=elsewhere)
    assert entered.headers["location"] == "/"


async def test_forms_of_other_sites_change_nothing(browser_with: NewBrowser) -> None:
    browser, other = await browser_with("admin"), await browser_with("admin")
    token, stolen = [csrf_in((await one.get("/")).text) for one in (browser, other)]
    for fields, headers in (
        ({"csrf": token}, {"Origin": "https://evil.test"}),
        ({"csrf": token}, {"Origin": "null"}),
        ({"csrf": token}, {"Origin": "http://["}),
        ({"csrf": token}, {}),
        ({"csrf": stolen}, {"Origin": BASE_URL}),
        ({"csrf": ""}, {"Origin": BASE_URL}),
        ({}, {"Origin": BASE_URL}),
    ):
        refused = await browser.post("/logout", data=fields, headers=headers)
        assert refused.status_code == 403, (fields, headers)
        assert "<h1>Not allowed</h1>" in refused.text  # a key is not what is missing
        assert ("the header Origin is missing" in refused.text) == (not headers)
        assert ("came from another site" in refused.text) == (
            headers not in ({}, {"Origin": BASE_URL})
        )
    assert (await browser.get("/")).status_code == 200
    safe = BASE_URL.replace("http", "https")
    for origin, status in ((BASE_URL, 403), (safe, 303)):  # others may serve pages over http
        headers = {"Origin": origin}
        left = await browser.post(f"{safe}/logout", data={"csrf": token}, headers=headers)
        assert left.status_code == status


async def test_pages_count_towards_the_limit_of_requests(
    browser_with: NewBrowser, client: Client
) -> None:
    browser = await browser_with("read")
    limits = {"limits": {"requests_per_s": 0.5}}
    await client.patch("/v1/projects/default", json=limits, headers={"If-Match": '"1"'})
    answers = [await browser.get("/banks") for _ in range(6)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert "requests a second" in answers[-1].text


async def test_a_login_ends_everywhere_with_the_log_out_and_with_its_key(
    browser_with: NewBrowser, database: Database
) -> None:
    browser = await browser_with("read")
    page = await browser.get("/")
    assert page.headers["cache-control"] == "no-store"
    copied = browser.cookies[LOGIN_COOKIE]
    left = await browser.form("/logout", of="/")
    assert left.headers["location"] == "/login"
    assert LOGIN_COOKIE not in browser.cookies
    browser.cookies.set(LOGIN_COOKIE, copied, domain="sextant.test")
    assert (await browser.get("/")).status_code == 303

    browser = await browser_with("read")
    keys = ApiKeyService(database)
    for key in (await keys.page(PageRequest())).items:
        await keys.revoke(key.id)
    assert (await browser.get("/")).status_code == 303


async def test_pages_cannot_be_framed_cached_or_run_foreign_scripts(
    browser_with: NewBrowser,
) -> None:
    browser = await browser_with("read")
    for path in ("/", "/login", "/sessions/ses_" + "0" * 26):
        answer = await browser.get(path)
        policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "default-src 'self'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert "<script>" not in answer.text
        assert " style=" not in answer.text
        assert " onclick" not in answer.text


async def test_a_wrong_address_gives_a_page_or_a_problem(browser_with: NewBrowser) -> None:
    person = {"Accept": "text/html,*/*;q=0.8"}
    for browser in (await browser_with("read"), await browser_with()):
        for path, status, told in (
            ("/nope", 404, "There is nothing at this address."),
            ("/v1x", 404, "There is nothing at this address."),
            ("/sessions/nope/nope", 404, "There is nothing at this address."),
            ("/logout", 405, "a form of another page"),
        ):
            answer = await browser.get(path, headers=person)
            assert answer.status_code == status
            assert answer.headers["content-type"].startswith("text/html")
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
            assert told in answer.text
            assert (await browser.head(path, headers=person)).headers["content-type"] == (
                answer.headers["content-type"]
            )
    for path, headers in (("/v1/nope", person), ("/v1", person), ("/nope", {"Accept": "*/*"})):
        answer = await browser.get(path, headers=headers)
        assert answer.status_code == 404
        assert answer.json()["code"] == "not_found"
    assert (await browser.post("/nope", headers=person)).json()["code"] == "not_found"

    browser = await browser_with("read")
    unknown = await browser.get("/sessions/nope")
    assert unknown.status_code == 404
    assert "There is no session &#39;nope&#39;." in unknown.text
    filtered = await browser.get("/sessions?status=nope")
    assert filtered.status_code == 422
    assert "status in the address" in filtered.text
    for query, expected in (
        ("compare?first=foo", "first in the address: expected an id, ses_ and 26 lower-case"),
        ("compare?session=foo", "session in the address: expected an id, ses_ and 26 lower-case"),
        ("gates?after=9", "after in the address: expected an id, got &#39;9&#39;."),
    ):
        assert expected in (await browser.get(f"/{query}")).text


async def test_a_page_names_the_parameters_that_it_ignores(browser_with: NewBrowser) -> None:
    browser = await browser_with("read", "run")
    told = "This page ignores stauts, &lt;i&gt; in its address; it reads after, bank_id, "
    misspelt = await browser.get("/sessions?stauts=failed&bank_id=bnk_" + "0" * 26 + "&<i>=1")
    assert (misspelt.status_code, told in misspelt.text) == (200, True)
    # A page without parameters, and a form that takes its fields from the address.
    for path in ("/keys?utm_source=chat", "/sessions?status=failed", "/gates?threshold=0.7"):
        assert "This page ignores" not in (await browser.get(path)).text


async def test_without_authentication_only_this_machine_is_answered(
    settings: Settings, database: Database
) -> None:
    app: FastAPI = create_app(settings.model_copy(update={"auth": "off"}), database)
    async with app.router.lifespan_context(app):
        for base, status in (
            ("http://127.0.0.1:8000", 200),
            ("http://localhost:8000", 200),
            ("http://evil.test", 303),  # its owner can point the name to this machine
        ):
            transport = httpx2.ASGITransport(app=app)
            async with Browser(transport=transport, base_url=base) as browser:
                assert (await browser.get("/")).status_code == status
        transport = httpx2.ASGITransport(app=app)
        async with Browser(transport=transport, base_url="http://127.0.0.1:8000") as browser:
            # Invalid host names, which browsers call all the same.
            rebound = await browser.get("/", headers={"Host": "a{b.evil.test"})
            assert rebound.status_code == 303


@pytest.mark.parametrize("auth", ["off", "required"])
async def test_without_a_database_every_page_says_so_in_one_sentence(
    settings: Settings, auth: str
) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:9/none", pool_size=1)
    app = create_app(settings.model_copy(update={"auth": auth}), away)
    async with (
        app.router.lifespan_context(app),
        Browser(
            transport=httpx2.ASGITransport(app=app), base_url="http://127.0.0.1:8000"
        ) as browser,
    ):
        browser.cookies.set(LOGIN_COOKIE, "somebody")
        for path in ("/", "/sessions", "/banks/demo/versions/latest", "/nowhere"):
            told = await browser.get(path, headers={"Accept": "text/html"})
            assert told.status_code == 503
            assert told.headers["content-type"].startswith("text/html")
            assert told.headers["retry-after"]
            assert told.text.count("The database cannot serve this now: connection failed") == 1
        part = await browser.get("/sessions", headers={"HX-Request": "true"})
        assert part.status_code == 503
        assert "<html" not in part.text
    await away.dispose()
