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
        lineage: Ids of the session and of those that it was made from.
        extensions: How often it went on after it had ended: so often it was looked at before.
        withheld: Its questions are.
        seed: Of the session. With the same one a model like it is asked mostly the same items.
        design: How it was asked.
        provenance: `asked` and `asking` of the session's: in which way.
        summary: Figures of the session: `estimate`, `score`, `progress`, `profile`.
        residuals: Id of each scored item -> score less what the ability lets expect.
        cautions: Metric -> why to trust it less, if there is anything to say.
    """

    session_id: str
    label: str
    lineage: list[str]
    extensions: int
    withheld: bool
    bank: str
    bank_version_id: str
    seed: int
    design: dict[str, Any]
    provenance: dict[str, Any]
    summary: dict[str, Any]
    residuals: dict[str, float]
    cautions: dict[str, str | None]


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
