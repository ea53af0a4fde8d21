"""Cost of a step of a live session, relative to raw inserts and to another checkout.

Starts everything as a user would: Postgres with fsync, the API, workers, and a scripted model
server without delay, each as a separate process. Then it creates many sessions at once while
clients poll them over HTTP. Machines differ, so compare ratios of the same run: items per second to
single-row insert transactions per second of this Postgres, and processor time per item to that of
the checkout given as `--before`, which alternates with this one.

    uv run python benchmarks/service.py [--workers 1 2 4] [--before DIR] [--load 0.7]
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psycopg

from app.cli.commands.demo import scripted_model
from app.storage.embedded import EmbeddedPostgres
from sextant_client import AsyncSextant

ROOT = Path(__file__).parents[1]
#: Seconds between two polls of one client.
POLL_EVERY_S = 0.25
#: Seconds of raw inserts, and bytes of each: about as many as a step stores.
RAW_S, RAW_BYTES = 4.0, 2000
#: Seconds of a run below capacity.
LOADED_S = 30.0
#: Sessions before the measurement, so that everything is loaded and compiled.
WARM_UP = 8
_TICKS = os.sysconf("SC_CLK_TCK")

# Also runs in the other checkout's interpreter, whose modules may have other paths.
PREPARE = """
import asyncio, sys
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from app.storage.migrate import upgrade
try:
    from app.services.banks.service import BankService
except ImportError:
    from app.services.banks import BankService

async def prepare(url):
    database = Database(url)
    await BankService(database).ensure_demo_bank()
    _, secret = await ApiKeyService(database).create(name="bench", scopes=["read", "run"])
    await database.dispose()
    print(secret)

upgrade(sys.argv[1])
asyncio.run(prepare(sys.argv[1]))
"""


@dataclass(frozen=True)
class Checkout:
    """A work tree of Sextant with its environment, on its own database."""

    name: str
    root: Path
    url: str
    scratch: Path

    def run(self, *arguments: str) -> str:
        """Run code in its interpreter; return what it printed."""
        python = self.root / ".venv/bin/python"
        done = subprocess.run(
            [python, *arguments], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    @contextlib.contextmanager
    def process(self, *arguments: str, until: str) -> Iterator[tuple[int, str]]:
        """Run a Sextant process during the block; return its id, and its line with `until`."""
        running = subprocess.Popen(
            [self.root / ".venv/bin/sextant", *arguments],
            cwd=self.root,
            env={
                **os.environ,
                "DATABASE_URL": self.url,
                "SEXTANT_DATA_DIR": str(self.scratch / self.name),
                "SEXTANT_PORT": "0",
                "SEXTANT_LOG_LEVEL": "warning",
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert running.stderr is not None
            line = next((line for line in running.stderr if until in line), None)
            if line is None:
                raise SystemExit(f"{running.args} ended without {until!r}")
            yield running.pid, line
        finally:
            running.terminate()
            running.wait(60)


@dataclass(frozen=True)
class Cost:
    """Processor time of one run in seconds, by process."""

    workers: float
    api: float
    postgres: float

    @property
    def total(self) -> float:
        return self.workers + self.api + self.postgres

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(
            self.workers - other.workers, self.api - other.api, self.postgres - other.postgres
        )


@dataclass(frozen=True)
class Service:
    """A running API with workers."""

    base_url: str
    key: str
    api: int
    workers: Sequence[int]
    postmaster: int

    def cost(self) -> Cost:
        """Return the processor time so far."""
        return Cost(sum(map(cpu_s, self.workers)), cpu_s(self.api), cpu_s(self.postmaster))


@dataclass(frozen=True)
class Run:
    """Result of many concurrent sessions; `cost` in seconds of processor time per item."""

    items_per_s: float
    cost: Cost
    polls_ms: Any


def cpu_s(pid: int) -> float:
    """Return seconds of user and system time of a process and all its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = sum(int(field) for field in fields[11:15]) / _TICKS
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for child in children:
        with contextlib.suppress(FileNotFoundError):
            own += cpu_s(int(child))
    return own


