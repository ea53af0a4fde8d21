"""One run on a fleet: its work, faults, and the check."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, LiteralString

import httpx2
import psycopg

from tests.chaos.checker import Facts, Verdict, Watch, check
from tests.chaos.faults import Chaos, Fault
from tests.chaos.fleet import Fleet
from tests.chaos.load import Client, Load, work

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


async def run(
    chaos: Chaos,
    faults: Sequence[Fault],
    load: Load,
    *,
    limit_s: float,
    tell: Callable[[str], object] = lambda _: None,
) -> Verdict:
    """Do a complete run on a running fleet, with `limit_s` for the work after the last fault.

    Raises:
        TimeoutError: The work does not end although everything is repaired.
    """
    fleet = chaos.fleet
    watch = Watch(fleet.conninfo)

    async def look() -> None:
        while True:
            await asyncio.to_thread(watch.look)
            tell(f"{len(watch.seen)} answers seen, {chaos.played.total()} faults played")
            await asyncio.sleep(2)

    async with httpx2.AsyncClient(timeout=20, trust_env=False) as http:
        client = Client(fleet, http)
        await client.prepare(calibrates=load.calibrations > 0)
        looking = asyncio.create_task(look())
        working = asyncio.create_task(work(client, load))
        try:
            await chaos.play(faults)
            await _finished(working, fleet, limit_s)
        finally:
            looking.cancel()
            working.cancel()
            await asyncio.gather(looking, working, return_exceptions=True)
    wanted = {
        "sessions": load.sessions + load.manual,
        "rankings": load.rankings,
        "calibrations": load.calibrations,
    }
    with psycopg.connect(fleet.conninfo, autocommit=True) as connection:
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
        starts={program.name: program.starts for program in fleet.programs},
    )
    return verdict


async def _finished(working: asyncio.Task[Any], fleet: Fleet, limit_s: float) -> None:
    """Wait for the work, or report which part of it is stuck."""
    try:
        async with asyncio.timeout(limit_s):
            await working
    except TimeoutError as late:
        with psycopg.connect(fleet.conninfo, autocommit=True) as connection:
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
