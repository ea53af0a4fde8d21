"""Agents through Inspect: recorded answers, eight tasks in flight, killed once and continued.

The bank is made of all submissions but the newest, as in `agents.py`. A left-out submission then
answers as recorded, each task after `--task` seconds: the newest one in a run of Inspect that is
killed with SIGKILL after eight tasks and retried, then all of them in one process.

    uv run --group inspect python benchmarks/inspect_agents.py --responses swebench_verified.csv.gz
        [--tasks 25] [--newest 40] [--in-flight 8] [--task 2]
"""

import argparse
import asyncio
import csv
import gzip
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import httpx2
import numpy as np
from agents import BANK, installed
from by_hand import Server
from inspect_ai import Task, task
from inspect_ai import eval as run_task
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver

from app.cli.lab.inputs import load_responses
from sextant_inspect import Examinee, adaptive


@solver
def works(seconds: float, asked: str) -> Solver:
    """Wait as long as a task takes, and record each task that has begun."""

    async def solve(state: TaskState, _: Generate) -> TaskState:
        with Path(asked).open("a") as file:  # noqa: ASYNC230  (a line at a time)
            file.write(f"{state.sample_id}\n")
        await asyncio.sleep(seconds)
        return state

    return solve


@scorer(metrics=[accuracy()])
def recorded_score() -> Scorer:
    async def score(state: TaskState, _: Target) -> Score:
        return Score(value=state.metadata["solved"])

    return score


@task
def recorded(
    responses: str, submission: str, tasks: int, in_flight: int, seconds: float, asked: str
) -> Task:
    """Act as a submission that answers as recorded."""
    with gzip.open(responses, "rt", newline="") as file:
        row = next(row for row in csv.DictReader(file) if row["model"] == submission)
    del row["model"]
    return adaptive(
        Task(
            dataset=[
                Sample(id=name, input=name, metadata={"solved": float(score)})
                for name, score in row.items()
            ],
            solver=works(seconds, asked),
            scorer=recorded_score(),
        ),
        BANK,
        examinee=Examinee(name=submission, kind="agent", model="recorded", scaffold=submission),
        concurrency=in_flight,
        stopping={"min_items": tasks, "max_items": tasks},
        seed=1,
    )


def killed_once(server: Server, settings: dict[str, object], folder: Path) -> EvalLog:
    """Return the log of a run that was killed after eight tasks and continued."""
    inspect = Path(sys.executable).with_name("inspect")
    told = [word for name, value in settings.items() for word in ("-T", f"{name}={value}")]
    logs = ["--log-dir", str(folder), "--display", "none"]
    run = subprocess.Popen(
        [inspect, "eval", f"{__file__}@recorded", *told, "--model", "mockllm/model", *logs]
    )
    while True:
        found = httpx2.get(f"{server.base_url}/v1/sessions").json()["data"]
        if found and found[0]["progress"]["items"] >= 8:
            break
        if run.poll() is not None:
            raise SystemExit("Inspect ended before it had run eight tasks.")
        time.sleep(0.2)
    run.send_signal(signal.SIGKILL)
    run.wait()
    (killed,) = list_eval_logs(str(folder))
    again = folder / "again"
    logs[1] = str(again)
    subprocess.run([inspect, "eval-retry", killed.name, *logs], check=True)
    (retried,) = list_eval_logs(str(again))
    return read_eval_log(retried.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--responses", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=25)
    parser.add_argument("--newest", type=int, default=40)
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--task", type=float, default=2)
    arguments = parser.parse_args()
    table = load_responses(arguments.responses, score_range=None)
    order = np.argsort(table.examinees, kind="stable")
    known, tested = order[: -arguments.newest], order[-arguments.newest :]
    truth = {table.examinees[row]: float(table.scores[row].mean()) for row in tested}
    with tempfile.TemporaryDirectory(prefix="sx-agents-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # Postgres does not run as root
        server = Server(folder)
        try:
            agents = []
            for row in known:
                scores = map(int, table.scores[row])
                agents.append((table.examinees[row], dict(zip(table.items, scores, strict=True))))
            installed(server, folder, agents, table.items)
            os.environ["SEXTANT_SERVER"] = server.base_url
            asked = folder / "asked"
            settings = {
                "responses": arguments.responses.absolute(),
                "tasks": arguments.tasks,
                "in_flight": arguments.in_flight,
                "asked": asked,
            }
            last = {**settings, "submission": table.examinees[tested[-1]]}
            began = time.monotonic()
            log = killed_once(server, {**last, "seconds": arguments.task}, folder / "killed")
            begun = Counter(asked.read_text().split())
            print(
                f"killed once: {len(log.samples or ())} tasks, {sum(begun.values())} begun, most "
                f"{max(begun.values())} times, {time.monotonic() - began:.0f} s; "
                f"{error(log, truth):+.1f} points off"
            )
            logs = run_task(
                [recorded(**settings, submission=name, seconds=0.0) for name in truth],
                model="mockllm/model",
                max_tasks=4,
                display="none",
                log_dir=str(folder / "all"),
            )
            errors = np.array([error(one, truth) for one in logs])
            held = [lo <= truth[str(one.eval.task_args["submission"])] <= hi for one in logs
                    for lo, hi in [interval(one)]]  # fmt: skip
            print(
                f"{len(logs)} agents, {arguments.in_flight} in flight, {arguments.tasks} tasks: "
                f"mean error {np.abs(errors).mean():.1f} points, {np.mean(held):.1%} held"
            )
        finally:
            server.process.terminate()
            server.process.wait()


def figures(log: EvalLog) -> dict[str, float]:
    if log.results is None:
        raise SystemExit(f"{log.location}: {log.error.message if log.error else log.status}")
    return {name: metric.value for name, metric in log.results.scores[0].metrics.items()}


def error(log: EvalLog, truth: dict[str, float]) -> float:
    return 100 * (figures(log)["score"] - truth[str(log.eval.task_args["submission"])])


def interval(log: EvalLog) -> tuple[float, float]:
    return figures(log)["score_lo"], figures(log)["score_hi"]


if __name__ == "__main__":
    main()
