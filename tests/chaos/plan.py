"""Plans of faults, drawn from a seed before anything runs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

#: Processes to kill, weighted by frequency.
KILLED: Final = {
    "worker": 0.5, "api": 0.2, "model": 0.08, "backend": 0.1, "postmaster": 0.04, "child": 0.08,
}  # fmt: skip
#: Processes to halt and continue later.
HALTED: Final = ("worker", "api", "model", "postgres")
OUTAGES: Final = (
    "postgres_killed", "postgres_stopped", "network_cut", "network_held", "no_connections",
    "disk_full",
)  # fmt: skip
CLOCKS_S: Final = (3600, -3600, 40, -40, 0)


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """A fault.

    Attributes:
        at_s: Seconds after the start.
        kind: `kill`, `halt`, `outage` or `clock`.
        what: Process, kind of outage, or offset of the clock.
        nth: Index among several processes, modulo their number.
        lasts_s: Seconds until it is repaired.
    """

    at_s: float
    kind: str
    what: str
    nth: int
    lasts_s: float


def plan(
    seed: int,
    *,
    duration_s: float,
    kills: int,
    halts: int,
    outages: int,
    clocks: int,
    lease_s: float,
    without: Collection[str] = (),
) -> list[Fault]:
    """Return faults in the order in which they occur.

    Args:
        seed: Seed of the draws.
        duration_s: Time within which they occur.
        kills: Number of killed processes.
        halts: Number of halted processes, half of them for longer than a lease.
        outages: Number of database outages; all kinds are equally frequent.
        clocks: Number of jumps of the clock.
        lease_s: Lease of the workers.
        without: Outages that are impossible here.
    """
    rng = np.random.default_rng(seed)
    possible = [kind for kind in OUTAGES if kind not in without]

    def drawn(kind: str, n: int, whats: Sequence[str], longest_s: float) -> list[Fault]:
        # One in each of `n` equal spans, so that no long time passes without any.
        starts = (np.arange(n) + rng.uniform(0.1, 0.9, n)) * duration_s / max(n, 1)
        lasts = rng.uniform(0.2, 1.0, n) * longest_s
        nths = rng.integers(0, 1 << 30, n)
        return [
            Fault(float(at), kind, what, int(nth), float(s))
            for at, what, nth, s in zip(starts, whats, nths, lasts, strict=True)
        ]

    def in_turn(kinds: Sequence[str], n: int) -> list[str]:
        rounds = [rng.permutation(kinds) for _ in range(-(-n // len(kinds)))]
        return [str(kind) for part in rounds for kind in part][:n]

    killed = [str(who) for who in rng.choice(list(KILLED), kills, p=list(KILLED.values()))]
    return sorted(
        [
            *drawn("kill", kills, killed, 0.0),
            *drawn("halt", halts, in_turn(HALTED, halts), 1.5 * lease_s),
            *drawn("outage", outages, in_turn(possible, outages), 1.5 * lease_s),
            *drawn("clock", clocks, in_turn([str(s) for s in CLOCKS_S], clocks), 0.0),
        ]
    )
