"""Ten million stored answers compared with ten thousand, and the database cost of an item.

Two databases on one embedded Postgres: a few sessions are run, then copied by SQL; those of the
large one are older than any that both have, so that both return the same rows. Each call goes to
both in turn over HTTP; compare the ratio of their medians. Then a worker runs sessions on the large
one, and Postgres reports the cost of an item: statements, commits, write-ahead log, bytes.

    uv run python benchmarks/scale.py [--answers 10000000] [--folder DIR]

Takes some 10 GB below DIR, which is emptied at the end.
"""

# ruff: noqa: E402 (the tests are no package that is installed: the path below leads to them)
import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import psycopg

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from app.observability import configure_logging
from app.records.endpoints import EndpointSettings
from app.services.api_keys import ApiKeyService
from app.services.endpoints.specs import EndpointSpec
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from app.worker.loop import running_worker
from tests.services.sessions import opened, spec, until

#: Sessions that are really run, and items of each; all others are copies of them.
ORIGINALS, ITEMS = 25, 40
#: Copies that the small database has, too.
SHARED = 9
CALLS = 41
#: Live sessions whose cost is measured.
LIVE = 60

_ID = "lpad(to_hex(k * 1000 + o.nth), 26, '0')"
COPY = f"""
    SET session_replication_role = replica;
    CREATE TEMP TABLE o AS SELECT s.*, row_number() OVER (ORDER BY id) AS nth FROM sessions s
        WHERE mode = 'live';
    CREATE TEMP TABLE c AS SELECT k, o.id AS was, 'ses_' || {_ID} AS id,
        (({{most}} - k) * 10 + 60) * interval '1 s' AS ago, o.nth
        FROM generate_series({{least}}, {{most}}) k, o;
    INSERT INTO sessions ({{sessions}})
        SELECT {{sessions_from}} FROM c JOIN o ON o.id = c.was ORDER BY c.id;
    INSERT INTO administrations ({{rows}})
        SELECT {{rows_from}} FROM generate_series({{least}}, {{most}}) k, o
        JOIN administrations a ON a.session_id = o.id;
    INSERT INTO session_events ({{events}})
        SELECT {{events_from}} FROM generate_series({{least}}, {{most}}) k, o
        JOIN session_events a ON a.session_id = o.id WHERE a.seq <= 2;
    INSERT INTO audit (id, at, project_id, key_id, action, path, request_id, address)
        SELECT 'aud_' || lpad(to_hex(c.k * 1000 + c.nth), 26, '0'), now() - c.ago, o.project_id,
            NULL, 'create_session', '/v1/sessions', NULL, '127.0.0.1' FROM c JOIN o ON o.id = c.was
            ORDER BY 1;
"""


