"""How well a few tasks predict an agent's score on all, over REST, with one and several in flight.

A response matrix of agents, the oldest first where their names begin with a day. A directory with
all but the newest `--newest` is installed as by `sextant banks install swebench-verified --from
FOLDER`. Each of the newest is tested by hand; its tasks are answered from its row after `--seconds`
each, in the order in which they finish. With several in flight the client is killed once, half-way,
and restarted. The error is that of the score on all tasks.

    uv run python benchmarks/agents.py --responses swebench_verified.csv.gz [--tasks 25]
        [--newest 40] [--in-flight 1 4 8] [--seconds 0.1] [--seeds 1]
"""

import argparse
import csv
import gzip
import json
import multiprocessing
import random
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import numpy as np
from by_hand import Server

BANK = "swebench-verified"
_PROCESSES = multiprocessing.get_context("fork")


class Found(NamedTuple):
    """Error of one test, whether its interval holds, and the equivalent number of random tasks."""

    error: float
    holds: bool
    equal: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--responses", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--newest", type=int, default=40)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--seeds", type=int, default=1)
    given = parser.parse_args()
    with gzip.open(given.responses, "rt", newline="") as file:
        (_, *tasks), *rows = csv.reader(file)
    agents = sorted((name, dict(zip(tasks, map(int, row), strict=True))) for name, *row in rows)
    known, tested = agents[: -given.newest], agents[-given.newest :]
    with tempfile.TemporaryDirectory(prefix="sx-agents-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        server = Server(Path(folder))
        try:
            installed(server, Path(folder), known, tasks)
            for in_flight in given.in_flight:
                began = time.monotonic()
                found = [
                    measured(server, answers, given.tasks, in_flight, given.seconds, seed)
                    for again in range(given.seeds)
                    for seed, (_, answers) in enumerate(tested, start=again * len(tested))
                ]
                errors, held, equal = np.array(found).T
                print(
                    f"{in_flight} in flight, {given.tasks} of {len(tasks)} tasks, {len(found)} "
                    f"tests: mean error {100 * errors.mean():.2f} points, {held.mean():.1%} within "
                    f"their intervals, as exact as {np.median(equal):.0f} random tasks, "
                    f"{(time.monotonic() - began) / len(found):.1f} s a test",
                    flush=True,
                )
        finally:
            server.process.terminate()
            server.process.wait()


def installed(
    server: Server,
    folder: Path,
    agents: Sequence[tuple[str, Mapping[str, int]]],
    tasks: Sequence[str],
) -> None:
    """Install a bank of these agents by an own entry, since the catalogue's needs all agents."""
    for name in ("catalog", "from"):
        (folder / name).mkdir()
    (folder / f"catalog/{BANK}.toml").write_text(
        f'name = "{BANK}"\ntitle = "SWE-bench Verified"\nlicence = "MIT"\n[responses]\n'
        f"tasks = {len(tasks)}\nagents = {len(agents)}\nfiles = "
        '[{file = "responses.jsonl"}]\n'
    )
    lines = (json.dumps({"subject_id": name, "responses": row}) for name, row in agents)
    (folder / "from/responses.jsonl").write_text("\n".join(lines))
    subprocess.run(
        server.command("banks", "install", BANK, "--from", str(folder / "from")),
        env=server.environment | {"SEXTANT_CATALOG": str(folder / "catalog")},
        check=True,
    )


def measured(
    server: Server,
    answers: Mapping[str, int],
    tasks: int,
    in_flight: int,
    seconds: float,
    seed: int,
) -> Found:
    """Return the result of one agent's test."""
    body = {
        "mode": "manual",
        "bank": BANK,
        "seed": seed,
        "concurrency": in_flight,
        "stopping": {"min_items": tasks, "max_items": tasks},
    }
    with httpx2.Client(base_url=server.base_url, timeout=60) as client:
        path = f"/v1/sessions/{client.post('/v1/sessions', json=body).json()['id']}"
        loop = _PROCESSES.Process(
            target=answered, args=(server.base_url, path, answers, in_flight, seconds, seed)
        )
        loop.start()
        if in_flight > 1:
            while client.get(path).json()["progress"]["items"] < tasks // 2:
                time.sleep(0.02)
            loop.kill()
        loop.join()
        answered(server.base_url, path, answers, in_flight, seconds, seed)
        session = client.get(path).json()
        asked = client.get(f"{path}/responses", params={"limit": 100}).json()["data"]
    keys = {row["item_id"] for row in asked}
    if session["status"] != "completed" or not len(asked) == len(keys) == tasks:
        raise SystemExit(f"{path}: {session['status']}, {len(keys)} tasks in {len(asked)} steps")
    told, truth = session["score"], float(np.mean(list(answers.values())))
    return Found(
        abs(told["value"] - truth),
        told["interval"]["lo"] <= truth <= told["interval"]["hi"],
        told["equivalent_random_items"] or tasks,
    )


def answered(
    base_url: str,
    path: str,
    answers: Mapping[str, int],
    in_flight: int,
    seconds: float,
    seed: int,
) -> None:
    """Run the loop of docs/agents.md to the end of the session; a restart continues it."""
    rng, seen = random.Random(seed), set[str]()

    def solve(item: dict[str, Any], takes: float) -> dict[str, Any]:
        time.sleep(takes)
        return {"step_token": item["step_token"], "score": float(answers[item["item"]["id"]])}

    def begun(items: Sequence[dict[str, Any]]) -> set[Any]:
        new = [item for item in items if item["step_token"] not in seen]
        seen.update(item["step_token"] for item in new)
        return {pool.submit(solve, item, seconds * rng.uniform(0.5, 1.5)) for item in new}

    def awaited() -> set[Any]:
        found = client.post(f"{path}/next-items", json={})
        return set() if found.is_error else begun(found.json()["data"])  # or the session has ended

    with (
        httpx2.Client(base_url=base_url, timeout=60) as client,
        ThreadPoolExecutor(in_flight) as pool,
    ):
        running = awaited()
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for task in done:
                reply = client.post(f"{path}/responses", json=task.result())
                # The killed client may have sent this answer just before its end.
                running |= awaited() if reply.is_error else begun(reply.json()["next_items"])


if __name__ == "__main__":
    main()
