"""Cost of starting a session, with none and with many waiting sessions of its key.

Starts Postgres with fsync, the API and, with `--workers`, workers, each as a separate process. It
creates sessions one after another, first with an empty queue and then behind `--behind` others,
which are inserted into the tables. The endpoint answers after ten minutes, so only the start is
measured. Machines differ: compare the two rows, and those of the checkout given as `--before`.

    uv run python benchmarks/beginning.py [--workers 1] [--before DIR]
"""

import argparse
import asyncio
import contextlib
import tempfile
import time
from pathlib import Path

import psycopg
from service import PREPARE, ROOT, WARM_UP, Checkout, Service, row, serving

from app.storage.embedded import EmbeddedPostgres
from sextant_client import AsyncSextant

ENDPOINT = {"kind": "scripted", "model": "m", "options": {"theta": 1, "latency_ms": 600_000}}
#: Copies of one existing session, with their jobs.
COPIED = """
    CREATE TEMP TABLE s AS SELECT * FROM sessions ORDER BY id DESC LIMIT 1;
    CREATE TEMP TABLE made AS SELECT 'ses_' || lpad(g::text, 26, '0') AS id, s.status, s.worker_id
        FROM s, generate_series(1, {n}) AS g;
    INSERT INTO sessions SELECT (jsonb_populate_record(s, to_jsonb(made))).* FROM s, made;
    INSERT INTO procrastinate_jobs (queue_name, task_name, priority, queueing_lock, args)
        SELECT 'sessions', 'sextant.run_session', -100, id, jsonb_build_object('resource_id', id)
        FROM made;
    ANALYZE
"""


async def begun(service: Service, endpoint_id: str, sessions: int) -> str:
    """Create sessions one after another; return the time of each."""
    body = {"bank": "demo", "endpoint_id": endpoint_id, "stopping": {"max_items": 20}}
    async with AsyncSextant(service.base_url, service.key) as client:
        before, began = service.cost(), time.perf_counter()
        for _ in range(sessions):
            await client.request("POST", "/v1/sessions", json=body)
        cost, took = service.cost() - before, time.perf_counter() - began
    parts = {"API": cost.api, "Postgres": cost.postgres, "workers": cost.workers}
    told = ", ".join(f"{name} {1000 * part / sessions:.1f}" for name, part in parts.items())
    return f"CPU ms a session: {told}; {sessions / took:.0f} sessions a second"


async def measure(checkout: Checkout, postmaster: int, arguments: argparse.Namespace) -> None:
    """Measure both rows of one checkout."""
    key = checkout.run("-c", PREPARE, checkout.url)
    with serving(checkout, key, postmaster, arguments.workers) as service:
        async with AsyncSextant(service.base_url, key) as client:
            made = await client.request(
                "POST", "/v1/endpoints", json={**ENDPOINT, "name": checkout.name}
            )
        await begun(service, made["id"], WARM_UP)
        row(f"{checkout.name}, nobody waits", await begun(service, made["id"], arguments.sessions))
        conninfo = checkout.url.replace("+psycopg", "")
        with psycopg.connect(conninfo, autocommit=True) as connection:
            connection.execute("SET search_path = public, procrastinate")
            for statement in COPIED.format(n=arguments.behind).split(";"):
                connection.execute(statement.encode())
        name = f"{checkout.name}, behind {arguments.behind}"
        row(name, await begun(service, made["id"], arguments.sessions))


def postmaster_of(postgres: EmbeddedPostgres) -> int:
    """Return its process id."""
    with psycopg.connect(postgres.url.replace("+psycopg", ""), autocommit=True) as connection:
        directory = connection.execute("SHOW data_directory").fetchone()
    assert directory is not None
    return int((Path(directory[0]) / "postmaster.pid").read_text().split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sessions", type=int, default=300)
    parser.add_argument("--behind", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--before", type=Path, help="another checkout, with its .venv")
    arguments = parser.parse_args()
    checkouts = [("now", ROOT)]
    if arguments.before:
        checkouts.insert(0, ("before", arguments.before.resolve()))
    for name, root in checkouts:
        with contextlib.ExitStack() as stack:
            directory = tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp")
            scratch = Path(stack.enter_context(directory))
            scratch.chmod(0o755)
            postgres = stack.enter_context(EmbeddedPostgres(scratch / "data"))
            checkout = Checkout(name, root, postgres.url, scratch)
            asyncio.run(measure(checkout, postmaster_of(postgres), arguments))


if __name__ == "__main__":
    main()
