"""Random faults in a fleet of real processes, with an independent checker.

Two workers, two API processes and a model server on a durable Postgres are killed, halted and
disconnected by a plan from a seed, while sessions, rankings and calibrations run; see
`tests/chaos`. `missing` lists faults that are impossible on this machine. Exits with 1 if anything
was lost, counted twice or scored without an answer, or if a theta differs from its replay.

    uv run python benchmarks/chaos.py [--minutes 30] [--seed 1] [--keep DIR]
"""

import argparse
import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.chaos.run import Size, run  # noqa: E402 (the tests are no package that is installed)


def sized(minutes: float) -> Size:
    """Return as much work as fits into so many minutes."""
    return Size(
        duration_s=60 * minutes,
        kills=max(10, round(9.5 * minutes)),
        halts=round(1.2 * minutes),
        outages=max(6, round(minutes)),
        clocks=round(0.5 * minutes),
        sessions=max(20, round(6.5 * minutes)),
        manual=max(4, round(0.7 * minutes)),
        rankings=max(2, round(minutes / 6)),
        calibrations=max(2, round(minutes / 6)),
        items=30,
        latency_s=1.0,
        lease_s=4.0,
        limit_s=600.0,
    )


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
        verdict = asyncio.run(run(folder, sized(given.minutes), seed=given.seed, tell=tell))
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
