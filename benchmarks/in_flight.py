"""Speed-up of a session by several items in flight, and the number of additional items.

Real sessions by a real worker on its own Postgres, to the same width of the interval: of theta on
the demo bank, of the predicted score on a bank of two tasks, with V-optimal items. Examinees are
scripted and answer after 200 ms, inside the worker or as HTTP servers of a separate process.
Sessions run one after another on an otherwise idle machine, and then all at once.

    uv run python benchmarks/in_flight.py [--endpoints 6] [--latency-ms 200] [--in-flight 1 2 4 8]
        [--kind scripted http] [--way alone together] [--case NAME ...]
"""

import argparse
import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import uvicorn
from fastapi import FastAPI

from app.calibration.multidimensional.settings import FitMethod, MultidimensionalSettings
from app.calibration.pipeline.abilities import learn_abilities
from app.demo.bank import DemoItem, demo_bank
from app.demo.model_server import create_model_server
from app.engine.knowledge import (
    ABILITIES,
    PREDICTION,
    abilities_to_dict,
    prediction_to_dict,
)
from app.exchange.item_record import ItemRecord
from app.items import ItemContent, ScorerSpec
from app.records.endpoints import EndpointSettings
from app.records.leased import ENDED
from app.records.sessions import SessionRecord
from app.services.banks.imports import BankImport
from app.services.banks.spec import BankSpec
from app.services.container import Services, open_services
from app.services.endpoints.specs import EndpointSpec
from app.services.sessions.drafts import SessionSpec
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from app.worker.loop import running_worker
from app.worker.queue import JobQueue

IN_FLIGHT = (1, 2, 4, 8)
KINDS, WAYS = ("scripted", "http"), ("alone", "together")
N_ITEMS = 300
TASKS = "ab"
#: Distance of an examinee's two task abilities above and below its general one.
APART = 0.5


@dataclass(frozen=True, slots=True)
class Case:
    """A bank and a precision.

    Attributes:
        bank: Name of the bank.
        plan: Plan of the sessions.
    """

    bank: str
    plan: dict[str, Any]


CASES = {
    "theta-0.2": Case("demo", {"stopping": {"se": 0.2, "min_items": 10, "max_items": 150}}),
    "theta-0.3": Case("demo", {"stopping": {"se": 0.3, "min_items": 10, "max_items": 150}}),
    "score-0.2": Case(
        "several",
        {
            "selection": {"criterion": "v_optimal"},
            "stopping": {"score_margin": 0.1, "min_items": 10, "max_items": 150},
        },
    ),
    "score-0.16": Case(
        "several",
        {
            "selection": {"criterion": "v_optimal"},
            "stopping": {"score_margin": 0.08, "min_items": 10, "max_items": 150},
        },
    ),
}


