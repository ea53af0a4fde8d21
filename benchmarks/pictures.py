"""Takes the pictures of the documents, and renews the sample of a report.

A server process with its worker on an embedded Postgres: made-up models on the demo bank, and a
release of an agent on a bank of 80 tasks, calibrated on 60 agents as in `docs/agents.md`. Needs
Chromium.

    uv run python benchmarks/pictures.py
"""

import contextlib
import json
import math
import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from pages import PREPARE
from playwright.sync_api import Browser, Page, sync_playwright
from service import ROOT, Checkout

from app.storage.embedded import EmbeddedPostgres
from sextant_client import Answer, Item, Sextant

DOCS = ROOT / "docs"
WIDTH = 900
#: Ability of each model, and the time it takes per answer.
MODELS = {"large": (1.6, 40), "medium": (0.9, 20), "medium-old": (0.8, 25), "small": (-0.7, 10)}
PRICE = {"input_per_1m": 0.8, "output_per_1m": 4.0}
#: Ability of the agent's release, and the cost of one of its tasks.
RELEASE, TASK_USD = 1.0, 0.9
#: Number of answers after which the running session is photographed.
WATCHED = 60


def ended(client: Sextant, path: str) -> dict[str, Any]:
    """Return the resource once it has ended."""
    while (found := client.request("GET", path))["finished_at"] is None:
        time.sleep(0.2)
    assert found["status"] == "completed", found
    return dict(found)


def begin(client: Sextant, name: str, theta: float, latency_ms: float, max_items: int) -> str:
    """Start a session of a model on the demo bank; return its path."""
    options = {"theta": theta, "latency_ms": latency_ms, "seed": 6}
    endpoint = {"name": name, "kind": "scripted", "model": name, "options": options}
    saved = client.request("POST", "/v1/endpoints", json={**endpoint, "price": PRICE})
    body = {"bank": "demo", "endpoint_id": saved["id"], "seed": 1, "concurrency": 1}
    body["stopping"] = {"score_margin": None, "max_items": max_items}
    return f"/sessions/{client.request('POST', '/v1/sessions', json=body)['id']}"


def hardness_of(rng: random.Random) -> dict[str, float]:
    return {f"repo-{n // 8}__issue-{n}": rng.gauss(0, 1.5) for n in range(80)}


def solves(rng: random.Random, ability: float, hard: float) -> bool:
    return rng.random() < 1 / (1 + math.exp(1.5 * (hard - ability)))


def report(client: Sextant) -> str:
    """Return the report of the release; the agents are those of `docs/agents.md`."""
    rng = random.Random(5)
    hardness = hardness_of(rng)
    lines = []
    for agent in range(60):
        ability = rng.gauss(0, 1.2)
        solved = {task: int(solves(rng, ability, hard)) for task, hard in hardness.items()}
        lines.append(json.dumps({"subject_id": f"agent-{agent}", "responses": solved}))
    file = {"name": "responses.jsonl", "content": "\n".join(lines)}
    client.request("POST", "/v1/response-sets", json={"name": "agents"})
    client.request("POST", "/v1/response-sets/agents/imports", json={"files": [file]})
    asked = {"response_set": "agents", "model": "2pl", "report_card": False}
    made = client.request(
        "POST", "/v1/calibrations", json={**asked, "publish": {"bank": "repo-issues"}}
    )
    ended(client, f"/v1/calibrations/{made['id']}")

    body = {
        "bank": "repo-issues",
        "mode": "manual",
        "examinee": {"name": "release-12", "kind": "agent"},
        "stopping": {"score_margin": 0.08, "max_items": 40},
        "budget": {"usd": 60},
        "seed": 1,
    }
    session = client.request("POST", "/v1/sessions", json=body)

    def solve(item: Item) -> Answer:
        # Depends only on the task: asked again, the result is the same.
        key = item.item.id
        right = solves(random.Random(f"release {key}"), RELEASE, hardness[key])
        return Answer(score=float(right), usd=TASK_USD)

    client.answer_all(session["id"], solve)
    return f"/v1/sessions/{session['id']}/report"


def log_in(page: Page, key: str) -> None:
    page.set_default_timeout(240_000)
    page.goto("/login")
    page.fill("#key", key)
    page.press("#key", "Enter")
    page.wait_for_selector("text=Running now")


def take(page: Page, path: str, name: str, height: int, there: str = "h1") -> None:
    """Take a picture of the top of a page, once an element is there."""
    page.set_viewport_size({"width": WIDTH, "height": height})
    page.goto(path)
    page.wait_for_selector(there, state="attached")
    page.screenshot(path=DOCS / "pages" / name)
    print(name)


def take_all(browser: Browser, base_url: str, key: str) -> None:
    with Sextant(base_url, key) as client:
        for name, (theta, latency_ms) in MODELS.items():
            ended(client, "/v1" + begin(client, name, theta, latency_ms, 60))
        running = begin(client, "slow", 0.5, 200, 150)
        page = browser.new_page(base_url=base_url, color_scheme="light")
        log_in(page, key)
        take(page, running, "live.png", 1060, f"#step-{WATCHED} .mark:is(.right, .wrong)")
        (saved,) = client.request("GET", "/v1/endpoints?name=medium")["data"]
        new = f"/sessions/new?bank=demo&endpoint_id={saved['id']}"
        take(page, new, "new.png", 720, "#takes-exact b")
        take(page, "/banks/demo/versions/1/items", "items.png", 560)
        take(page, "/banks/demo/leaderboard", "board.png", 760)
        found = page.request.get(
            report(client), headers={"Accept": "text/html", "Authorization": f"Bearer {key}"}
        )
        assert found.ok, found.text()
    sample = DOCS / "sample-report.html"
    sample.write_text(found.text())
    page = browser.new_page(device_scale_factor=1.5, color_scheme="light")
    page.set_viewport_size({"width": 860, "height": 620})
    page.goto(sample.as_uri())
    page.screenshot(path=DOCS / "pages/report.png")


def main() -> None:
    with contextlib.ExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory())
        Path(name).chmod(0o755)  # Postgres may run as somebody else
        postgres = stack.enter_context(EmbeddedPostgres(Path(name) / "postgres"))
        checkout = Checkout("pictures", ROOT, postgres.url, Path(name))
        key = checkout.run("-c", PREPARE, postgres.url)
        _, line = stack.enter_context(checkout.process("serve", until="Sextant listens on"))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        take_all(browser, line.split()[3], key)
        browser.close()


if __name__ == "__main__":
    main()
