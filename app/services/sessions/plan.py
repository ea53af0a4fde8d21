"""How a session is run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from app.engine import Design
from app.services.sessions.failure_limits import FailureLimits
from app.services.sessions.pretest import PretestPlan


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """How a session is run: the engine's design, and what goes beyond it."""

    design: Design
    limits: FailureLimits = field(default_factory=FailureLimits)
    pretest: PretestPlan = field(default_factory=PretestPlan)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SessionPlan":
        """From what `to_dict` made, or from a request.

        Raises:
            InvalidInputError: A value that makes no sense, with JSON pointers.
        """
        parts = dict(stored)
        failures = parts.pop("failures", {})
        pretest = PretestPlan.from_dict(parts.pop("pretest", {}))
        return cls(Design.from_dict(parts), FailureLimits(**failures), pretest)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; what a session stores."""
        return {
            **self.design.to_dict(),
            "failures": asdict(self.limits),
            "pretest": self.pretest.to_dict(),
        }
