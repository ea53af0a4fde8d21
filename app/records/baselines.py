"""Baselines as stored: what later sessions are held against."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The figures of an ended session, kept apart from it: they outlast it.

    Attributes:
        session_id: Whose figures they are.
        label: Who was asked.
        seed: Of the session. With the same one a model like it is asked mostly the same items.
        design: How it was asked.
        summary: Its `estimate`, `accuracy` and `progress`, as the session had them.
        residuals: Id of each scored item -> score less what the ability lets expect.
    """

    session_id: str
    label: str
    bank: str
    bank_version_id: str
    seed: int
    design: dict[str, Any]
    summary: dict[str, Any]
    residuals: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedBaseline:
    """A baseline under a name that can be moved.

    Attributes:
        created_by: The API key that may move it; None for the command line.
    """

    name: str
    project_id: str
    created_by: str | None
    baseline: Baseline
    set_at: datetime
