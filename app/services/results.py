"""What an ended session found out, read from its stored figures."""

from dataclasses import dataclass
from typing import Any

from app.engine.estimation import Z_95
from app.errors import InvalidStateError
from app.storage.repositories.session_values import ENDED, SessionRecord


@dataclass(frozen=True, slots=True)
class Result:
    """Ability and predicted score of an ended session.

    Attributes:
        theta: Ability, logits; `None` where there is no estimate.
        se: Its standard error, as the model has it.
        ci: Its 95 % interval, corrected where the bank's version knows how.
        accuracy: `value`, `lo`, `hi` of the predicted whole-bank score, if there is one.
        n_scored: Answers that it stands on.
    """

    theta: float | None
    se: float | None
    ci: tuple[float | None, float | None]
    accuracy: dict[str, Any] | None
    n_scored: int

    @property
    def sd(self) -> float | None:
        """Standard deviation of theta's error, by the interval that holds."""
        lo, hi = self.ci
        return self.se if lo is None or hi is None else (hi - lo) / (2 * Z_95)


def result_of(record: SessionRecord) -> Result:
    """The result of a session that ended with one.

    Raises:
        InvalidStateError: It goes on, or has failed.
    """
    if record.status not in ENDED:
        raise InvalidStateError(
            f"Session {record.id} is {record.status}; this needs one that has ended."
        )
    if record.status == "failed":
        raise InvalidStateError(f"Session {record.id} has failed: {record.stop_detail}")
    estimate = record.summary["estimate"]
    lo, hi = estimate["ci"]
    return Result(
        theta=estimate["theta"],
        se=estimate["se"],
        ci=(lo, hi),
        accuracy=record.summary["accuracy"],
        n_scored=record.summary["progress"]["scored"],
    )
