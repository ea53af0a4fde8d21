"""Prometheus metrics, and the panels of the dashboard that query them."""

import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.main import create_app
from app.records.endpoints import Price
from app.services.container import Services
from app.settings import Settings
from app.storage.database import Database
from app.worker.loop import running_worker
from tests.api.conftest import client_of
from tests.services.calibrations import answers, queued
from tests.services.sessions import by_hand, spec, until
from tests.values import not_none
from tests.worker.models import Faults

BOARD = Path(__file__).parents[2] / "grafana" / "sextant.json"
Samples = dict[str, list[tuple[dict[str, str], float]]]
Scrape = Callable[[], Awaitable[Samples]]


def read(text: str) -> Samples:
    found: Samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    return found


def total(samples: Samples, name: str, **labels: str) -> float:
    """Return the sum of the samples with these labels, of which there must be one."""
    values = [value for own, value in samples[name] if labels.items() <= own.items()]
    assert values, f"{name}{labels} has no sample"
    return sum(values)


def require_shown(expression: str, legend: str, samples: Samples) -> None:
    """Assert that a dashboard query selects samples and groups by labels they have."""
    query = expression.replace("$__rate_interval", "5m")
    assert "$" not in query
    selected = re.findall(r"(sextant_\w+)(?:\{([^}]*)\})?(\[5m\])?", query)
    assert selected
    for name, matchers, window in selected:
        labels = dict(re.findall(r'(\w+)="([^"]*)"', matchers))
        assert len(labels) == matchers.count("="), f"only equality is understood: {query}"
        total(samples, name, **labels)
        # Rates need counters.
        assert bool(window) == name.endswith(("_total", "_bucket")), query
        known = samples[name][0][0].keys()
        groups = re.findall(r"by \(([^)]*)\)", query)
        assert {label for group in groups for label in group.split(", ")} <= known, query
        assert set(re.findall(r"{{(\w+)}}", legend)) <= known, legend


@asynccontextmanager
async def scraping(settings: Settings, database: Database) -> AsyncIterator[Scrape]:
    app = create_app(settings, database)
    async with app.router.lifespan_context(app), client_of(app) as client:

        async def look() -> Samples:
            answer = await client.get("/metrics")
            assert answer.status_code == 200
            return read(answer.text)

        yield look


@pytest.fixture
async def scrape(settings: Settings, database: Database) -> AsyncIterator[Scrape]:
    async with scraping(settings, database) as scrape:
        yield scrape


async def test_metrics_match_the_work_done_and_fill_each_panel(
    services: Services, scrape: Scrape, faults: Faults
) -> None:
    endpoint = faults.model("error_500-1", price=Price(input_per_1m=2.0, output_per_1m=30.0))
    session = await services.sessions.create(spec(endpoint=endpoint))
    await by_hand(services)
    calibration = await queued(services, answers(40, 12))
    underway, leases = "sextant_underway", "sextant_leases"

    before = await scrape()
    assert total(before, underway, kind="session", status="queued") == 1
    assert total(before, underway, kind="session", status="awaiting_response") == 1
    assert total(before, underway, kind="calibration", status="queued") == 1
    await services.calibrations.cancel(calibration.id)
    async with services.database.unit_of_work() as uow:
        lease = timedelta(seconds=60)
        held = not_none(await uow.sessions.claim(session.id, worker_id="w", lease=lease))
    claimed = await scrape()
    assert total(claimed, underway, kind="session", status="running") == 1
    assert total(claimed, leases, kind="session") == 1
    async with services.database.unit_of_work() as uow:
        await uow.sessions.release({session.id: held.lease_epoch})

    async with running_worker(services):
        ended = await until(services, session.id)
    after = await scrape()
    assert total(after, underway, kind="session", status="queued") == 0
    assert total(after, underway, kind="calibration") == total(after, leases) == 0
    usage = ended.summary["usage"]

    def rise(name: str, **labels: str) -> float:
        return total(after, name, **labels) - total(before, name, **labels)

    assert rise("sextant_tokens_total", direction="in") == (usage["tokens_in"] or 0) > 0
    assert rise("sextant_tokens_total", direction="out") == (usage["tokens_out"] or 0) > 0
    assert rise("sextant_usd_total") == pytest.approx(usage["usd"])
    assert rise("sextant_calls_total", outcome="answered") == 12
    assert total(after, "sextant_calls_total", outcome="endpoint_fault") >= 12
    assert rise("sextant_sessions_finished_total", status="completed") == 1

    for panel in json.loads(BOARD.read_text())["panels"]:
        for target in panel["targets"]:
            require_shown(target["expr"], target["legendFormat"], after)


async def test_without_a_database_the_process_metrics_are_served(settings: Settings) -> None:
    away = Database("postgresql+psycopg://nobody@127.0.0.1:9/none", pool_size=1)
    async with scraping(settings, away) as scrape:
        found = await scrape()
    await away.dispose()
    assert total(found, "sextant_tokens_total") >= 0
    assert not found["sextant_underway"]
