"""Effects of hostile requests on a server: its response times meanwhile, and its memory.

Starts `sextant serve` with its embedded Postgres as a user would, behind nginx with the
configuration of docker-compose.yml, then runs one attack after another with several clients each. A
separate process polls `/healthz` and sums the memory (PSS) of the server and its children without
Postgres. During every attack the longest response of `/healthz` must stay below 1 s and the memory
below 1.5 GB. With `--bare` there is no proxy; then `/healthz` must be below 1 s again after the
attack. The probe also polls an idle server, and reports for how long of the longest response the
event loop had no core: where either is long, the machine is busy and the figure means little.

    uv run python benchmarks/attacks.py [--only NAME ...] [--seconds 20] [--bare] [--list]

An attack is a coroutine function in `ATTACKS`: add one with `@attack("name")`.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.bombs import BOMBS, Bomb
from benchmarks.hostile_connections import CONNECTIONS
from benchmarks.hostile_replies import REPLIES
from benchmarks.hostile_requests import REQUESTS
from benchmarks.moved_endpoints import MOVES
from benchmarks.watching import Seen, watching

HEALTH_MS = 1000.0
MEMORY_MB = 1536.0
CATASTROPHE = r"(x+x+)+y"
WIDE = {"pattern": "[!-\uffff]" * 399, "ignore_case": True}
BIG = "big"
N_BIG = 50_000

Client = httpx2.AsyncClient
Run = Callable[[Client], Awaitable[object]]


@dataclass(frozen=True)
class Attack:
    name: str
    run: Run
    clients: int


ATTACKS: list[Attack] = []


def attack(name: str, *, clients: int = 4) -> Callable[[Run], Run]:
    """Register an attack that this number of clients run at the same time."""

    def register(run: Run) -> Run:
        ATTACKS.append(Attack(name, run, clients))
        return run

    return register


async def post(client: Client, path: str, body: Any) -> httpx2.Response:
    return await client.post(f"/v1{path}", json=body)


async def raw(client: Client, path: str, body: bytes, kind: str = "application/json") -> object:
    return await client.post(f"/v1{path}", content=body, headers={"content-type": kind})


def trial(name: str, answer: str, target: list[str] | None = None, **params: Any) -> Run:
    body = {"item": {"prompt": "?", "target": target or ["a"]}, "answer": answer, "params": params}

    async def run(client: Client) -> object:
        return await post(client, f"/scorers/{name}:test", body)

    return run


def add(name: str, run: Run, clients: int = 4) -> None:
    attack(name, clients=clients)(run)


# --- patterns ------------------------------------------------------------------------------------

add("pattern: catastrophic search", trial("pattern", "x" * 60, pattern=CATASTROPHE, timeout_s=60))
add("pattern: slow to compile", trial("pattern", "a", **WIDE))
add("pattern: nested repeats", trial("pattern", "a" * 5000, pattern="((a{0,99}){0,99}){0,99}b"))
add("pattern: backreferences", trial("pattern", "a" * 20_000, pattern=r"(a*)*\1\1\1b"))
add("pattern: lookbehinds", trial("pattern", "a" * 20_000, pattern="(?<=" + "a" * 900 + ")+b"))
add("pattern: many groups", trial("pattern", "a" * 99, pattern="(a|" * 90 + "b" + ")*" * 90))
add("pattern: quadratic", trial("pattern", " " * 20_000, pattern=r"\s+$x"))


@attack("pattern: clients that hang up", clients=8)
async def hang_up(client: Client) -> None:
    with contextlib.suppress(httpx2.TimeoutException):
        body = {"item": {"target": ["a"]}, "answer": "x" * 60}
        body["params"] = {"pattern": CATASTROPHE, "timeout_s": 60}
        await client.post("/v1/scorers/pattern:test", json=body, timeout=1.0)


async def bank_of(client: Client, target: str, **params: Any) -> str:
    """Create a bank of one hostile item; return its name."""
    name = f"hostile-{time.monotonic_ns()}"
    scorer = {"name": "pattern", "params": params}
    await post(client, "/banks", {"name": name, "default_scorer": scorer})
    item = {"key": "q", "prompt": "?", "target": target}
    await post(client, f"/banks/{name}/items", item)
    await post(client, f"/banks/{name}/versions", {"parameters": [{"key": "q", "a": 1, "b": 0}]})
    return name


async def scripted(client: Client, bank: str, **design: Any) -> httpx2.Response:
    endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 50}}
    return await post(client, "/sessions", {"bank": bank, "endpoint": endpoint, **design})


@attack("session: scripted answers to a catastrophic pattern")
async def scripted_pattern(client: Client) -> None:
    await scripted(client, await bank_of(client, "x" * 60, pattern=CATASTROPHE, timeout_s=60))


@attack("session: manual answer to a catastrophic pattern")
async def manual_pattern(client: Client) -> None:
    bank = await bank_of(client, "a", pattern=CATASTROPHE, timeout_s=20)
    made = await post(client, "/sessions", {"bank": bank, "mode": "manual"})
    session = made.json()["id"]
    step = (await client.get(f"/v1/sessions/{session}/next-item")).json()
    answer = {"step_token": step["step_token"], "response": "x" * 60}
    await post(client, f"/sessions/{session}/responses", answer)


@attack("bank: default scorer slow to compile")
async def wide_bank(client: Client) -> None:
    name = f"wide-{time.monotonic_ns()}"
    await post(
        client, "/banks", {"name": name, "default_scorer": {"name": "pattern", "params": WIDE}}
    )


@attack("items: a thousand slow patterns")
async def many_patterns(client: Client) -> object:
    bank = await bank_of(client, "a", pattern="a")
    scorer = {"name": "pattern", "params": WIDE}
    lines = [
        json.dumps({"key": f"k{i}", "prompt": "?", "target": "a", "scorer": scorer | {
            "params": WIDE | {"timeout_s": 1 + i / 1000}}})
        for i in range(1000)
    ]  # fmt: skip
    body = "\n".join(lines).encode()
    return await raw(client, f"/banks/{bank}/items:batch", body, "application/x-ndjson")


# --- other scorers -------------------------------------------------------------------------------

LONG = [("word " * 2000)[:10_000]] * 100
add("differential", trial("differential", "word " * 100_000, LONG, incorrect=LONG))
add("differential: chrf", trial("differential", "ab" * 9999, LONG, incorrect=LONG, metric="chrf"))
add("rouge_l", trial("rouge_l", "word " * 100_000, LONG))
add("bleu", trial("bleu", "word " * 100_000, LONG))
add("chrf++", trial("chrf", "word " * 100_000, LONG, word_order=2))
add("similarity", trial("similarity", "ab" * 99_999, LONG))
add("exact: answers in a loop", trial("exact", "answer to a " * 80_000))
add("choice-like text", trial("includes", "½" * 999_999, LONG))
add("readability: empty lines", trial("readability", "\n" * 999_999))
add("numeric: digits", trial("numeric", "1 " * 499_999, ["5"]))
add("numeric: power tower", trial("numeric", "The answer is 9**9**9**9**9", ["5"]))
add("numeric: factorials", trial("numeric", r"\boxed{99999999!!!}", ["5"]))
add("numeric: nested braces", trial("numeric", r"\boxed{" * 99_999, ["5"]))
add("span_f1: an open list", trial("span_f1", '["' + '\\"' * 400_000, LONG))
add("exact: invisible characters", trial("exact", "\u200b" * 999_999))

# --- bodies --------------------------------------------------------------------------------------

LISTS = b"[" + b"[]," * 10_000_000 + b"[]]"
DEEP = b"[" * 60_000


def body_of(path: str, body: bytes, kind: str = "application/json") -> Run:
    async def run(client: Client) -> object:
        return await raw(client, path, body, kind)

    return run


add("body: lists, 29 MB, sessions", body_of("/sessions", LISTS))
add("body: lists, 29 MB, versions", body_of(f"/banks/{BIG}/versions", LISTS))
add(
    "body: 600,000 faulty rows",
    body_of(f"/banks/{BIG}/versions", b'{"parameters":[' + b"[]," * 600_000 + b"[]]}"),
)
add("body: costs", body_of(
    f"/banks/{BIG}/versions/latest:compose",
    b'{"items":5,"costs":{' + b",".join(b'"k%d":"x"' % i for i in range(500_000)) + b"}}",
))  # fmt: skip
add("body: deep", body_of("/sessions", DEEP))
add("body: deep, large", body_of(f"/banks/{BIG}/versions", DEEP * 200))
add("body: a file of 15 MB", body_of(
    f"/banks/{BIG}/imports",
    b'{"dry_run":true,"items":{"content":"' + b"1,2\\n" * 3_000_000 + b'"}}',
))  # fmt: skip
add("body: an answer of 1 MB and escapes", body_of(
    "/scorers/exact:test", b'{"item":{"target":["a"]},"answer":"' + b"\\u00e9" * 999_999 + b'"}'
))  # fmt: skip
add("body: unknown fields", body_of(
    "/sessions", b"{" + b",".join(b'"a%d":0' % i for i in range(5500)) + b"}"
))  # fmt: skip
add("body: a key of 15 MB", body_of(
    f"/banks/{BIG}/imports", b'{"dry_run":true,"items":{"' + b"1,2\\n" * 3_000_000 + b'":1}}',
))  # fmt: skip
FACES = '{"dry_run":true,"items":{"content":"' + "\U0001f600" * 3_900_000 + '"}}'
add("body: 16 MB of faces, twelve at once", body_of(f"/banks/{BIG}/imports", FACES.encode()), 12)
add("body: numbers of 15 MB", body_of(
    f"/banks/{BIG}/versions", b'{"parameters":[{"key":"i1","a":1.' + b"1" * 15_000_000 + b"}]}"
))  # fmt: skip
add("body: spaces", body_of(f"/banks/{BIG}/versions", b" " * 15_000_000 + b"{}"))
ROWS = b",".join(b'{"key":"i%d","a":1,"b":0.5}' % i for i in range(N_BIG))
add("body: 50,000 good rows", body_of(f"/banks/{BIG}/versions", b'{"parameters":[' + ROWS + b"]}"))
add("items: one line of 8 MB", body_of(
    f"/banks/{BIG}/items:batch", LISTS[: 8 * 2**20 - 1], "application/x-ndjson"
))  # fmt: skip

# --- numbers -------------------------------------------------------------------------------------


def simulation(**design: Any) -> Run:
    async def run(client: Client) -> object:
        return await post(client, "/simulations", {"bank": BIG, **design})

    return run


EXPOSED = {
    "preset": "ability",
    "selection": {"exposure": {"max_rate": 0.2}},
    "stopping": {"max_items": 20},
}
add("simulation: exposure on 50,000 items", simulation(**EXPOSED))
add("simulation: 40,000 items", simulation(n_examinees=400, stopping={"max_items": 100}))
LONGEST = {"score_margin": None, "max_items": 39_999}
add("simulation: one long test", simulation(n_examinees=1, stopping=LONGEST))


@attack("session: exposure on 50,000 items")
async def exposed_session(client: Client) -> object:
    return await scripted(client, BIG, **EXPOSED)


@attack("session: 64 in flight on 50,000 items")
async def wide_session(client: Client) -> object:
    return await scripted(
        client, BIG, concurrency=64, stopping={"score_margin": None, "max_items": 500}
    )


@attack("information curve")
async def information(client: Client) -> object:
    path = f"/v1/banks/{BIG}/versions/latest/information"
    return await client.get(path, params={"theta": "-6:6:0.01"})


@attack("report of 50,000 items")
async def report(client: Client) -> object:
    return await client.get(f"/v1/banks/{BIG}/versions/latest/report")


@attack("report of 50,000 items, as a page")
async def page(client: Client) -> object:
    path = f"/v1/banks/{BIG}/versions/latest/report"
    return await client.get(path, headers={"accept": "text/html"})


@attack("export of 50,000 items")
async def export(client: Client) -> object:
    return await client.get(f"/v1/banks/{BIG}/versions/latest/export")


@attack("validation of 50,000 items")
async def validation(client: Client) -> object:
    return await post(client, f"/banks/{BIG}/versions/latest:validate", {})


@attack("form of 1,000 of 50,000 items")
async def compose(client: Client) -> object:
    return await post(client, f"/banks/{BIG}/versions/latest:compose", {"items": 1000})


# --- imports -------------------------------------------------------------------------------------


def import_of(bomb: Bomb) -> Run:
    async def run(client: Client) -> object:
        content = made_once(bomb)
        if bomb.route == "lines":
            return await raw(client, f"/banks/{BIG}/items:batch", content, "application/x-ndjson")
        if bomb.route != "answers":
            file = {"name": bomb.filename, "content": content.decode()}
            body = {"dry_run": True, bomb.route: file}
            return await post(client, f"/banks/{BIG}/imports", body)
        encoded = base64.b64encode(content).decode()
        files = [{"name": bomb.filename, "content_base64": encoded}]
        return await post(client, f"/response-sets/{BIG}/imports", {"files": files})

    return run


@cache
def made_once(bomb: Bomb) -> bytes:
    return bomb.make()


for name, bomb in BOMBS.items():
    add(f"import: {name}", import_of(bomb), 3)


@attack("import: 200,000 good parameters of a new bank", clients=3)
async def large_bank(client: Client) -> object:
    name = f"large-{time.monotonic_ns()}"
    await post(client, "/banks", {"name": name})
    content = "item,a,b\n" + "\n".join(f"i{i},1,{i % 600 / 100 - 3}" for i in range(200_000))
    body = {"dry_run": True, "parameters": {"content": content, "name": "p.csv"}}
    return await post(client, f"/banks/{name}/imports", body)


# --- many at once --------------------------------------------------------------------------------


async def ended_session(client: Client) -> str:
    """Return an ended session of 100 answers, the same for all clients."""
    async with asyncio.timeout(60):
        name = "attacked"
        headers = {"idempotency-key": name}
        endpoint = {"kind": "scripted", "model": "m", "options": {"theta": 0}}
        stopping = {"score_margin": None, "max_items": 100}
        body = {"bank": "demo", "endpoint": endpoint, "stopping": stopping}
        while True:
            made = await client.post("/v1/sessions", json=body, headers=headers)
            if made.status_code == 202:
                session = made.json()["id"]
                found = (await client.get(f"/v1/sessions/{session}")).json()
                if found["status"] == "completed":
                    return str(session)
            await asyncio.sleep(1)


def reading(what: str) -> Run:
    async def run(client: Client) -> object:
        session = await ended_session(client)
        answers = [client.get(f"/v1/{what}".format(session=session)) for _ in range(25)]
        return (await asyncio.gather(*answers))[0]

    return run


add("reads: a hundred session reports", reading("sessions/{session}/report"))
add("reads: a hundred session exports", reading("sessions/{session}/export"))
add("reads: a hundred leaderboards", reading("banks/demo/leaderboard"))
add("reads: a hundred lists of answers", reading("sessions/{session}/responses?limit=500"))


for name, connections in CONNECTIONS.items():
    add(name, connections, 1)
for name, replies in REPLIES.items():
    add(name, replies, 1)
for name, (requests, clients) in REQUESTS.items():
    add(name, requests, clients)
for name, moves in MOVES.items():
    add(name, moves, 1)


# --- the server ----------------------------------------------------------------------------------


@contextlib.contextmanager
def server(directory: str) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Postgres runs as another user under root, and must reach its data.
    Path(directory).chmod(0o755)
    log = Path(directory, "server.log")
    running = subprocess.Popen(
        [Path(sys.executable).with_name("sextant"), "serve", "--port", str(port)],
        env={
            **os.environ,
            "SEXTANT_DATA_DIR": directory,
            "SEXTANT_AUTH": "off",
            # The hostile endpoints are on this machine, also for callers through the proxy.
            "SEXTANT_PRIVATE_ENDPOINTS": "always",
        },
        stdout=subprocess.DEVNULL,
        stderr=os.open(log, os.O_WRONLY | os.O_CREAT),
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/readyz"):
                break
            if running.poll() is not None:
                raise SystemExit(f"The server ended: {log.read_text()[-2000:]}")
            time.sleep(0.2)
        yield url, running
    finally:
        running.kill()
        running.wait()


@contextlib.contextmanager
def proxied(url: str, directory: str) -> Iterator[str]:
    """Start nginx before the server, as shipped except for the two addresses."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        own = free.getsockname()
    shipped = Path(__file__).parents[1].joinpath("proxy/nginx.conf").read_text()
    file = Path(directory, "nginx.conf")
    file.write_text(
        shipped.replace("http://api:8000", url)
        .replace("listen 8080", f"listen {own[0]}:{own[1]}")
        .replace("/tmp/", f"{directory}/nginx-")
    )
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        raise SystemExit("nginx is not installed: apt-get install nginx, or say --bare.")
    log = Path(directory, "nginx.log")
    running = subprocess.Popen([program, "-e", log, "-c", file, "-g", "daemon off;"])
    try:
        time.sleep(1)
        yield f"http://{own[0]}:{own[1]}"
    finally:
        running.terminate()
        running.wait()


