"""Rankings as stored."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

#: States in which a worker may hold the ranking.
UNDERWAY = ("queued", "running")


#: States in which nothing is asked any more; a completed one goes on when somebody joins.
ENDED = ("completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRecord:
    """One ranking as stored; names as in the table `rankings`.

    Attributes:
        withheld: Its bank is.
    """

    id: str
    bank_version_id: str
    bank_id: str
    bank_name: str
    bank_version: int
    withheld: bool
    settings: dict[str, Any]
    seed: int
    metadata: dict[str, str]
    status: str
    lease_epoch: int
    lapses: int
    summary: dict[str, Any]
    stop_reason: str | None
    stop_detail: str | None
    failure: dict[str, Any] | None
    event_seq: int
    project_id: str
    created_by: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingEnd:
    """How a ranking ended."""

    status: str
    stop_reason: str
    stop_detail: str
    failure: dict[str, Any] | None = None
