"""Gates as stored."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRecord:
    """A gate as stored; its outcome follows from its session, which never changes once it ended.

    Attributes:
        metric: `theta` or `score`.
        tag: Of whose items the score is; None is the whole bank.
        direction: `above` or `below`: where a go lies.
    """

    id: str
    session_id: str
    metric: str
    tag: str | None
    threshold: float
    direction: str
    confidence: float
    created_at: datetime
