"""What is told of something that happened."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


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
