"""How a session is run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from app.engine import Design
from app.errors import FieldProblem, InvalidInputError
from app.services.sessions.endings import FailureLimits
from app.services.sessions.pretest import PretestPlan
from app.services.sessions.repeats import MAX_REPEATS

#: Items in flight at once of a manual session.
MAX_BY_HAND = 64
_PATIENCE = ("answer_within", "idle_timeout")
_ANSWERING = ("repeats", "cache", *_PATIENCE)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """How a session is run: the engine's design, and what goes beyond it.

    Attributes:
        repeats: Times that each item is asked; the mean of the scores is its score.
        cache: Keep answers, and take kept ones instead of calls.
        answer_within: Of a manual session: seconds after which an awaited item is closed as error.
        idle_timeout: Of a manual session: seconds of silence after which it ends as cancelled.
    """

    design: Design
    limits: FailureLimits = field(default_factory=FailureLimits)
    pretest: PretestPlan = field(default_factory=PretestPlan)
    repeats: int = 1
    cache: bool = False
    answer_within: float | None = None
    idle_timeout: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.repeats <= MAX_REPEATS:
            detail = f"expected 1 to {MAX_REPEATS}, got {self.repeats}"
            raise InvalidInputError(
                f"repeats: {detail}.", problems=[FieldProblem("/repeats", detail)]
            )

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SessionPlan":
        """From what `to_dict` made.

        Raises:
            InvalidInputError: A value that makes no sense, with JSON pointers.
        """
        parts = dict(stored)
        failures = parts.pop("failures", {})
        pretest = PretestPlan.from_dict(parts.pop("pretest", {}))
        answering = {name: parts.pop(name) for name in _ANSWERING if name in parts}
        return cls(Design.from_dict(parts), FailureLimits(**failures), pretest, **answering)

    @classmethod
    def of_new(cls, asked: Mapping[str, Any]) -> "SessionPlan":
        """From a request: of a test that is to begin, or whose answers are estimated anew.

        Raises:
            InvalidInputError: As for `from_dict`, and what is let pass of stored tests alone.
        """
        plan = cls.from_dict(asked)
        plan.design.estimator.require_useful()
        return plan

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what a session stores."""
        return {
            **self.design.to_dict(),
            "failures": asdict(self.limits),
            "pretest": self.pretest.to_dict(),
            "repeats": self.repeats,
            "cache": self.cache,
            **{name: seconds for name in _PATIENCE if (seconds := getattr(self, name)) is not None},
        }