async def prepare(url: str) -> None:
    rows = [f"i{i},{0.5 + i % 7 / 5},{(i % 600) / 100 - 3},0,1" for i in range(N_BIG)]
    content = "item,a,b,c,d\n" + "\n".join(rows)
    async with Client(base_url=url, timeout=300) as client:
        await post(client, "/banks", {"name": BIG})
        await post(client, "/response-sets", {"name": BIG})
        body = {"parameters": {"content": content, "name": "big.csv"}, "response_model": "2pl"}
        made = await post(client, f"/banks/{BIG}/imports", body)
        if made.status_code != 201:
            raise SystemExit(f"The bank of {N_BIG} items was refused: {made.text[:300]}")


async def carry_out(one: Attack, url: str, seconds: float) -> str:
    """Return how the clients' requests ended: statuses, or `gave up` where they disconnected."""
    async with Client(base_url=url, timeout=seconds) as client:
        ended = await asyncio.gather(
            *(asyncio.wait_for(one.run(client), seconds) for _ in range(one.clients)),
            return_exceptions=True,
        )
    return ", ".join(
        sorted(
            {
                str(end.status_code)
                if isinstance(end, httpx2.Response)
                else "gave up"
                if isinstance(end, TimeoutError | httpx2.TimeoutException)
                else "done"
                if end is None
                else type(end).__name__
                for end in ended
            }
        )
    )


