"""Cost of open event streams for other clients, relative to no stream in the same run.

A server process and a worker process on an embedded Postgres with fsync; another process holds the
streams. Three rounds make the same calls (`GET /v1/sessions/ID`, one by one): without streams, with
many over as many sessions, and again without. Then sessions run with and without watchers on one of
them: the worker's cost per item, and the delay from storing each step to its arrival in a stream.
Last, Postgres is restarted under the streams, and every stored event must have been sent once.

    uv run python benchmarks/streams.py [--streams 500] [--watchers 200]
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psycopg
from service import PREPARE, ROOT, Checkout, Service, cpu_s, row, serving

from app.cli.commands.demo import scripted_model
from app.storage.embedded import EmbeddedPostgres
from sextant_client import AsyncSextant

#: Calls of one round.
CALLS = 400
#: Items of a watched session, and the model's time for each.
ITEMS, LATENCY_S = 40, 0.3
#: Time limit of sessions in seconds.
LIMIT_S = 120.0


async def hold(base_url: str, key: str, ids: Sequence[str]) -> None:
    """Keep a stream open for each id; print a line when all are, and at the end their events."""
    clients = [
        httpx2.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {key}", "Accept": "text/event-stream"},
            timeout=None,
            limits=httpx2.Limits(max_connections=None),
        )
    ]
    opened, delays, seqs = 0, [], [[] for _ in ids]  # type: ignore[var-annotated]
    is_open = asyncio.Event()

    async def one(nth: int) -> None:
        nonlocal opened
        last, counted = 0, False
        while True:
            headers = {"Last-Event-ID": str(last)}
            try:
                path = f"/v1/sessions/{ids[nth]}/events"
                async with clients[0].stream("GET", path, headers=headers) as stream:
                    if stream.status_code == 204:
                        return
                    if stream.status_code != 200:
                        await asyncio.sleep(0.5)
                        continue
                    if not counted:
                        opened, counted = opened + 1, True
                        if opened == len(ids):
                            is_open.set()
                    rest = b""
                    async for part in stream.aiter_raw():
                        *frames, rest = (rest + part).split(b"\n\n")
                        for frame in frames:
                            if (found := frame.rpartition(b"\nid: ")[2]).isdigit():
                                last = int(found)
                                seqs[nth].append(last)
                                delays.append((nth, last, time.time()))
            except httpx2.HTTPError:
                await asyncio.sleep(0.5)

    tasks = [asyncio.create_task(one(nth)) for nth in range(len(ids))]
    await is_open.wait()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    print(json.dumps({"seqs": seqs, "told": delays}), flush=True)


class Streams:
    """Streams held by another process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        #: Time at which the last of them was open.
        self.opened_at = 0.0
        self.told: list[tuple[int, int, float]] = []
        self.seqs: list[list[int]] = []

    def end(self) -> None:
        said, _ = self._process.communicate("\n")
        found = json.loads(said.splitlines()[-1])
        self.told, self.seqs = found["told"], found["seqs"]


@contextlib.contextmanager
def streams(service: Service, ids: Sequence[str]) -> Iterator[Streams]:
    """Open streams of these sessions; their events are known after the block."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--hold", service.base_url, service.key, ",".join(ids)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    held = Streams(process)
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "open"
    held.opened_at = time.time()
    yield held
    held.end()


async def calls_ms(service: Service, session_id: str) -> list[float]:
    """Return durations of calls made one after another, in milliseconds."""
    taken = []
    headers = {"Authorization": f"Bearer {service.key}"}
    async with httpx2.AsyncClient(base_url=service.base_url, headers=headers) as client:
        for _ in range(CALLS):
            before = time.perf_counter()
            (await client.get(f"/v1/sessions/{session_id}")).raise_for_status()
            taken.append(1000 * (time.perf_counter() - before))
            await asyncio.sleep(0.005)
    return taken


async def started(client: AsyncSextant, model_url: str, seed: int, *, mode: str = "live") -> str:
    """Return the id of a new session."""
    stopping = {"se": None, "min_items": ITEMS, "max_items": ITEMS}
    body: dict[str, Any] = {"bank": "demo", "stopping": stopping, "seed": seed, "mode": mode}
    body |= {"preset": "ability", "concurrency": 1}
    if mode == "live":
        body["endpoint"] = {"kind": "openai_chat", "base_url": model_url, "model": "scripted"}
    return str((await client.request("POST", "/v1/sessions", json=body))["id"])


async def ended(client: AsyncSextant, session_id: str) -> None:
    until = time.monotonic() + LIMIT_S
    while (found := await client.request("GET", f"/v1/sessions/{session_id}"))[
        "status"
    ] != "completed":
        assert time.monotonic() < until, found
        await asyncio.sleep(0.2)


def stored_at(url: str, session_id: str) -> dict[int, datetime]:
    """Return when each event was stored, on this machine's clock."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(
            "SELECT seq, created_at FROM session_events WHERE session_id = %s", (session_id,)
        )
        return dict(found.fetchall())


