"""The forms of a new session, of an endpoint, and of a ranking."""

import re

from app.calling import GenerationParams
from app.storage.database import Database
from tests.api.calls import posted
from tests.api.conftest import Client
from tests.demo_bank import install_demo_bank
from tests.pages.conftest import NewBrowser
from tests.reports.pages import Page

FORM, RANKING = "/sessions/new", "/rankings/new"
SCRIPTED = {"bank": "demo", "kind": "scripted", "model": "m", "se": "0.4", "max_items": "30"}


async def test_a_session_is_forecast_previewed_and_started(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    browser = await browser_with("read", "run")
    text = (await browser.get(f"{FORM}?bank=demo")).text
    Page(text)
    assert "demo (360 items)" in text
    # Enter starts the session, whatever the user could preview before.
    assert re.findall(r'name="do" value="(\w+)"', text)[:2] == ["start", "preview"]
    assert text.index("What it will ask") < text.index(">Start<")
    # Settings for reasoning models are folded, and say what holds for other models.
    default = f'name="max_tokens" inputmode="numeric" placeholder="{GenerationParams().max_tokens}"'
    assert default in text.partition("<summary>More</summary>")[2]
    told = await browser.form(FORM, of=FORM, do="forecast", **SCRIPTED, input_per_1m="1",
                              output_per_1m="2", latency_ms="100")  # fmt: skip
    assert told.status_code == 200, told.text
    assert "Medians of 30 simulated tests" in told.text
    assert "not known" not in told.text
    short = await browser.form(
        FORM, of=FORM, do="forecast", **{**SCRIPTED, "se": "0.05", "max_items": "20"}
    )
    assert "exact as asked for: raise “Questions at most”, or ask for less." in short.text
    shown = await browser.form(FORM, of=FORM, do="ask", **SCRIPTED, api_key="sk-secret")
    assert "Right answer:" in shown.text
    assert "sk-secret" not in shown.text
    assert "type it again" in shown.text  # otherwise the session would start without it
    assert "type it again" not in text
    probed = await browser.form(FORM, of=FORM, do="probe", **SCRIPTED)  # though it is not saved
    assert "What the endpoint can do" in probed.text
    for button in ("probe", "ask", "preview"):
        by_hand = await browser.form(FORM, of=FORM, do=button, bank="demo", endpoint_id="manual")
        assert "there is no endpoint to be asked" in by_hand.text
    assert (await client.get("/v1/sessions")).json()["data"] == []  # nothing has been paid yet
    assert (await client.get("/v1/endpoints")).json()["data"] == []

    no_model = {"bank": "demo", "precision": "exact"}
    refused = await browser.form(FORM, of=FORM, do="start", **no_model)
    assert "model: choose an endpoint, or type the address and the model of one." in refused.text
    started = await browser.form(FORM, of=FORM, do="start", **SCRIPTED, usd="", concurrency="2")
    assert started.status_code == 303, started.text
    (session,) = (await client.get("/v1/sessions")).json()["data"]
    assert started.headers["location"] == f"/sessions/{session['id']}"
    assert session["design"]["stopping"]["se"] == 0.4
    assert session["design"]["concurrency"] == 2

    for wrong, said in (
        ({"max_items": "many"}, "expected a number"),
        ({"kind": "no such kind"}, "kind"),
        ({"bank": "none"}, "There is no bank"),
        ({"base_url": "http://127.0.0.1:1/v1?api-key=1", "kind": "openai_chat"}, "key"),
    ):
        refused = await browser.form(FORM, of=FORM, do="start", **{**SCRIPTED, **wrong})
        assert refused.status_code == 422, wrong
        assert said in refused.text
    broke = await browser.form(FORM, of=FORM, do="start", **SCRIPTED, usd="0")
    assert "usd" in broke.text.partition('id="forecast"')[0].partition('role="alert"')[2]


async def test_a_bank_with_questions_set_aside_promises_no_exact_score(
    browser_with: NewBrowser, client: Client
) -> None:
    async def exactness(faulty: int) -> str:
        name = f"of-{faulty}"
        await posted(client, "/v1/banks", {"name": name}, 201)
        slopes = [-1.0] * faulty + [1.0] * 20
        lines = [f"q{n},{slope},{n % 5 - 2}" for n, slope in enumerate(slopes)]
        table = {"content": "\n".join(["item,a,b", *lines])}
        await posted(client, f"/v1/banks/{name}/imports", {"parameters": table}, 201)
        typed = {"bank": name, "kind": "scripted", "model": "m"}
        shown = (await browser.form(FORM, of=FORM, do="forecast", **typed)).text
        return shown.partition('id="takes-exact"><b>')[2].partition(" questions")[0]

    browser = await browser_with("read", "run")
    assert await exactness(0) == "the score itself</b>, 20"
    assert re.fullmatch(r"&plusmn;\d+ points</b>, 20", await exactness(20))


async def test_each_precision_shows_its_cost_and_is_used(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    browser = await browser_with("read", "run")
    typed = {"bank": "demo", "kind": "scripted", "model": "m", "latency_ms": "100"}
    shown = await browser.form(FORM, of=FORM, do="forecast", **typed, input_per_1m="1",
                               output_per_1m="2", precision="quick")  # fmt: skip
    Page(shown.text)
    told = re.findall(
        r'id="takes-([a-z]+)"><b>&plusmn;([0-9.]+) points</b>, (\d+) questions, ([^,]+), '
        r"\$0\.[0-9]+<",
        shown.text,
    )
    assert [name for name, *_ in told] == ["quick", "normal", "exact"]
    margins, items = ([float(one[place]) for one in told] for place in (1, 2))
    assert margins[0] > margins[1] > margins[2] == 3
    assert 25 == items[0] < items[1] == 60 < items[2]
    for precision, stopping in (
        ("quick", {"score_margin": 0.04, "max_items": 25}),
        ("normal", {"score_margin": 0.04, "max_items": 60}),
        ("exact", {"score_margin": 0.03, "max_items": 360}),
    ):
        begun = await browser.form(FORM, of=FORM, do="start", **typed, precision=precision)
        assert begun.status_code == 303, begun.text
        design = (await client.get(f"/v1{begun.headers['location']}")).json()["design"]
        assert design["stopping"].items() >= stopping.items()
    # Values set by hand take precedence.
    own = await browser.form(FORM, of=FORM, do="start", **typed, precision="exact", max_items="21")
    design = (await client.get(f"/v1{own.headers['location']}")).json()["design"]
    assert (design["stopping"]["score_margin"], design["stopping"]["max_items"]) == (0.04, 21)


async def test_an_endpoint_is_saved_and_never_shows_its_key(
    browser_with: NewBrowser, client: Client
) -> None:
    browser = await browser_with("read", "run")
    fields = {"name": "mine", "kind": "openai_chat", "base_url": "http://127.0.0.1:9/v1",
              "model": "m", "api_key": "sk-secret", "input_per_1m": "0.5", "rpm": "60",
              "max_tokens": "16000"}  # fmt: skip
    refused = await browser.form("/endpoints", of="/endpoints", **{**fields, "rpm": "-1"})
    assert refused.status_code == 422
    saved = await browser.form("/endpoints", of="/endpoints", **fields)
    assert saved.status_code == 303, saved.text
    path = saved.headers["location"]
    for text in (refused.text, (await browser.get(path)).text,
                 (await browser.get("/endpoints")).text):  # fmt: skip
        Page(text)
        assert "sk-secret" not in text
    (stored,) = (await client.get("/v1/endpoints")).json()["data"]
    assert (stored["api_key_set"], stored["limits"]["rpm"]) == (True, 60)
    shown = (await browser.get(path)).text
    assert "16,000 tokens an answer" in shown
    assert "spent today" not in shown  # it is counted only where a limit is set
    assert f'href="{FORM}?endpoint_id={stored["id"]}"' in shown
    probed = await browser.form(f"{path}/probe", of=path)
    assert probed.status_code == 424  # no server listens there
    gone = await browser.form(f"{path}/delete", of=path, revision=str(stored["revision"]))
    assert gone.headers["location"] == "/endpoints"
    assert (await client.get("/v1/endpoints")).json()["data"] == []


async def test_a_ranking_is_begun_from_its_form_and_shown(
    database: Database, browser_with: NewBrowser, client: Client
) -> None:
    await install_demo_bank(database)
    browser = await browser_with("read", "run")
    assert f'href="{RANKING}"' in (await browser.get("/rankings")).text
    assert "save them first" in (await browser.get(RANKING)).text
    made = []
    for name in ("one", "two"):
        endpoint = {"name": name, "kind": "scripted", "model": f"<i>{name}</i>"}
        made.append((await client.post("/v1/endpoints", json=endpoint)).json()["id"])
    text = (await browser.get(f"{RANKING}?bank=demo")).text
    Page(text)
    assert "&lt;i&gt;two&lt;/i&gt;" in text
    both = {f"endpoint-{endpoint}": "yes" for endpoint in made}
    bank = re.findall(r'<option value="(bnk_[0-9a-z]{26})"', text)[0]
    for wrong, said in (
        ({**both, "confidence": "2"}, "number &lt; 1, got 2; for 2 % say 0.02."),
        ({**both, "budget_usd": "much"}, "expected a number"),
        ({f"endpoint-{made[0]}": "yes"}, "endpoints: expected at least 2 entries, got 1"),
        ({}, "endpoints"),
    ):
        refused = await browser.form(RANKING, of=RANKING, bank=bank, **wrong)
        assert refused.status_code == 422, wrong
        assert said in refused.text
    begun = await browser.form(
        RANKING, of=RANKING, bank=bank, **both, max_items="40", budget_items="60"
    )
    assert begun.status_code == 303, begun.text
    (ranking,) = (await client.get("/v1/rankings")).json()["data"]
    assert begun.headers["location"] == f"/rankings/{ranking['id']}"
    assert ranking["rules"]["max_items"] == 40
    assert "Ranking on" in (await browser.get(begun.headers["location"])).text
