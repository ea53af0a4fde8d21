"""A run of a few seconds; `benchmarks/chaos.py` runs for half an hour, with more faults."""

from pathlib import Path

import pytest

from app.storage.embedded import EmbeddedPostgres
from tests.chaos.faults import Chaos, Fault
from tests.chaos.fleet import running_fleet
from tests.chaos.load import Load
from tests.chaos.run import run

FAULTS = (
    Fault(0.6, "kill", "backend", nth=5),
    Fault(1.5, "kill", "backend", nth=2),
    Fault(2.7, "outage", "postgres_stopped", lasts_s=1.8),
    Fault(2.9, "kill", "api", nth=1),
    Fault(4.4, "outage", "postgres_killed", lasts_s=1.6),
    Fault(5.1, "halt", "postgres", lasts_s=2.7),
    Fault(5.2, "kill", "worker", nth=1),
    Fault(6.2, "kill", "worker"),
    Fault(7.1, "kill", "worker", nth=1),
)
LOAD = Load(sessions=6, manual=2, rankings=1, items=8, over_s=7)


@pytest.mark.slow
async def test_a_fleet_under_faults_loses_and_doubles_nothing(scratch: Path) -> None:
    postgres = EmbeddedPostgres(scratch / "pg")
    async with running_fleet(scratch, postgres, seed=5, lease_s=2, latency_s=0.2) as fleet:
        verdict = await run(Chaos(fleet), FAULTS, LOAD, limit_s=300)
    assert verdict.faults == []
    assert verdict.figures["sessions"] == 6 + 2 + 3
    assert sum(verdict.figures["played"].values()) >= 5
