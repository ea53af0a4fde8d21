"""Ended sessions as a source of recorded answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

SIMULATED = "scripted"
"""Kind of the endpoints that no model stands behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Sessions whose answers are wanted.

    Attributes:
        bank_id: On this bank.
        version_id: On this version of it alone.
        since: That ended at this moment or later.
        simulated: Those of simulated examinees, too.
    """

    bank_id: str
    version_id: str | None = None
    since: datetime | None = None
    simulated: bool = False


class EndedSession(NamedTuple):
    """A session whose answers can be taken over.

    Attributes:
        root_id: The session that it goes on from, over any number of extensions; else itself.
        examinee: Name of its endpoint, or of the model; None where answers were given by hand.
        asked: How its answers were obtained; empty where nobody noted it.
    """

    id: str
    root_id: str
    examinee: str | None
    asked: Mapping[str, Any]


class GivenAnswer(NamedTuple):
    """One closed item of a session."""

    session_id: str
    step: int
    item_key: str
    outcome: str
    score: float | None
    is_pretest: bool
