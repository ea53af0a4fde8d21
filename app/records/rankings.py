"""Rankings as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app.records.figures import RankingFigures, RankingSettings
from app.records.leased import Failure, LeasedRecord
from app.records.sessions import Advance, SessionEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingRecord(LeasedRecord):
    """One ranking as stored; names as in the table `rankings`.

    Attributes:
        withheld: Its bank is.
    """

    bank_version_id: str
    bank_id: str
    bank_name: str
    bank_version: int
    withheld: bool
    settings: RankingSettings
    seed: int
    metadata: dict[str, str]
    summary: RankingFigures
    stop_reason: str | None
    stop_detail: str | None
    event_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingEnd:
    """How a ranking ended."""

    status: str
    stop_reason: str
    stop_detail: str
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingStep:
    """One step forward of a ranking, and of its members by session id."""

    summary: RankingFigures
    events: Sequence[SessionEvent] = ()
    end: RankingEnd | None = None
    members: Mapping[str, Advance] = field(default_factory=dict)
