"""How much faster a session is with several items in flight, and how many more items that takes.

Real sessions by a real worker on a Postgres of its own, of scripted endpoints that answer after
200 ms, to the same width of the interval: of theta on the demo bank, of the predicted score on a
bank of several abilities, chosen by V-optimality.

    uv run python benchmarks/in_flight.py [--endpoints 6] [--latency-ms 200]
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from app.calibration.abilities import learn_abilities
from app.calibration.ability_settings import Method, MultidimensionalSettings
from app.engine.ability_knowledge import (
    ABILITIES,
    PREDICTION,
    abilities_to_dict,
    prediction_to_dict,
)
from app.exchange.item_record import ItemRecord
from app.items import ItemContent
from app.services.bank_import import BankImport
from app.services.bank_spec import BankSpec
from app.services.container import Services, open_services
from app.services.endpoints import EndpointSpec
from app.services.sessions import SessionSpec
from app.settings import Settings
from app.storage.database import Database
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import upgrade
from app.storage.repositories.endpoints import EndpointSettings
from app.storage.repositories.session_values import ENDED
from app.worker.loop import running_worker
from app.worker.queue import JobQueue

IN_FLIGHT = (1, 2, 4, 8)
N_ITEMS = 300
BINARY = {"stopping": {"se": 0.2, "min_items": 10, "max_items": 150}}
SEVERAL = {
    "selection": {"criterion": "v_optimal"},
    "stopping": {"se": None, "prediction_width": 0.14, "min_items": 10, "max_items": 150},
}


async def several_abilities(services: Services) -> None:
    """A bank of two tasks, calibrated on 300 simulated examinees."""
    rng = np.random.default_rng(1)
    task = np.arange(N_ITEMS) % 2
    theta = rng.normal(size=(300, 1)) + 0.7 * rng.normal(size=(300, 2))[:, task]
    logit = rng.lognormal(0.0, 0.3, N_ITEMS) * (theta - rng.normal(size=N_ITEMS))
    scores = (rng.random(logit.shape) < 1 / (1 + np.exp(-logit))).astype(np.float64)
    keys = [f"{'ab'[t]}/{i}" for i, t in enumerate(task)]
    learned = learn_abilities(
        scores,
        keys,
        MultidimensionalSettings(dimensions=2, method=Method.JOINT),
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


async def measured(
    services: Services,
    bank: str,
    plan: dict[str, Any],
    in_flight: int,
    endpoints: list[dict[str, Any]],
) -> tuple[float, float]:
    """Mean seconds and mean items of sessions of all endpoints, run at the same time."""
    made = [
        await services.sessions.create(
            SessionSpec(
                mode="live",
                bank=bank,
                endpoint=EndpointSpec(
                    settings=EndpointSettings(kind="scripted", model="simulated", options=options)
                ),
                plan={**plan, "concurrency": in_flight},
                seed=11,
            )
        )
        for options in endpoints
    ]
    ended = []
    for session in made:
        record = await services.sessions.get(session.id)
        while record.status not in ENDED:
            await asyncio.sleep(0.1)
            record = await services.sessions.get(session.id)
        assert record.status == "completed", record.failure
        ended.append(record.summary)
    return (
        float(np.mean([summary["usage"]["seconds"] for summary in ended])),
        float(np.mean([summary["progress"]["items"] for summary in ended])),
    )


async def compare(services: Services, count: int, latency_ms: float) -> None:
    await services.banks.ensure_demo_bank()
    await several_abilities(services)
    thetas = np.linspace(-1.2, 1.2, count)
    async with running_worker(services):
        for name, bank, plan in (("binary", "demo", BINARY), ("several", "several", SEVERAL)):
            first = None
            for in_flight in IN_FLIGHT:
                endpoints = [
                    {
                        "theta": float(theta),
                        "seed": seed,
                        "latency_ms": latency_ms,
                        "skills": {"a/": float(theta) + 0.5, "b/": float(theta) - 0.5},
                    }
                    for seed, theta in enumerate(thetas)
                ]
                seconds, items = await measured(services, bank, plan, in_flight, endpoints)
                first = first or (seconds, items)
                print(
                    f"{name:>8} {in_flight} in flight: {seconds:6.2f} s, {items:5.1f} items; "
                    f"{first[0] / seconds:.1f}x as fast, {items / first[1] - 1:+.1%} items",
                    flush=True,
                )


async def run(url: str, folder: Path, count: int, latency_ms: float) -> None:
    await asyncio.to_thread(upgrade, url)
    database = Database(url)
    try:
        settings = Settings(database_url=url, data_dir=folder, log_level="warning")
        async with open_services(settings, database, JobQueue(database)) as services:
            await compare(services, count, latency_ms)
    finally:
        await database.dispose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--endpoints", type=int, default=6)
    parser.add_argument("--latency-ms", type=float, default=200.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sx-", dir="/tmp") as scratch:
        Path(scratch).chmod(0o755)
        with EmbeddedPostgres(Path(scratch) / "data") as postgres:
            asyncio.run(run(postgres.url, Path(scratch), arguments.endpoints, arguments.latency_ms))


if __name__ == "__main__":
    main()