def difficulties() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return task, discrimination and difficulty of each item of the bank of two tasks."""
    rng = np.random.default_rng(1)
    task = np.arange(N_ITEMS) % 2
    return task, rng.lognormal(0.0, 0.3, N_ITEMS), rng.normal(size=N_ITEMS)


async def several_abilities(services: Services) -> None:
    """Create a bank of two tasks, calibrated on 300 simulated examinees."""
    rng = np.random.default_rng(2)
    task, a, b = difficulties()
    theta = rng.normal(size=(300, 1)) + 0.7 * rng.normal(size=(300, 2))[:, task]
    logit = a * (theta - b)
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    keys = [f"{TASKS[t]}/{i}" for i, t in enumerate(task)]
    learned = learn_abilities(
        scores,
        keys,
        MultidimensionalSettings(dimensions=2, method=FitMethod.JOINT),
        {"all": np.full(N_ITEMS, 1 / N_ITEMS)},
        rng,
    )
    bank, scores_model = learned.bank, learned.scores
    assert bank.abilities is not None
    assert scores_model is not None
    items = [
        ItemRecord(key=key, content=ItemContent(prompt=f"What is {key}?", target=(key,)))
        for key in keys
    ]
    knowledge = {
        ABILITIES: abilities_to_dict(bank.abilities, keys),
        PREDICTION: prediction_to_dict(scores_model.targets, keys),
    }
    request = BankImport(items=items, parameters=bank, response_model="nested", knowledge=knowledge)
    await services.banks.import_bank(BankSpec(name="several"), request)


@dataclass(frozen=True, slots=True)
class Examinee:
    """A scripted model.

    Attributes:
        theta: General ability.
        seed: Seed of its answers.
    """

    theta: float
    seed: int

    def inside(self, latency_ms: float) -> EndpointSettings:
        """Return the endpoint inside the worker."""
        skills = {f"{TASKS[0]}/": self.theta + APART, f"{TASKS[1]}/": self.theta - APART}
        options = {"theta": self.theta, "seed": self.seed, "latency_ms": latency_ms}
        return EndpointSettings(
            kind="scripted", model="simulated", options={**options, "skills": skills}
        )

    def items(self) -> list[DemoItem]:
        """Return the items of both banks; its skills shift their difficulties."""
        task, a, b = difficulties()
        two_tasks = [
            DemoItem(
                key=f"{TASKS[t]}/{i}",
                content=ItemContent(prompt=f"What is {TASKS[t]}/{i}?", target=(f"{TASKS[t]}/{i}",)),
                scorer=ScorerSpec("exact"),
                tags=(),
                wrong_answers=("nothing",),
                expected_tokens_in=10,
                expected_tokens_out=5,
                a=float(a[i]),
                b=float(b[i]) - (APART if t == 0 else -APART),
                c=0.0,
                d=1.0,
            )
            for i, t in enumerate(task)
        ]
        return [*demo_bank().items, *two_tasks]


def examinees(count: int) -> list[Examinee]:
    """Return abilities spread over the middle of both banks."""
    return [
        Examinee(float(theta), seed) for seed, theta in enumerate(np.linspace(-1.2, 1.2, count))
    ]


def serve(count: int, latency_ms: float) -> None:
    """Serve the examinees as OpenAI-compatible APIs at /0, /1, ...; print the address."""
    app = FastAPI()
    for number, examinee in enumerate(examinees(count)):
        model = create_model_server(
            theta=examinee.theta,
            seed=examinee.seed,
            latency_s=latency_ms / 1000,
            items=examinee.items(),
        )
        app.mount(f"/{number}", model)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([listener])


@contextlib.contextmanager
def served(count: int, latency_ms: float) -> Iterator[str]:
    """Return the address of a separate process that serves the examinees."""
    command = [sys.executable, __file__, "--serve", f"--endpoints={count}"]
    process = subprocess.Popen(
        [*command, f"--latency-ms={latency_ms}"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait()


@dataclass(frozen=True, slots=True)
class Taken:
    """Cost of sessions, one row per endpoint.

    Attributes:
        seconds: Duration by their own clocks.
        items: Number of items asked.
        cpu_ms: Processor time of the worker with its database client, per item.
    """

    seconds: np.ndarray
    items: np.ndarray
    cpu_ms: float

    @classmethod
    def of(cls, ended: Sequence[SessionRecord], cpu_s: float) -> "Taken":
        items = np.array([record.summary["progress"]["items"] for record in ended], dtype=float)
        seconds = np.array([record.summary["usage"]["seconds"] for record in ended])
        return cls(seconds, items, 1000 * cpu_s / float(items.sum()))


async def session(services: Services, case: Case, endpoint: EndpointSettings) -> SessionRecord:
    """Run one session to its end."""
    created = await services.sessions.create(
        SessionSpec(
            mode="live",
            bank=case.bank,
            endpoint=EndpointSpec(settings=endpoint),
            plan=case.plan,
            seed=11,
        )
    )
    record = await services.sessions.get(created.id)
    while record.status not in ENDED:
        await asyncio.sleep(0.1)
        record = await services.sessions.get(created.id)
    outcomes = record.summary["outcomes"]
    assert record.status == "completed", record.failure
    assert outcomes["scored"] == sum(outcomes.values()), outcomes
    return record


async def measured(
    services: Services, case: Case, in_flight: int, endpoints: Sequence[EndpointSettings], way: str
) -> Taken:
    """Run sessions of all endpoints, one after another or all at once."""
    case = replace(case, plan={**case.plan, "concurrency": in_flight})
    began = time.process_time()
    if way == "together":
        ended = await asyncio.gather(*(session(services, case, one) for one in endpoints))
    else:
        ended = [await session(services, case, one) for one in endpoints]
    return Taken.of(ended, time.process_time() - began)


def told(first: Taken, taken: Taken) -> str:
    """Return mean and maximum over endpoints, with the mean for one in flight."""
    faster = float(first.seconds.mean() / taken.seconds.mean())
    more = float(taken.items.mean() / first.items.mean()) - 1
    return (
        f"{taken.seconds.mean():6.2f} s {taken.items.mean():6.1f} items "
        f"{faster:5.2f}x as fast (least {(first.seconds / taken.seconds).min():.2f}x) "
        f"{more:+6.1%} items; {taken.cpu_ms:.1f} ms of processor an item"
    )


async def compare(services: Services, arguments: argparse.Namespace, url: str) -> None:
    """Print the table."""
    await services.banks.ensure_demo_bank()
    await several_abilities(services)
    people = examinees(arguments.endpoints)
    endpoints = {
        "scripted": [one.inside(arguments.latency_ms) for one in people],
        "http": [
            EndpointSettings(kind="openai_chat", base_url=f"{url}/{number}/v1", model="scripted")
            for number in range(len(people))
        ],
    }
    async with running_worker(services):
        for kind in arguments.kind:
            for way in arguments.way:
                for name in arguments.case:
                    first = None
                    for in_flight in arguments.in_flight:
                        taken = await measured(
                            services, CASES[name], in_flight, endpoints[kind], way
                        )
                        first = first or taken
                        where = f"{kind:>8} {way:>8} {name:>10} {in_flight} in flight"
                        print(f"{where}: {told(first, taken)}", flush=True)


async def run(database_url: str, folder: Path, arguments: argparse.Namespace, url: str) -> None:
    await asyncio.to_thread(upgrade, database_url)
    database = Database(database_url)
    try:
        settings = Settings(database_url=database_url, data_dir=folder, log_level="warning")
        async with open_services(settings, database, JobQueue(database)) as services:
            await compare(services, arguments, url)
    finally:
        await database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--endpoints", type=int, default=6)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    parser.add_argument("--in-flight", type=int, nargs="+", default=list(IN_FLIGHT))
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--way", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.endpoints, arguments.latency_ms)
        return
    with (
        tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp") as scratch,
        served(arguments.endpoints, arguments.latency_ms) as url,
    ):
        Path(scratch).chmod(0o755)
        with EmbeddedPostgres(Path(scratch) / "data") as postgres:
            asyncio.run(run(postgres.url, Path(scratch), arguments, url))


if __name__ == "__main__":
    main()
