"""Work that one worker at a time runs under a lease, and its events."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

#: States in which a worker may hold the work.
UNDERWAY = ("queued", "running")
#: States that never change again.
ENDED = ("completed", "failed", "cancelled")


class Failure(TypedDict):
    """Why nothing came of work."""

    code: str
    detail: str
    errors: NotRequired[list[dict[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRecord:
    """Work under a lease, as stored.

    Attributes:
        lease_epoch: Number of the lease, which every write of its worker names.
        lapses: Number of times in a row that the lease ran out without a step.
        request_id: Request that created the work; None for the command line, or if not recorded.
    """

    id: str
    status: str
    lease_epoch: int
    lapses: int
    failure: Failure | None
    project_id: str
    created_by: str | None
    request_id: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event of a session, a ranking or a calibration.

    Attributes:
        type: Such as `session.completed`.
        seq: Position among the events of its resource, from 1.
        withheld: Whether it may quote a withheld bank, which `app.services.visibility` protects.
    """

    type: str
    data: dict[str, Any]
    seq: int
    created_at: datetime
    withheld: bool
