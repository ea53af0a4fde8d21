"""Installations as stored."""

from dataclasses import dataclass
from typing import Any

from app.records.leased import LeasedRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationRecord(LeasedRecord):
    """One installation as stored; names as in the table `installations`."""

    entry: str
    progress: dict[str, Any]
    result: dict[str, Any] | None
