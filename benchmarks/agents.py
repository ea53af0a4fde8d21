"""How well a few tasks tell what an agent solves of all, over REST, one and several in flight.

A response matrix of agents, the oldest first where their names begin with a day: a bank is made of
all but the newest `--newest`, and each of these is tested by hand, its tasks answered from its row
in an order drawn at random. The error is that of the score on all tasks.

    uv run python benchmarks/agents.py --responses swebench_verified.csv.gz [--tasks 25]
        [--newest 40] [--in-flight 1 4 8]
"""

import argparse
import csv
import random
import subprocess
import tempfile
from pathlib import Path

import httpx2
import numpy as np
from by_hand import Server

from app.cli.lab.inputs import load_responses


def prepared(server: Server, names: list[str], items: tuple[str, ...], rows: np.ndarray) -> None:
    """The bank `agents`, of these rows."""
    with tempfile.NamedTemporaryFile("w", suffix=".csv", newline="") as file:
        table = csv.writer(file)
        table.writerow(["agent", *items])
        table.writerows([name, *row] for name, row in zip(names, rows, strict=True))
        file.flush()
        for words in (
            ["response-sets", "import", "agents", "--from", file.name],
            ["calibrations", "start", "agents", "--no-report-card", "--bank", "agents"],
        ):
            subprocess.run(server.command(*words), env=server.environment, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--responses", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--newest", type=int, default=40)
    parser.add_argument("--in-flight", type=int, nargs="+", default=[1, 4, 8])
    arguments = parser.parse_args()
    table = load_responses(arguments.responses, score_range=None)
    order = np.argsort(table.examinees, kind="stable")
    known, tested = order[: -arguments.newest], order[-arguments.newest :]
    with tempfile.TemporaryDirectory(prefix="sx-agents-") as folder:
        Path(folder).chmod(0o755)  # Postgres does not run as root
        server = Server(Path(folder))
        try:
            names = [table.examinees[row] for row in known]
            prepared(server, names, table.items, table.scores[known])
            with httpx2.Client(base_url=server.base_url, timeout=60) as client:
                for in_flight in arguments.in_flight:
                    found = [
                        measured(client, dict(zip(table.items, table.scores[row], strict=True)),
                                 arguments.tasks, in_flight, seed)
                        for seed, row in enumerate(tested)
                    ]  # fmt: skip
                    errors, held, equal = np.array(found).T
                    print(
                        f"{in_flight} in flight, {arguments.tasks} of {len(table.items)} tasks, "
                        f"{len(found)} agents: mean error {100 * errors.mean():.2f} points, "
                        f"{held.mean():.1%} within their intervals, as exact as "
                        f"{np.median(equal):.0f} random tasks"
                    )
        finally:
            server.process.terminate()
            server.process.wait()


def measured(
    client: httpx2.Client, scores: dict[str, float], tasks: int, in_flight: int, seed: int
) -> tuple[float, bool, int]:
    """Error, whether the interval holds, and the equivalent random tasks, of one agent's test."""
    body = {
        "mode": "manual",
        "bank": "agents",
        "seed": seed,
        "concurrency": in_flight,
        "stopping": {"min_items": tasks, "max_items": tasks},
    }
    path = f"/v1/sessions/{client.post('/v1/sessions', json=body).json()['id']}"
    items, rng = client.post(f"{path}/next-items", json={}).json()["data"], random.Random(seed)
    session: dict = {}
    while items:
        item = items.pop(rng.randrange(len(items)))
        answer = {"step_token": item["step_token"], "score": scores[item["item"]["id"]]}
        session = client.post(f"{path}/responses", json=answer).json()
        items += session["next_items"]
    told, truth = session["accuracy"], float(np.mean(list(scores.values())))
    holds = told["lo"] <= truth <= told["hi"]
    return abs(told["value"] - truth), holds, told["equivalent_random_items"] or tasks


if __name__ == "__main__":
    main()