def copy(url: str, least: int, most: int) -> None:
    """Copy the originals with numbers; a higher number is younger."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:

        def columns(table: str, **changed: str) -> tuple[str, str]:
            names = [
                row[0]
                for row in connection.execute(
                    "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass"
                    " AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
                    [table],
                )
            ]
            source = "o" if table == "sessions" else "a"
            return ", ".join(names), ", ".join(changed.get(n, f"{source}.{n}") for n in names)

        times = {name: f"o.{name} - c.ago" for name in ("created_at", "started_at", "finished_at")}
        sessions, sessions_from = columns("sessions", id="c.id", **times)
        rows, rows_from = columns("administrations", session_id=f"'ses_' || {_ID}")
        events, events_from = columns("session_events", session_id=f"'ses_' || {_ID}")
        statements = COPY.format(
            least=least, most=most, sessions=sessions, sessions_from=sessions_from, rows=rows,
            rows_from=rows_from, events=events, events_from=events_from,
        )  # fmt: skip
        for statement in statements.split(";\n"):
            if statement.strip():
                began = time.monotonic()
                connection.execute(statement)
                took = time.monotonic() - began
                if took > 5:
                    print(f"  {' '.join(statement.split())[:40]}: {took:.0f} s", file=sys.stderr)
        connection.execute("VACUUM ANALYZE")


async def originals(url: str, folder: Path) -> str:
    """Run the sessions to copy; return a key for all."""
    database = Database(url)
    settings = Settings(database_url=url, data_dir=folder, log_level="warning")
    configure_logging(settings)
    async with opened(settings, database) as services, running_worker(services):
        made = []
        for nth in range(ORIGINALS):
            endpoint = EndpointSettings(
                kind="scripted",
                model=f"m{nth}",
                name=f"model-{nth}",
                options={"theta": nth / 10 - 1.2, "seed": nth},
            )
            saved = await services.endpoints.create(EndpointSpec(settings=endpoint))
            stopping = {"score_margin": None, "min_items": ITEMS, "max_items": ITEMS}
            made.append(
                await services.sessions.create(
                    spec(
                        endpoint=None,
                        endpoint_id=saved.id,
                        plan={"stopping": stopping, "concurrency": 1},
                        seed=nth,
                    )
                )
            )
        for record in made:
            await until(services, record.id)
    _, secret = await ApiKeyService(database).create(
        name="bench", scopes=["read", "run", "banks:write", "admin"]
    )
    await database.dispose()
    return str(secret)


@contextlib.contextmanager
def process(url: str, folder: Path, *words: str, until: str) -> Iterator[str]:
    """Start a Sextant process; return its line that contains `until`."""
    env = {
        **os.environ,
        "DATABASE_URL": url.replace("+psycopg", ""),
        "SEXTANT_DATA_DIR": str(folder),
        "SEXTANT_LOG_LEVEL": "warning",
        "OPENBLAS_NUM_THREADS": "1",
    }
    program = Path(sys.executable).with_name("sextant")
    running = subprocess.Popen([program, *words], env=env, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        yield next(line for line in running.stderr if until in line)
    finally:
        running.terminate()
        running.wait(60)


class Side:
    """One of the two databases, and the times of its calls."""

    def __init__(self, line: str, key: str) -> None:
        found = re.search(r"http://\S+", line)
        assert found is not None
        self.http = httpx2.Client(
            base_url=found[0], headers={"Authorization": f"Bearer {key}"}, timeout=600
        )
        self.ms: dict[str, list[float]] = {}
        self.shown: dict[str, Any] = {}

    def call(self, name: str, method: str, path: str, body: Any = None) -> Any:
        """Make a call whose time counts."""
        began = time.perf_counter()
        answer = self.http.request(method, path, json=body)
        self.ms.setdefault(name, []).append(1000 * (time.perf_counter() - began))
        answer.raise_for_status()
        self.shown[name] = answer.json()
        return answer.json()


def compare(small: Side, large: Side, largest: str) -> None:
    """Make each call on both in turn, and print a table."""
    first = small.http.get("/v1/sessions?limit=1&status=completed").json()["data"][0]
    endpoint, bank = first["endpoint"]["id"], first["bank"]["id"]
    paths = {
        "session": f"/v1/sessions/{largest}",
        "its answers": f"/v1/sessions/{largest}/responses",
        "its events": f"/v1/sessions/{largest}/events",
        "sessions": "/v1/sessions",
        "sessions, 2nd page": f"/v1/sessions?after={largest}",
        "sessions, completed": "/v1/sessions?status=completed",
        "sessions, failed": "/v1/sessions?status=failed",
        "sessions, running": "/v1/sessions?status=running",
        "sessions of an endpoint": f"/v1/sessions?limit=5&endpoint_id={endpoint}",
        "sessions of a bank": f"/v1/sessions?bank_id={bank}",
        "sessions, waiting, of a bank": f"/v1/sessions?bank_id={bank}&status=waiting",
        "leaderboard": f"/v1/banks/{bank}/leaderboard",
        "items of the bank": f"/v1/banks/{bank}/items?limit=100",
        "bank": f"/v1/banks/{bank}",
        "audit": "/v1/audit",
        "audit of an action": "/v1/audit?action=create_endpoint",
        "audit of a resource": f"/v1/audit?resource={endpoint}",
    }
    for nth in range(CALLS):
        for name, path in paths.items():
            if nth > 1 and large.ms[name][-1] > 5000:
                continue
            for side in (small, large) if nth % 2 else (large, small):
                side.call(name, "GET", path)
    stopping = {"score_margin": None, "min_items": CALLS, "max_items": CALLS}
    body = {"bank": "demo", "mode": "manual", "stopping": stopping, "seed": 1}
    at = [(side, side.call("start by hand", "POST", "/v1/sessions", body)["id"])
          for side in (small, large)]  # fmt: skip
    for nth in range(CALLS - 1):
        for side, manual in at if nth % 2 else at[::-1]:
            path = f"/v1/sessions/{manual}"
            token = side.call("next item", "GET", f"{path}/next-item")["step_token"]
            answer = {"step_token": token, "response": "A"}
            side.call("step by hand", "POST", f"{path}/responses", answer)
    print(f"{'':32}{'small ms':>10}{'large ms':>10}{'ratio':>8}  same rows")
    for name in small.ms:
        a, b = statistics.median(small.ms[name]), statistics.median(large.ms[name])
        same = "" if name in {"start by hand", "next item", "step by hand"} else _rows(
            small.shown[name]) == _rows(large.shown[name])  # fmt: skip
        print(f"{name:32}{a:10.1f}{b:10.1f}{b / a:8.2f}  {same}")


def _rows(shown: Any) -> Any:
    entries = shown.get("entries") or shown.get("data") or [shown]
    return [entry.get("id") or entry.get("step") or entry.get("seq") or 0 for entry in entries]


def size_of(file: Path) -> int:
    """Return the size in bytes."""
    return file.stat().st_size


async def cost(url: str, folder: Path, log: Path) -> None:
    """Return the Postgres cost of an item of a live session."""
    database = Database(url)
    conninfo = url.replace("+psycopg", "")
    stopping = {"score_margin": None, "min_items": ITEMS, "max_items": ITEMS}
    async with opened(Settings(database_url=url, data_dir=folder), database) as services:
        with psycopg.connect(conninfo, autocommit=True) as connection:

            def told(query: str) -> Any:
                return connection.execute(query).fetchone()

            name = told("SELECT current_database()")[0]
            connection.execute(f'ALTER DATABASE "{name}" SET log_min_duration_statement = 0')
            counters = (
                "SELECT pg_current_wal_lsn() - '0/0', xact_commit, tup_inserted, tup_updated"
                f" FROM pg_stat_database WHERE datname = '{name}'"
            )
            made = [
                await services.sessions.create(
                    spec(
                        endpoint=EndpointSpec(
                            settings=EndpointSettings(
                                kind="scripted",
                                model="m",
                                options={"theta": 0.1, "latency_ms": 300},
                            )
                        ),
                        plan={"stopping": stopping, "concurrency": 1},
                        seed=nth,
                    )
                )
                for nth in range(LIVE)
            ]
            connection.execute("CHECKPOINT")
            before, seen = told(counters), await asyncio.to_thread(size_of, log)
            with process(url, folder, "worker", until="takes sessions"):
                most = waiting = samples = 0
                while (await services.sessions.get(made[-1].id)).status != "completed":
                    samples += 1
                    held = told(
                        "SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM"
                        f" pg_stat_activity WHERE datname = '{name}' AND pid <> pg_backend_pid()"
                    )
                    most, waiting = max(most, held[0]), waiting + held[1]
                    await asyncio.sleep(0.2)
                for each in made:
                    await until(services, each.id)
                await asyncio.sleep(1.5)
                after = told(counters)
            items = LIVE * ITEMS
            ids = [each.id for each in made]
            said = (await asyncio.to_thread(log.read_bytes))[seen:].decode(errors="replace")
            statements = Counter(
                " ".join(found.split())[:60]
                for found in re.findall(
                    r"duration: [\d.]+ ms +(?:statement|execute [^:]*): (.{0,200})", said, re.S
                )
            )
            sizes = {
                table: connection.execute(
                    f"SELECT sum(pg_column_size(t)) FROM {table} t WHERE {key} = ANY(%s)", [ids]
                ).fetchone()[0]
                for table, key in (
                    ("administrations", "session_id"), ("session_events", "session_id"),
                    ("sessions", "id"),
                )
            }  # fmt: skip
    await database.dispose()
    wal, commits, inserted, updated = (
        float(b - a) / items for a, b in zip(before, after, strict=True)
    )
    print(f"\n{LIVE} live sessions of {ITEMS} items, one worker; of one item:")
    print(f"  statements {statements.total() / items:.2f}, commits {commits:.2f}")
    print(f"  rows inserted {inserted:.2f}, updated {updated:.2f}; log {wal:.0f} bytes")
    print("  stored bytes: " + ", ".join(f"{t} {n / items:.0f}" for t, n in sizes.items()))
    print(f"  connections {most} at most, {waiting} waits for locks in {samples} looks")
    for statement, n in statements.most_common(12):
        print(f"    {n / items:6.3f}  {statement}")


def main() -> None:
    """Build, compare, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--answers", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, help="where there is room")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="sx-scale-", dir=given.folder))
    folder.chmod(0o755)
    try:
        with EmbeddedPostgres(folder, durable=False) as postgres:
            _measure(postgres, folder, given.answers)
    finally:
        shutil.rmtree(folder)


