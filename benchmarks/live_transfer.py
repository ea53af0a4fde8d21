"""Live sessions of models beyond the reference models: are they flagged, and do intervals hold?

    uv run python benchmarks/live_transfer.py [--data ../shared/data/transfer] [--sessions 100]

Every binary response matrix in the folder (CSV, CSV.gz or Parquet; one row per model) becomes a
bank over REST: the weakest half is sent as a response set, calibrated with a report card and
published. Then models of the strongest tenth are tested over HTTP and answer as recorded. Per
session: does the interval of the predicted score hold the share of the calibrated questions that
the model has right, and do session, report, page and gate report its position?

| kind | test |
|---|---|
| ability | a session for theta: the most informative items |
| score | an ordinary session: chosen for the score, or sampled |

Twice: calibrated with all questions that have a difficulty, and with the default filters.
Intervals are also given as shares of the width of Wilson's for as many random items.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
from numpy.typing import NDArray
from transfer import matrices, random_interval
from typing_extensions import override

from app.cli.servers.server import serving
from app.observability import configure_logging
from app.settings import Settings
from sextant_client import AsyncSextant

#: Concurrent sessions.
AT_ONCE = 8
N_ITEMS = 50
STOPPING = {"se": None, "score_margin": None, "min_items": 20, "max_items": N_ITEMS}
FILTERS = ("least_sd", "greatest_mean", "least_point_biserial", "least_percentile")
KINDS: dict[str, dict[str, Any]] = {
    "ability": {"preset": "ability"},
    "score": {"preset": "score"},
}


class Tested(NamedTuple):
    """Results of one session, and where they were shown."""

    row: int
    score: float
    low: float
    high: float
    standing: str
    cautioned: bool  # : In session, report, page and gate.


class Recorded(BaseHTTPRequestHandler):
    """Models named by their rows, which answer the questions named by their columns."""

    protocol_version = "HTTP/1.1"
    scores: NDArray[np.float64]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        row, asked = int(body["model"]), body["messages"][-1]["content"]
        column = int(asked.split()[1])  # instructions may follow
        said = {"role": "assistant", "content": "yes" if self.scores[row, column] else "no"}
        answer = {
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
            "usage": {"prompt_tokens": 4, "completion_tokens": 1},
        }
        sent = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    @override
    def log_message(self, *_: object) -> None:
        """Suppress the log."""


async def ended(api: AsyncSextant, path: str) -> dict[str, Any]:
    """Return the resource once nothing changes any more."""
    while True:
        found = await api.request("GET", path)
        if found["status"] in {"completed", "failed", "cancelled"}:
            if found["status"] != "completed":
                raise RuntimeError(f"{path}: {found['status']}, {found['failure']}")
            return found
        await asyncio.sleep(0.2)


@asynccontextmanager
async def server(scratch: Path) -> AsyncIterator[AsyncSextant]:
    """Run Sextant with its Postgres and a worker, for the holder of a key."""
    settings = Settings(data_dir=scratch / "data", port=0, log_level="error")
    configure_logging(settings)
    async with serving(settings) as local:
        scopes = ["read", "run", "banks:write"]
        _, secret = await local.services.api_keys.create(name="bench", scopes=scopes)
        async with AsyncSextant(
            local.base_url, secret, http=httpx2.AsyncClient(timeout=None)
        ) as api:
            yield api


async def published(
    api: AsyncSextant, name: str, scores: NDArray[np.float64], *, filters: bool
) -> tuple[str, NDArray[np.int64]]:
    """Create a bank with a version calibrated on some models; return duration and questions."""
    began = time.perf_counter()
    items = [
        {"id": f"q{at}", "prompt": f"Question {at}", "target": "yes", "scorer": "exact"}
        for at in range(scores.shape[1])
    ]
    listed = "\n".join(json.dumps(item) for item in items)
    await api.request("POST", "/v1/banks", json={"name": name})
    await api.request("POST", f"/v1/banks/{name}/imports", json={"items": {"content": listed}})
    header = ",".join(["model", *(item["id"] for item in items)])
    rows = [f"m{at}," + ",".join("01"[int(cell)] for cell in row) for at, row in enumerate(scores)]
    await api.request("POST", "/v1/response-sets", json={"name": name})
    table = {"files": [{"name": "answers.csv", "content": "\n".join([header, *rows])}]}
    await api.request("POST", f"/v1/response-sets/{name}/imports", json=table)
    body: dict[str, Any] = {"response_set": name, "model": "2pl"}
    if not filters:
        body["filters"] = dict.fromkeys(FILTERS)
    made = await api.request("POST", "/v1/calibrations", json=body)
    await ended(api, f"/v1/calibrations/{made['id']}")
    await api.request("POST", f"/v1/calibrations/{made['id']}:publish", json={"bank": name})
    took = f"{time.perf_counter() - began:.0f} s"
    kept: list[dict[str, Any]] = []
    more = True
    while more:
        after = kept[-1]["position"] if kept else -1
        page = await api.request(
            "GET", f"/v1/calibrations/{made['id']}/items?limit=1000&after={after}"
        )
        kept, more = [*kept, *page["data"]], page["has_more"]
    return took, np.array([int(item["key"].removeprefix("q")) for item in kept])


async def session(api: AsyncSextant, bank: str, url: str, row: int, kind: str) -> Tested:
    """Run one session of a model, and a gate on it."""
    endpoint = {"kind": "openai_chat", "base_url": url, "model": str(row)}
    body = {"bank": bank, "endpoint": endpoint, "stopping": STOPPING, **KINDS[kind]}
    made = await api.request("POST", "/v1/sessions", json=body)
    found = await ended(api, f"/v1/sessions/{made['id']}")
    score, standing = found["score"], found["estimate"]["extrapolation"]
    gate = await api.request(
        "POST", "/v1/gates", json={"session_id": found["id"], "metric": "score", "threshold": 0.5}
    )
    caution = standing["caution"]
    report = f"/v1/sessions/{found['id']}/report"
    told = caution is not None and (
        caution in json.dumps(await api.request("GET", report), ensure_ascii=False)
        and escape(caution) in (await api.download(f"{report}?format=html")).decode()
        and gate["extrapolation"]["caution"] == caution
    )
    return Tested(
        row,
        score["value"],
        score["interval"]["lo"],
        score["interval"]["hi"],
        standing["standing"],
        told,
    )


async def measure(
    api: AsyncSextant, bank: str, url: str, scores: NDArray[np.float64], n: int, *, filters: bool
) -> None:
    """Print a line for each kind of session."""
    order = np.argsort(scores.mean(axis=1), kind="stable")
    name = f"{bank}-filtered" if filters else bank
    weakest = scores[order[: len(order) // 2]]
    took, counted = await published(api, name, weakest, filters=filters)
    strongest = order[-max(len(order) // 10, 1) :]
    rng, turns = np.random.default_rng(0), asyncio.Semaphore(AT_ONCE)

    async def one(row: int, kind: str) -> Tested:
        async with turns:
            return await session(api, name, url, row, kind)

    for kind in KINDS:
        rows = [int(strongest[at % len(strongest)]) for at in range(n)]
        tested = await asyncio.gather(*(one(row, kind) for row in rows))
        truth = scores[np.ix_(rows, counted)].mean(axis=1)
        said = np.array([(each.score, each.low, each.high) for each in tested])
        by_lot = np.array([rng.permutation(scores[row, counted])[:N_ITEMS] for row in rows])
        _, low, high = random_interval(by_lot)
        line = {
            "bank": name,
            "test": kind,
            "sessions": n,
            "models": len(strongest),
            "questions": f"{len(counted)} of {scores.shape[1]}",
            "published_after": took,
            "intervals_hold": round(((said[:, 1] <= truth) & (truth <= said[:, 2])).mean(), 3),
            "error": round(np.abs(said[:, 0] - truth).mean(), 4),
            "width": round((said[:, 2] - said[:, 1]).mean() / (high - low).mean(), 2),
            "standing": Counter(each.standing for each in tested),
            "cautioned": sum(each.cautioned for each in tested),
        }
        print(json.dumps(line), flush=True)


async def main(arguments: argparse.Namespace, scratch: Path) -> None:
    """Print a line for each matrix and kind of session."""
    models = ThreadingHTTPServer(("127.0.0.1", 0), Recorded)
    threading.Thread(target=models.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{models.server_port}/v1"
    async with server(scratch) as api:
        for name, scores in matrices(arguments.data, arguments.only):
            if not np.isin(scores, (0.0, 1.0)).all():
                print(f"{name}: its scores are not right and wrong")
                continue
            Recorded.scores = scores
            for filters in (False, True):
                await measure(api, name, url, scores, arguments.sessions, filters=filters)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/transfer"))
    parser.add_argument("--sessions", type=int, default=100, help="of a matrix and kind of test")
    parser.add_argument("--only", nargs="*", default=(), help="names of matrices; all by default")
    with tempfile.TemporaryDirectory(prefix="sextant-") as directory:
        Path(directory).chmod(0o755)
        asyncio.run(main(parser.parse_args(), Path(directory)))
