"""One run: a fleet, its work, faults, and the check."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, LiteralString

import httpx2

from tests.chaos.checker import Facts, Verdict, Watch, check
from tests.chaos.faults import Chaos
from tests.chaos.fleet import Fleet, running_fleet
from tests.chaos.load import Client, work
from tests.chaos.plan import Fault, plan

#: Unfinished work, and calls without a response so far.
_STANDING: Final[tuple[LiteralString, ...]] = (
    """
    SELECT id, mode, status, arrivals, lease_epoch, lapses, lease_expires_at - now(), metadata
    FROM sessions WHERE finished_at IS NULL
    """,
    "SELECT id, status, lease_expires_at - now() FROM rankings WHERE finished_at IS NULL",
    "SELECT id, status, lease_expires_at - now() FROM calibrations WHERE finished_at IS NULL",
    """
    SELECT key, now() - created_at, audit_id FROM idempotency_keys WHERE response_status IS NULL
    """,
)


@dataclass(frozen=True, kw_only=True)
class Size:
    """Amount of work and faults.

    Attributes:
        limit_s: Time for the work after the last fault.
    """

    duration_s: float
    kills: int
    halts: int
    outages: int
    clocks: int
    sessions: int
    manual: int
    rankings: int
    calibrations: int
    items: int
    latency_s: float
    lease_s: float
    limit_s: float


async def run(
    folder: Path, size: Size, *, seed: int, tell: Callable[[str], object] = lambda _: None
) -> Verdict:
    """Do a complete run in an empty directory open to other users.

    Raises:
        TimeoutError: The work does not end although everything is repaired.
    """
    async with running_fleet(
        folder,
        seed=seed,
        lease_s=size.lease_s,
        latency_s=size.latency_s,
        with_clock=size.clocks > 0,
    ) as fleet:
        faults = plan(
            seed,
            duration_s=size.duration_s,
            kills=size.kills,
            halts=size.halts,
            outages=size.outages,
            clocks=size.clocks,
            lease_s=size.lease_s,
            without=fleet.missing,
        )
        return await _run(fleet, size, faults, tell)


async def _run(
    fleet: Fleet, size: Size, faults: list[Fault], tell: Callable[[str], object]
) -> Verdict:
    watch, chaos = Watch(fleet.conninfo), Chaos(fleet)

    async def look() -> None:
        while True:
            await asyncio.to_thread(watch.look)
            tell(f"{len(watch.seen)} answers seen, {chaos.played.total()} faults played")
            await asyncio.sleep(2)

    async with httpx2.AsyncClient(timeout=20, trust_env=False) as http:
        client = Client(fleet, http)
        await client.prepare(calibrates=size.calibrations > 0)
        looking = asyncio.create_task(look())
        working = asyncio.create_task(
            work(
                client,
                sessions=size.sessions,
                manual=size.manual,
                rankings=size.rankings,
                calibrations=size.calibrations,
                items=size.items,
                over_s=0.85 * size.duration_s,
            )
        )
        try:
            await chaos.play(faults)
            await _finished(working, fleet, size.limit_s)
        finally:
            looking.cancel()
            working.cancel()
            await asyncio.gather(looking, working, return_exceptions=True)
    wanted = {
        "sessions": size.sessions + size.manual,
        "rankings": size.rankings,
        "calibrations": size.calibrations,
    }
    with fleet.connect() as connection:
        facts = Facts.read(connection, fleet.model_log)
    verdict = await asyncio.to_thread(
        check,
        facts,
        wanted=wanted,
        disturbed_model=chaos.disturbed_model,
        seen=watch.seen,
        acknowledged=client.acknowledged,
    )
    verdict.faults.extend(client.refused)
    verdict.faults.extend(_complaints(fleet))
    verdict.figures.update(
        played=dict(chaos.played),
        missing=fleet.missing,
        starts={program.name: program.starts for program in fleet.programs},
    )
    return verdict


async def _finished(working: asyncio.Task[Any], fleet: Fleet, limit_s: float) -> None:
    """Wait for the work, or report which part of it is stuck."""
    try:
        async with asyncio.timeout(limit_s):
            await working
    except TimeoutError as late:
        with fleet.connect() as connection:
            found = [
                str(row) for query in _STANDING for row in connection.execute(query).fetchall()
            ]
        raise TimeoutError("\n".join(["This has not ended:", *found])) from late


def _complaints(fleet: Fleet) -> list[str]:
    """Return internal errors from the logs; effects of an outage are a single line."""
    found: dict[str, str] = {}
    for program in (*fleet.workers, *fleet.apis):
        for line in program.log.read_text(errors="replace").splitlines():
            noted = _noted(line)
            is_ours = str(noted.get("logger")).startswith("app.")
            if is_ours and noted.get("level") == "error" and "exception" in noted:
                found.setdefault(str(noted["exception"])[-1500:], program.name)
    return [f"{name} noted: {what}" for what, name in found.items()]


def _noted(line: str) -> Mapping[str, Any]:
    try:
        noted = json.loads(line)
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}