def _measure(postgres: EmbeddedPostgres, folder: Path, answers: int) -> None:
    upgrade(postgres.url)
    key = asyncio.run(originals(postgres.url, folder))
    small = postgres.url.replace("/sextant?", "/small?")
    server = postgres.url.replace("+psycopg", "").replace("/sextant?", "/postgres?")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE DATABASE small TEMPLATE sextant")
    most = answers // (ORIGINALS * ITEMS)
    copy(small, most - SHARED + 1, most)
    copy(postgres.url, 1, most)
    with psycopg.connect(postgres.url.replace("+psycopg", "")) as connection:
        size, rows = connection.execute(
            "SELECT pg_size_pretty(pg_database_size(current_database())),"
            " (SELECT count(*) FROM administrations)"
        ).fetchone() or ("", 0)
        print(f"large: {rows} answers, {size}")
    words = ("serve", "--no-worker", "--port", "0")
    with (
        process(small, folder, *words, until="listens on") as one,
        process(postgres.url, folder, *words, until="listens on") as other,
    ):
        newest = f"ses_{most * 1000 + ORIGINALS:026x}"
        compare(Side(one, key), Side(other, key), newest)
    log = next(folder.rglob("server.log"))
    asyncio.run(cost(postgres.url, folder, log))
    print(json.dumps({"answers": rows}))


if __name__ == "__main__":
    main()
