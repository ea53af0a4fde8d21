"""A run of a few seconds; `benchmarks/chaos.py` runs for half an hour."""

from pathlib import Path

import pytest

from tests.chaos.run import Size, run

SIZE = Size(
    duration_s=8,
    kills=6,
    halts=1,
    outages=2,
    clocks=0,
    sessions=6,
    manual=2,
    rankings=1,
    calibrations=0,
    items=8,
    latency_s=0.2,
    lease_s=2,
    limit_s=300,
)


@pytest.mark.slow
async def test_a_fleet_under_faults_loses_and_doubles_nothing(scratch: Path) -> None:
    verdict = await run(scratch, SIZE, seed=5)
    assert verdict.faults == []
    assert verdict.figures["sessions"] == 6 + 2 + 3
    assert sum(verdict.figures["played"].values()) >= 5
