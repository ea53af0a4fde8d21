"""Throughput of one worker, and how fast the API answers meanwhile.

Starts everything as a user would: Postgres, the API, one worker, and a scripted model server that
answers at once, each a process of its own. Then creates many sessions at the same time while
clients poll them over HTTP, and prints items per second and the polls' latencies.

    uv run python benchmarks/service.py [--sessions 100] [--items 40] [--clients 20]
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import numpy as np

from app.cli.client import ApiClient
from app.cli.demo import scripted_model
from app.services.api_keys import ApiKeyService
from app.services.banks.service import BankService
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade

ROOT = Path(__file__).parents[1]
#: Seconds between two polls of one client.
POLL_EVERY_S = 0.25


@contextlib.contextmanager
def process(*arguments: str, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A Sextant process that is stopped at the end."""
    running = subprocess.Popen(
        [str(Path(sys.executable).with_name("sextant")), *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield running
    finally:
        running.terminate()
        running.wait(30)


def wait_for_line(running: subprocess.Popen[str], wanted: str) -> str:
    """The first line of a process's stderr that holds `wanted`."""
    assert running.stderr is not None
    for line in running.stderr:
        if wanted in line:
            return line
    raise SystemExit(f"{running.args} ended without {wanted!r}")


async def prepare(url: str) -> str:
    """Migrate, install the demo bank, make an API key."""
    await asyncio.to_thread(upgrade, url)
    database = Database(url)
    try:
        await BankService(database).ensure_demo_bank()
        _, secret = await ApiKeyService(database).create(name="bench", scopes=["read", "run"])
    finally:
        await database.dispose()
    return secret


async def poll(
    client: httpx2.AsyncClient, ids: list[str], done: asyncio.Event, *, delay_s: float
) -> list[float]:
    """Poll sessions round and round, beginning after a delay; seconds that each poll took."""
    await asyncio.sleep(delay_s)
    taken: list[float] = []
    turn = 0
    while not done.is_set():
        session_id = ids[turn % len(ids)]
        turn += 7
        before = time.perf_counter()
        answer = await client.get(f"/v1/sessions/{session_id}")
        taken.append(time.perf_counter() - before)
        assert answer.status_code == 200, answer.text
        await asyncio.sleep(POLL_EVERY_S)
    return taken


async def measure(
    base_url: str, key: str, model_url: str, *, sessions: int, items: int, clients: int
) -> None:
    """Create the sessions, poll until all have ended, print the table."""
    body = {
        "bank": "demo",
        "endpoint": {"kind": "openai_chat", "base_url": model_url, "model": "scripted"},
        "stopping": {"se": None, "min_items": items, "max_items": items},
    }
    async with ApiClient(base_url, key) as client:
        endpoint = await client.post("/v1/endpoints", {**body.pop("endpoint"), "name": "bench"})
        body["endpoint_id"] = endpoint["id"]
        began = time.perf_counter()
        created = [
            await client.post("/v1/sessions", {**body, "seed": seed}) for seed in range(sessions)
        ]
        ids = [session["id"] for session in created]
        done = asyncio.Event()
        # One connection pool for all: making twenty TLS contexts would stop the clock meanwhile.
        watching = httpx2.AsyncClient(
            base_url=base_url, headers={"Authorization": f"Bearer {key}"}, timeout=30
        )
        polls = [
            asyncio.create_task(poll(watching, ids, done, delay_s=POLL_EVERY_S * nth / clients))
            for nth in range(clients)
        ]
        for session_id in reversed(ids):
            while (  # noqa: ASYNC110 (it is another process that is watched)
                await client.get(f"/v1/sessions/{session_id}")
            )["status"] != "completed":
                await asyncio.sleep(POLL_EVERY_S)
        took = time.perf_counter() - began
        done.set()
        latencies = 1000 * np.concatenate([await task for task in polls])
        await watching.aclose()
        ended = [await client.get(f"/v1/sessions/{session_id}") for session_id in ids]
    total = sum(session["progress"]["items"] for session in ended)
    statuses = {session["status"] for session in ended}
    rows = [
        ("sessions at once", f"{sessions}"),
        ("items asked and scored", f"{total} ({', '.join(sorted(statuses))})"),
        ("wall clock", f"{took:.1f} s"),
        ("items per second", f"{total / took:.0f}"),
        ("polls", f"{latencies.size} by {clients} clients, every {POLL_EVERY_S:g} s"),
        (
            "poll p50 / p95 / p99",
            " / ".join(f"{q:.0f}" for q in np.percentile(latencies, [50, 95, 99])) + " ms",
        ),
    ]
    for name, value in rows:
        print(f"{name:<26}{value}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--clients", type=int, default=20)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp") as scratch:
        Path(scratch).chmod(0o755)
        with EmbeddedPostgres(Path(scratch) / "data") as postgres:
            key = asyncio.run(prepare(postgres.url))
            environment = {
                "DATABASE_URL": postgres.url,
                "SEXTANT_DATA_DIR": str(Path(scratch) / "keys"),
                "SEXTANT_PORT": "0",
                "SEXTANT_LOG_LEVEL": "warning",
            }

            async def run(base_url: str) -> None:
                async with scripted_model(0.8, 7) as model_url:
                    await measure(
                        base_url,
                        key,
                        model_url,
                        sessions=arguments.sessions,
                        items=arguments.items,
                        clients=arguments.clients,
                    )

            with (
                process("serve", "--no-worker", environment=environment) as api,
                process("worker", environment=environment) as worker,
            ):
                line = wait_for_line(api, "listens on")
                wait_for_line(worker, "takes sessions")
                asyncio.run(run(line.split()[3]))


if __name__ == "__main__":
    main()
