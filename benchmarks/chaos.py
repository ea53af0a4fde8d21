"""Random faults in a fleet of real processes, with an independent checker.

Two workers, two API processes and a model server on a durable Postgres are killed, halted and
disconnected by a plan from a seed, while sessions, rankings and calibrations run; see
`tests/chaos`. `missing` lists faults that are impossible on this machine. Exits with 1 if anything
was lost, counted twice or scored without an answer, or if a theta differs from its replay.

    uv run python benchmarks/chaos.py [--minutes 30] [--seed 1] [--keep DIR]
"""

# ruff: noqa: E402 (the tests are no package that is installed: the path below leads to them)
import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from app.storage.embedded import EmbeddedPostgres
from benchmarks.chaos_faults import (
    EveryFault,
    Proxy,
    plan,
    settable_clock,
    small_disk,
)
from tests.chaos.checker import Verdict
from tests.chaos.fleet import N_WORKERS, running_fleet
from tests.chaos.load import Load
from tests.chaos.run import run

_LEASE_S = 4.0


async def chaos(folder: Path, minutes: float, seed: int, tell: Callable[[str], object]) -> Verdict:
    """Run as much work and as many faults as fit into so many minutes."""
    duration_s, missing = 60 * minutes, dict[str, str]()
    load = Load(
        sessions=max(20, round(6.5 * minutes)),
        manual=max(4, round(0.7 * minutes)),
        rankings=max(2, round(minutes / 6)),
        calibrations=max(2, round(minutes / 6)),
        items=30,
        over_s=0.85 * duration_s,
    )
    async with contextlib.AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder, missing))
        # Sextant's processes load their code anew, as it must run under that clock.
        clock = stack.enter_context(settable_clock(folder, missing))
        postgres = EmbeddedPostgres(disk / "pg")
        socket = postgres._socket_dir / ".s.PGSQL.5432"  # noqa: SLF001  the proxies stand before it
        proxies = [Proxy(socket) for _ in range(2 * N_WORKERS)]
        for proxy in proxies:
            await proxy.start()
            stack.push_async_callback(proxy.close)
        fleet = await stack.enter_async_context(
            running_fleet(
                folder,
                postgres,
                seed=seed,
                lease_s=_LEASE_S,
                latency_s=1.0,
                urls=[f"postgresql://sextant@127.0.0.1:{one.port}/sextant" for one in proxies],
                environment=clock.environment if clock else {},
            )
        )
        faults = plan(
            seed,
            duration_s=duration_s,
            kills=max(10, round(9.5 * minutes)),
            halts=round(1.2 * minutes),
            outages=max(6, round(minutes)),
            clocks=round(0.5 * minutes),
            lease_s=_LEASE_S,
            without=missing,
        )
        everything = EveryFault(fleet, proxies=proxies, disk=disk, clock=clock)
        stack.push_async_callback(everything.mend)
        verdict = await run(everything, faults, load, limit_s=600.0, tell=tell)
    verdict.figures["missing"] = missing
    return verdict


def main() -> None:
    """Run, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="where logs of a run are kept")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()

    def tell(line: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {line}", file=sys.stderr, flush=True)

    folder = Path(tempfile.mkdtemp(prefix="sx-chaos-"))
    folder.chmod(0o755)
    try:
        verdict = asyncio.run(chaos(folder, given.minutes, given.seed, tell))
    finally:
        if given.keep:
            given.keep.mkdir(parents=True, exist_ok=True)
            for log in (*folder.glob("*.log"), *folder.glob("*.jsonl")):
                shutil.copy(log, given.keep)
        shutil.rmtree(folder)
    verdict.figures["minutes"] = round((time.monotonic() - began) / 60, 1)
    print(json.dumps(verdict.figures, indent=2))
    for fault in verdict.faults:
        print(f"FOUND: {fault}")
    print(f"{len(verdict.faults)} faults found")
    sys.exit(bool(verdict.faults))


if __name__ == "__main__":
    main()
