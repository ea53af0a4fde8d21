"""Waiting time of another key's first item while one key has many slow sessions.

    uv run python benchmarks/fairness.py [SESSIONS]

The API with its worker is a separate process, as `sextant serve` starts it. `/healthz` is polled
ten times a second. Memory is the maximum of that process.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2

SLOW_MS = 20_000
#: Sessions created at the same time.
AT_ONCE = 8


@contextlib.contextmanager
def serving(environment: dict[str, str]) -> Iterator[tuple[int, str]]:
    """Start a server on its own database; return its process and address."""
    with subprocess.Popen(
        [Path(sys.executable).with_name("sextant"), "serve"],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            assert running.stderr is not None
            line = next((line for line in running.stderr if "http://" in line), None)
            if line is None:
                raise SystemExit("the server did not start")
            yield running.pid, "http://" + line.partition("http://")[2].split()[0].rstrip(".,")
        finally:
            running.terminate()


def key(name: str, environment: dict[str, str]) -> str:
    """Return the secret of a new key."""
    command = [Path(sys.executable).with_name("sextant"), "keys", "create", name]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def most_memory_mb(pid: int) -> int:
    """Return the peak memory of a process since its start."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))


async def watch_health(url: str, longest: list[float]) -> None:
    """Record the longest response time of `/healthz`."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        while True:
            began = time.perf_counter()
            await client.get("/healthz")
            longest[0] = max(longest[0], time.perf_counter() - began)
            await asyncio.sleep(0.1)


async def first_item(client: httpx2.AsyncClient, session: str) -> None:
    while True:
        if (await client.get(f"/v1/sessions/{session}/responses")).json()["data"]:
            return
        await asyncio.sleep(0.05)


async def start(client: httpx2.AsyncClient, latency_ms: int) -> str:
    options = {"theta": 1, "latency_ms": latency_ms}
    endpoint = {"kind": "scripted", "model": "m", "options": options}
    body = {"bank": "demo", "endpoint": endpoint, "stopping": {"max_items": 5}}
    made = await client.post("/v1/sessions", json=body)
    return str(made.raise_for_status().json()["id"])


async def measure(n_sessions: int, pid: int, url: str, keys: list[str]) -> None:
    """Create the slow sessions, then wait for others' first items; print the times."""
    clients = [
        httpx2.AsyncClient(base_url=url, timeout=60, headers={"Authorization": f"Bearer {secret}"})
        for secret in keys
    ]
    many, other = clients
    longest = [0.0]
    watching = asyncio.create_task(watch_health(url, longest))
    left = iter(range(n_sessions))

    async def create() -> None:
        for _ in left:
            await start(many, SLOW_MS)

    began = time.perf_counter()
    await asyncio.gather(*(create() for _ in range(AT_ONCE)))
    created_s = time.perf_counter() - began
    await asyncio.sleep(3)
    waits = []
    for _ in range(3):
        began = time.perf_counter()
        await first_item(other, await start(other, 0))
        waits.append(round(time.perf_counter() - began, 2))
    watching.cancel()
    running = (await many.get("/v1/sessions?status=running&limit=100")).json()["data"]
    line = {
        "slow": n_sessions,
        "created_a_second": round(n_sessions / created_s, 1),
        "running": len(running),
        "wait_s": waits,
        "healthz_longest_ms": round(1000 * longest[0]),
        "memory_mb": most_memory_mb(pid),
    }
    print(json.dumps(line))
    for client in clients:
        await client.aclose()


def main() -> None:
    n_sessions = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    with tempfile.TemporaryDirectory(prefix="sextant-") as directory:
        Path(directory).chmod(0o755)
        environment = {
            **os.environ,
            "SEXTANT_DATA_DIR": f"{directory}/data",
            "SEXTANT_PORT": "0",
            "SEXTANT_LOG_LEVEL": "warning",
        }
        with serving(environment) as (pid, url):
            keys = [key(name, environment) for name in ("many", "other")]
            asyncio.run(measure(n_sessions, pid, url, keys))


if __name__ == "__main__":
    main()