async def raw_inserts_per_s(url: str, connections: int) -> float:
    """Return single-row transactions per second, over so many connections."""
    conninfo = url.replace("+psycopg", "")
    async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as first:
        await first.execute("CREATE TABLE IF NOT EXISTS raw (id bigserial PRIMARY KEY, data text)")
    row, until = "x" * RAW_BYTES, time.perf_counter() + RAW_S

    async def insert() -> int:
        count = 0
        async with await psycopg.AsyncConnection.connect(conninfo, autocommit=True) as connection:
            while time.perf_counter() < until:
                await connection.execute("INSERT INTO raw (data) VALUES (%s)", (row,))
                count += 1
        return count

    return sum(await asyncio.gather(*(insert() for _ in range(connections)))) / RAW_S


@contextlib.asynccontextmanager
async def polling(service: Service, ids: list[str], clients: int) -> AsyncIterator[list[float]]:
    """Poll sessions in turn while the block runs; return the seconds of each poll."""
    taken: list[float] = []
    # All share one connection pool: twenty new TLS contexts would distort the measurement.
    watching = httpx2.AsyncClient(
        base_url=service.base_url, headers={"Authorization": f"Bearer {service.key}"}, timeout=30
    )

    async def poll(delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        turn = 0
        while True:
            turn += 7
            if ids:
                before = time.perf_counter()
                answer = await watching.get(f"/v1/sessions/{ids[turn % len(ids)]}")
                taken.append(time.perf_counter() - before)
                assert answer.status_code == 200, answer.text
            await asyncio.sleep(POLL_EVERY_S)

    polls = [asyncio.create_task(poll(POLL_EVERY_S * nth / clients)) for nth in range(clients)]
    try:
        yield taken
    finally:
        for task in polls:
            task.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        await watching.aclose()


async def ended(client: AsyncSextant, ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the sessions once all are completed."""
    found = []
    for session_id in reversed(ids):
        while (session := await client.request("GET", f"/v1/sessions/{session_id}"))[
            "status"
        ] != "completed":
            assert session["status"] in ("queued", "running"), session
            await asyncio.sleep(POLL_EVERY_S)
        found.append(session)
    return found


def body_of(endpoint_id: str, items: int, seed: int) -> dict[str, Any]:
    """Return the body of a session of so many items."""
    stopping = {"se": None, "min_items": items, "max_items": items}
    one = {"preset": "ability", "concurrency": 1, "seed": seed}
    return {"bank": "demo", "endpoint_id": endpoint_id, "stopping": stopping, **one}


async def at_once(
    service: Service, endpoint_id: str, *, sessions: int, items: int, clients: int
) -> Run:
    """Run all given sessions at the same time."""
    async with AsyncSextant(service.base_url, service.key) as client:
        before, began = service.cost(), time.perf_counter()
        ids: list[str] = []
        async with polling(service, ids, clients) as taken:
            for seed in range(sessions):
                made = await client.request(
                    "POST", "/v1/sessions", json=body_of(endpoint_id, items, seed)
                )
                ids.append(made["id"])
            found = await ended(client, ids)
            took = time.perf_counter() - began
        cost = service.cost() - before
    total = sum(session["progress"]["items"] for session in found)
    assert total == sessions * items, total
    each = Cost(cost.workers / total, cost.api / total, cost.postgres / total)
    return Run(total / took, each, 1000 * np.array(taken))


async def below_capacity(
    service: Service, endpoint_id: str, *, items_per_s: float, items: int, clients: int
) -> Any:
    """Return polls in milliseconds while sessions start at a steady rate of so many items."""
    async with AsyncSextant(service.base_url, service.key) as client:
        ids: list[str] = []
        began, every_s = time.perf_counter(), items / items_per_s
        async with polling(service, ids, clients) as taken:
            while (now := time.perf_counter()) < began + LOADED_S:
                made = await client.request(
                    "POST", "/v1/sessions", json=body_of(endpoint_id, items, len(ids))
                )
                ids.append(made["id"])
                await asyncio.sleep(max(0.0, began + len(ids) * every_s - now))
            polls = 1000 * np.array(taken)
            await ended(client, ids)
    return polls


@contextlib.contextmanager
def serving(checkout: Checkout, key: str, postmaster: int, n_workers: int) -> Iterator[Service]:
    """Run the API and workers of a checkout."""
    with contextlib.ExitStack() as stack:
        api, line = stack.enter_context(
            checkout.process("serve", "--no-worker", until="listens on")
        )
        workers = [
            stack.enter_context(checkout.process("worker", until="takes sessions"))[0]
            for _ in range(n_workers)
        ]
        yield Service(line.split()[3], key, api, workers, postmaster)


async def measure(
    checkout: Checkout, postmaster: int, n_workers: int, arguments: argparse.Namespace, raw: float
) -> Run:
    """Measure one run of a checkout, and print its table."""
    key = checkout.run("-c", PREPARE, checkout.url)
    load = arguments.load if checkout.root == ROOT else None
    sizes = {"items": arguments.items, "clients": arguments.clients}
    with serving(checkout, key, postmaster, n_workers) as service:
        async with scripted_model(0.8, 7) as model_url:
            endpoint = {"kind": "openai_chat", "base_url": model_url, "model": "scripted"}
            async with AsyncSextant(service.base_url, key) as client:
                name = f"bench {time.time_ns()}"
                made = await client.request(
                    "POST", "/v1/endpoints", json={**endpoint, "name": name}
                )
            await at_once(service, made["id"], sessions=WARM_UP, items=10, clients=1)
            run = await at_once(service, made["id"], sessions=arguments.sessions, **sizes)
            loaded = None
            if load is not None:
                rate = load * run.items_per_s
                loaded = await below_capacity(service, made["id"], items_per_s=rate, **sizes)
    cost = run.cost
    row(f"{checkout.name}, {n_workers} worker{'s' * (n_workers > 1)}", "")
    row("  items per second", f"{run.items_per_s:.0f}, {run.items_per_s / raw:.2f} of raw inserts")
    parts = f"workers {1000 * cost.workers:.2f}, API {1000 * cost.api:.2f}"
    row(
        "  CPU ms per item",
        f"{1000 * cost.total:.2f} ({parts}, Postgres {1000 * cost.postgres:.2f})",
    )
    row("  poll p50 / p95 / p99", percentiles(run.polls_ms))
    if loaded is not None:
        row(f"  the same at {load:.0%} of that", percentiles(loaded))
    return run


def percentiles(polls_ms: Any) -> str:
    found = " / ".join(f"{q:.0f}" for q in np.percentile(polls_ms, [50, 95, 99]))
    return f"{found} ms ({polls_ms.size} polls)"


def row(name: str, value: str) -> None:
    print(f"{name:<28}{value}", flush=True)


async def compare(postgres: EmbeddedPostgres, scratch: Path, arguments: argparse.Namespace) -> None:
    admin = postgres.url.replace("+psycopg", "")
    with psycopg.connect(admin, autocommit=True) as connection:
        fsync = (connection.execute("SHOW fsync").fetchone() or ("?",))[0]
        directory = connection.execute("SHOW data_directory").fetchone()
        connection.execute("CREATE DATABASE before")
    assert directory is not None
    postmaster = int((Path(directory[0]) / "postmaster.pid").read_text().split()[0])
    one, sixteen = [await raw_inserts_per_s(postgres.url, n) for n in (1, 16)]
    row("raw inserts per second", f"{one:.0f} by 1 connection, {sixteen:.0f} by 16; fsync {fsync}")
    ours = Checkout("now", ROOT, postgres.url, scratch)
    head, _, options = postgres.url.partition("?")
    url = head.rpartition("/")[0] + "/before" + ("?" + options if options else "")
    for n_workers in arguments.workers:
        runs: dict[str, list[Run]] = {"now": [], "before": []}
        for _ in range(arguments.rounds):
            if arguments.before:
                theirs = Checkout("before", arguments.before.resolve(), url, scratch)
                runs["before"].append(await measure(theirs, postmaster, n_workers, arguments, one))
            runs["now"].append(await measure(ours, postmaster, n_workers, arguments, one))
        for what in ("total", "workers", "api", "postgres") if arguments.before else ():
            mean = {
                name: np.mean([getattr(run.cost, what) for run in found])
                for name, found in runs.items()
            }
            row(f"  CPU per item, {what}", f"{mean['now'] / mean['before']:.2f} of before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=1, help="turns of each checkout")
    parser.add_argument("--before", type=Path, help="another checkout, with its .venv")
    parser.add_argument("--load", type=float, help="share of our throughput to poll at, too")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp") as scratch:
        Path(scratch).chmod(0o755)
        with EmbeddedPostgres(Path(scratch) / "data") as postgres:
            asyncio.run(compare(postgres, Path(scratch), arguments))


if __name__ == "__main__":
    main()