async def compare(postgres: EmbeddedPostgres, scratch: Path, arguments: argparse.Namespace) -> None:
    checkout = Checkout("ours", ROOT, postgres.url, scratch)
    key = checkout.run("-c", PREPARE, checkout.url)
    postmaster = 1
    with serving(checkout, key, postmaster, 1) as service:
        async with (
            scripted_model(0.8, 7, latency_s=LATENCY_S) as model_url,
            AsyncSextant(service.base_url, service.key) as client,
        ):
            quiet = [
                await started(client, model_url, seed, mode="manual")
                for seed in range(arguments.streams)
            ]
            await calls_ms(service, quiet[0])
            before = await calls_ms(service, quiet[0])
            spent, since = cpu_s(service.api), time.perf_counter()
            with streams(service, quiet):
                spent, since = cpu_s(service.api), time.perf_counter()
                beside = await calls_ms(service, quiet[0])
                spent = (cpu_s(service.api) - spent) / (time.perf_counter() - since)
            after = await calls_ms(service, quiet[0])
            base = statistics.median(before + after)
            median = statistics.median(beside)
            row("calls without streams", f"median {base:.2f} ms")
            row(
                f"beside {arguments.streams} streams",
                f"median {median:.2f} ms, {median / base:.2f} times; API {spent:.0%} of a core",
            )

            await ended(client, await started(client, model_url, 1))
            spends = []
            watched = ""
            for turn in range(4):
                used = cpu_s(service.workers[0])
                watched = await started(client, model_url, 2 + turn)
                ids = [watched] * (arguments.watchers if turn % 2 else 1)
                with streams(service, ids) as held:
                    await ended(client, watched)
                    await asyncio.sleep(1)
                spends.append((turn % 2, 1000 * (cpu_s(service.workers[0]) - used) / ITEMS))
                if turn % 2:
                    stored = stored_at(postgres.url, watched)
                    # Events stored before a stream was open waited for the reader, not the server.
                    late = [
                        1000 * (at - since)
                        for _, seq, at in held.told
                        if (since := stored[seq].astimezone(UTC).timestamp()) > held.opened_at
                    ]
                    wrong = [seqs for seqs in held.seqs if seqs != sorted(stored)]
                    assert not wrong, f"{len(wrong)} streams: {wrong[0]}, not {sorted(stored)}"
            for many, name in ((0, "1 watcher"), (1, f"{arguments.watchers} watchers")):
                each = statistics.mean(ms for turn, ms in spends if turn == many)
                row(f"worker, {name}", f"{each:.2f} CPU ms an item")
            p50, p95, most = np.percentile(late, [50, 95, 100])
            row("stored to told", f"median {p50:.0f}, 95 % {p95:.0f}, longest {most:.0f} ms")

            watched = await started(client, model_url, 99)
            with streams(service, [watched] * 20) as held:
                await asyncio.sleep(1)
                await asyncio.to_thread(postgres.stop)
                await asyncio.sleep(1)
                await asyncio.to_thread(postgres.start)
                await asyncio.sleep(2)
                with contextlib.suppress(Exception):
                    await ended(client, watched)
                await asyncio.sleep(2)
            numbers = sorted(stored_at(postgres.url, watched))
            whole = sum(seqs == numbers for seqs in held.seqs)
            row("Postgres restarted", f"{whole} of 20 streams told all {len(numbers)} events once")


def main() -> None:
    if sys.argv[1:2] == ["--hold"]:
        base_url, key, ids = sys.argv[2:]
        asyncio.run(hold(base_url, key, ids.split(",")))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--watchers", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sx-streams-") as name:
        scratch = Path(name)
        scratch.chmod(0o755)
        with EmbeddedPostgres(scratch / "postgres") as postgres:
            asyncio.run(compare(postgres, scratch, arguments))


if __name__ == "__main__":
    main()
