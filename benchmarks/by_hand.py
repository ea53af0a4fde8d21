"""Manual sessions over a real server: time saved by several items in flight, answers lost by kills.

The examinees are simulated, on the demo bank:

- the time of one test to a standard error of theta, each task taking `--task` seconds, with one
  item in flight and with four; and over `--sessions` examinees the items that both need;
- a step over loopback: one request that sends an answer and returns the next item;
- `--kills` times SIGKILL for the client or the server while tasks run: each accepted answer is
  there at the end, and no step has two.

    uv run python benchmarks/by_hand.py [--task 2] [--sessions 40] [--kills 200]
"""

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path

import httpx2
import numpy as np

from app.demo.bank import demo_bank
from app.engine import ItemBank

IN_FLIGHT = 4
FOR_THETA = {"preset": "ability", "stopping": {"se": 0.3, "min_items": 10, "max_items": 60}}


class Server:
    """Runs `sextant serve` as a separate process, on a data directory that outlives it."""

    def __init__(self, data: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._log = (data / "server.log").open("ab")
        self.environment = {**os.environ, "SEXTANT_DATA_DIR": str(data), "SEXTANT_AUTH": "off"}
        self.process = self._started()

    @property
    def base_url(self) -> str:
        """Return its address."""
        return f"http://127.0.0.1:{self.port}"

    def command(self, *words: str) -> list[str]:
        """Return a `sextant` command of this checkout."""
        return [sys.executable, "-c", "from app.cli import main; main()", *words]

    def _started(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.command("serve", "--port", str(self.port)),
            env=self.environment,
            stdout=self._log,
            stderr=self._log,
        )
        while process.poll() is None:
            try:  # ready, with the demo bank
                if "demo" in httpx2.get(f"{self.base_url}/v1/banks").text:
                    return process
            except httpx2.TransportError:
                time.sleep(0.05)
        raise SystemExit(Path(self._log.name).read_text())

    def kill(self) -> None:
        """Kill it and restart it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process = self._started()


@cache
def _bank() -> ItemBank:
    return demo_bank().item_bank()


def score_of(examinee: int, item: str) -> float:
    """Return an examinee's answer to an item, the same at any time."""
    bank = _bank()
    theta = float(np.random.default_rng(examinee).normal())
    chance = bank.expected_score(np.array([theta]))[0, bank.item_ids.index(item)]
    return float(random.Random(f"{examinee} {item}").random() < chance)


def run(base: str, path: str, examinee: int, task: float, told: Path | None = None) -> None:
    """Answer a session to its end, items in parallel; continues an interrupted session."""
    with httpx2.Client(base_url=base, timeout=30) as client, ThreadPoolExecutor(IN_FLIGHT) as pool:

        def solved(item: dict) -> tuple[dict, float]:
            time.sleep(task)
            return item, score_of(examinee, item["item"]["id"])

        items = client.post(f"{path}/next-items", json={}).json().get("data", [])
        running = {pool.submit(solved, item) for item in items}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for item, score in (one.result() for one in done):
                answer = {"step_token": item["step_token"], "score": score}
                reply = client.post(f"{path}/responses", json=answer)
                if reply.status_code == 409:  # accepted before a kill that lost the response
                    fresh = client.post(f"{path}/next-items", json={}).json().get("data", [])
                    known = {one["step"] for one in items}
                    fresh = [one for one in fresh if one["step"] not in known]
                else:
                    fresh = reply.json()["next_items"]
                    if told is not None:
                        with told.open("a") as file:
                            file.write(f"{item['step']} {score}\n")
                items += fresh
                running |= {pool.submit(solved, one) for one in fresh}


def begun(client: httpx2.Client, **said: object) -> str:
    made = client.post("/v1/sessions", json={"mode": "manual", "bank": "demo", **said})
    made.raise_for_status()
    return f"/v1/sessions/{made.json()['id']}"


def time_saved(client: httpx2.Client, task: float, sessions: int) -> None:
    seconds, items = {}, {1: [], IN_FLIGHT: []}
    for in_flight, taken in items.items():
        for examinee in range(sessions):
            path = begun(client, concurrency=in_flight, seed=examinee, **FOR_THETA)
            began = time.monotonic()
            run(str(client.base_url), path, examinee, task if examinee == 0 else 0.0)
            if examinee == 0:
                seconds[in_flight] = time.monotonic() - began
            taken.append(client.get(path).json()["progress"]["items"])
    one, several = (float(np.mean(taken)) for taken in items.values())
    print(
        f"one test, tasks of {task:g} s: {seconds[1]:.1f} s one at a time, "
        f"{seconds[IN_FLIGHT]:.1f} s with {IN_FLIGHT} in flight "
        f"({seconds[IN_FLIGHT] / seconds[1]:.2f}); items over {sessions} examinees: {one:.1f} and "
        f"{several:.1f} ({several / one - 1:+.1%})"
    )


def step(client: httpx2.Client) -> None:
    took = []
    for examinee in range(5):
        path = begun(client, stopping={"max_items": 60})
        items = client.post(f"{path}/next-items", json={}).json()["data"]
        while items:
            score = score_of(examinee, items[0]["item"]["id"])
            began = time.perf_counter()
            answer = {"step_token": items[0]["step_token"], "score": score}
            items = client.post(f"{path}/responses", json=answer).json()["next_items"]
            took.append(1000 * (time.perf_counter() - began))
    print(f"a step by hand: one request, median {statistics.median(took):.1f} ms of {len(took)}")


def kills(server: Server, client: httpx2.Client, folder: Path, wanted: int) -> None:
    rng, done, lost, doubled, answers = random.Random(1), 0, 0, 0, 0
    while done < wanted:
        path = begun(
            client, concurrency=IN_FLIGHT, stopping={"max_items": 300, "score_margin": 0.005}
        )
        told = folder / path.rsplit("/", 1)[1]
        command = [sys.executable, __file__, "--client", str(client.base_url), path, str(told)]
        while client.get(path).json()["status"] == "awaiting_response":
            running = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            try:
                running.wait(timeout=rng.uniform(1.5, 4.0))
            except subprocess.TimeoutExpired:
                done += 1
                if rng.random() < 0.25:
                    server.kill()
                running.kill()
                running.wait()
        rows = client.get(f"{path}/responses", params={"limit": 1000}).json()["data"]
        by_step = {row["step"]: row["score"] for row in rows if row["outcome"] == "scored"}
        answers += len(by_step)
        arrivals = [row["arrival"] for row in rows]
        doubled += (
            len(arrivals) - len(set(arrivals)) + len(rows) - len({r["item_id"] for r in rows})
        )
        for line in told.read_text().splitlines():
            number, score = line.split()
            lost += by_step.get(int(number)) != float(score)
    print(f"{done} kills, {answers} answers: {lost} lost, {doubled} doubled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--task", type=float, default=2.0)
    parser.add_argument("--sessions", type=int, default=40)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--client", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        base, path, told = arguments.client
        run(base, path, 7, 0.05, Path(told))
        return
    with tempfile.TemporaryDirectory(prefix="sx-hand-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        server = Server(Path(folder))
        try:
            with httpx2.Client(base_url=server.base_url, timeout=60) as client:
                step(client)
                time_saved(client, arguments.task, arguments.sessions)
                kills(server, client, Path(folder), arguments.kills)
        finally:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
