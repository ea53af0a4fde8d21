"""What became of an item in tests."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemUse:
    """Over all tests of a version.

    Attributes:
        asked: How often.
        marked: Answers that have a score.
        mean: Of the scores; None without any.
    """

    position: int
    asked: int
    marked: int
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnswer:
    """One answer, without its text.

    Attributes:
        examinee: Name of who was asked; None where a test was answered by hand.
        theta: Ability as the test knows it by now; None where none is told.
    """

    session_id: str
    examinee: str | None
    theta: float | None
    step: int
    outcome: str
    score: float | None
    answered_at: datetime | None
