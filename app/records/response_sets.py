"""Response sets as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from app.acting import maker, owner


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseSet:
    """Recorded answers of many examinees to many items.

    Attributes:
        n_sheets: Examinees, each counted as often as it was tried.
        outcomes: Answers by outcome.
        imports: Where the answers come from, the newest last.
    """

    id: str
    name: str
    description: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    n_examinees: int = 0
    n_items: int = 0
    n_sheets: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    imports: Sequence[Mapping[str, Any]] = ()
    revision: int
    project_id: str = field(default_factory=owner)
    created_by: str | None = field(default_factory=maker)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class StoredSheet:
    """Answers of one examinee in one trial, as bytes.

    Attributes:
        codes: One byte an item, by position; items beyond the end were not asked.
        fractions: Scores that no code stands for, float64 little-endian; `None` without such.
    """

    examinee: str
    trial: int
    codes: bytes
    fractions: bytes | None = None