def show(name: str, seen: Seen, answers: str) -> bool:
    """Print one row; return whether the server kept its limits."""
    is_fine = 0 < seen.slowest_ms <= HEALTH_MS and seen.memory_mb <= MEMORY_MB
    is_fine = is_fine and AssertionError.__name__ not in answers  # an attack must not reach this
    mark = "" if is_fine else "  <-- broken"
    times = f"{seen.slowest_ms:10.0f} {seen.no_core_ms:8.0f} {seen.idle_ms:8.0f}"
    figures = f"{times} {seen.memory_mb:10.0f}"
    print(f"{name:52} {figures}  {answers}{mark}", flush=True)
    return is_fine


def ends_under(one: Attack, url: str, running: "subprocess.Popen[bytes]") -> bool:
    """Return whether SIGTERM ends the server with exit code 0 while clients attack it."""
    timer = threading.Timer(1.0, running.send_signal, [signal.SIGTERM])
    timer.start()
    asyncio.run(carry_out(one, url, 30.0))
    timer.join()
    with contextlib.suppress(subprocess.TimeoutExpired):
        return running.wait(30) == 0
    return False


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[""], help="attacks whose name holds one of these"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="then clients hang up")
    parser.add_argument("--bare", action="store_true", help="without the proxy")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    chosen = [one for one in ATTACKS if any(part in one.name for part in options.only)]
    if options.list:
        print(*(one.name for one in chosen), sep="\n")
        return 0
    broken = []
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        url, running = stack.enter_context(server(directory))
        if not options.bare:
            url = stack.enter_context(proxied(url, directory))
        asyncio.run(prepare(url))
        with watching(url, running.pid) as watch:
            time.sleep(3)
            heads = f"{'healthz ms':>10} {'no core':>8} {'idle ms':>8} {'memory MB':>10}"
            print(f"{'attack':52} {heads}  answers")
            show("(none)", watch.take(), "")
            for one in chosen:
                answers = asyncio.run(carry_out(one, url, options.seconds))
                time.sleep(0.5)
                if options.bare:
                    during = watch.take()
                    answers += f"; {during.slowest_ms:.0f} ms meanwhile"
                    time.sleep(2)
                if not show(one.name, watch.take(), answers):
                    broken.append(one.name)
            if not ends_under(ATTACKS[0], url, running):
                broken.append("SIGTERM while an attack is on")
    print(f"{len(chosen)} attacks, broken: {', '.join(broken) or 'none'}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
