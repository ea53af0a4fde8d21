"""Work that one worker at a time runs, and what is told of it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired, TypedDict

#: States in which a worker may hold it.
UNDERWAY = ("queued", "running")


class Failure(TypedDict):
    """Why nothing came of work."""

    code: str
    detail: str
    errors: NotRequired[list[dict[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasedRecord:
    """Work under a lease, as stored.

    Attributes:
        lease_epoch: Number of its lease, which every write of its worker names.
        lapses: How often in a row its lease ran out without a step.
        project_id: Whose it is.
        created_by: The API key that made it.
        request_id: The request that made it; None: the command line, or nobody noted it.
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
    """Something that happened in a session, a ranking or a calibration.

    Attributes:
        type: What, such as `session.completed`.
        data: JSON object that describes it.
        seq: Place among the events of its resource, from 1.
        created_at: When it was stored.
        withheld: It may quote a withheld bank, see `app.services.visibility`.
    """

    type: str
    data: dict[str, Any]
    seq: int
    created_at: datetime
    withheld: bool
