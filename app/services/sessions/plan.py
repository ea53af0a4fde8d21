"""The plan of a session, and its pretest items.

Sessions ask some pretest items to learn about these items, not about the examinee. Pretest items
have no parameters yet, so their positions come after those of the engine's bank. Their answers are
scored, stored and paid for like any others, but do not enter the figures of the test.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import numpy as np

from app.engine import Design
from app.engine.design.parts import StoppingDesign
from app.errors import FieldProblem, InvalidInputError
from app.records.figures import PretestFigures
from app.records.sessions import Closing, Plan
from app.services.banks.spec import MAX_PER_SESSION
from app.services.sessions.endings import FailureLimits
from app.services.sessions.figures import outcomes_in

# Key of this stream of random numbers; a session's others are [seed, step] and [seed, position].
_SLOTS = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PretestPlan:
    """Pretest items that a session asks beside its test.

    Attributes:
        items_per_session: Most pretest items of the session; None takes the bank's number.
        positions: Positions of the chosen items, in the order of asking.
    """

    items_per_session: int | None = None
    positions: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        wanted = self.items_per_session
        if wanted is not None and not 0 <= wanted <= MAX_PER_SESSION:
            expected = f"expected 0 to {MAX_PER_SESSION}, got {wanted}"
            raise InvalidInputError(
                f"pretest: items_per_session: {expected}.",
                problems=[FieldProblem("/pretest/items_per_session", expected)],
            )


class PretestItems:
    """The pretest items of one session as it runs.

    Each pretest item has a random place among the first items of the test. These are at least
    `min_items`, so that usually all pretest items are asked, and at least twice as many as pretest
    items, so that these do not dominate a short test, but at most `max_items`. The test never
    continues only for them.

    Attributes:
        pending: Positions of the pretest items that wait for an answer.
    """

    def __init__(self, plan: PretestPlan, stopping: StoppingDesign, *, seed: int) -> None:
        window = max(stopping.min_items or 0, 2 * len(plan.positions), 1)
        if stopping.max_items is not None:
            window = min(window, stopping.max_items)
        self._waiting = list(plan.positions)
        self._wanted = plan.items_per_session or 0
        self._n_planned = len(plan.positions)
        draws = np.random.default_rng([seed, *_SLOTS]).integers(0, window, self._n_planned)
        self._slots = sorted(draws.tolist())
        self._outcomes: Counter[str] = Counter()
        self.pending: set[int] = set()

    def due(self, n_asked: int) -> int | None:
        """Position of the pretest item to ask after `n_asked` items of the test; else None."""
        nth = self._n_planned - len(self._waiting)
        return self._waiting[0] if self._waiting and self._slots[nth] <= n_asked else None

    def ask(self, position: int) -> None:
        """Note that an item was asked."""
        if position in self._waiting:  # it is not in a session made from another one's answers
            self._waiting.remove(position)
        self.pending.add(position)

    def close(self, position: int, closing: Closing) -> None:
        """Note that an item was answered, or will not be."""
        self.pending.remove(position)
        self._outcomes[closing.outcome] += 1

    def figures(self) -> PretestFigures:
        """Figures of the pretest items in `GET /v1/sessions/{id}`."""
        caution = None
        if self._n_planned < self._wanted:
            there = f"only {self._n_planned}" if self._n_planned else "no"
            items = "item" if self._n_planned == 1 else "items"
            caution = (
                f"The bank version has {there} {items} without parameters that can be asked beside "
                f"the test; up to {self._wanted} were wanted."
            )
        return {
            "planned": self._n_planned,
            "items": self._outcomes.total(),
            "in_flight": len(self.pending),
            "outcomes": outcomes_in(self._outcomes),
            "caution": caution,
        }


#: Most times that one item may be asked.
MAX_REPEATS = 32
#: Most items in flight in a manual session.
MAX_BY_HAND = 64
_PATIENCE = ("answer_within", "idle_timeout")
_ANSWERING = ("repeats", "cache", *_PATIENCE)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """How a session is run: the engine's design and further settings.

    Attributes:
        repeats: Times that each item is asked; the mean of the scores is the item's score.
        cache: Whether answers are kept, and kept answers are used instead of calls.
        answer_within: Seconds after which a pending item of a manual session is closed as error.
        idle_timeout: Seconds of silence after which a manual session ends as cancelled.
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
    def from_dict(cls, stored: Plan) -> "SessionPlan":
        """Make a plan from the result of `to_dict`.

        Raises:
            InvalidInputError: A value makes no sense; problems have JSON pointers.
        """
        parts: dict[str, Any] = dict(stored)
        failures = parts.pop("failures", {})
        pretest = dict(parts.pop("pretest", {}))
        pretest["positions"] = tuple(pretest.get("positions", ()))
        answering = {name: parts.pop(name) for name in _ANSWERING if name in parts}
        limits, design = FailureLimits(**failures), Design.from_dict(parts)
        return cls(design, limits, PretestPlan(**pretest), **answering)

    @classmethod
    def of_new(cls, asked: Plan) -> "SessionPlan":
        """Make a plan from a request for a new test or for a replay.

        Raises:
            InvalidInputError: As in `from_dict`, or for settings that only stored tests may have.
        """
        plan = cls.from_dict(asked)
        plan.design.estimator.require_useful()
        return plan

    def to_dict(self) -> Plan:
        """The form in which a session stores its plan."""
        made = {
            **self.design.to_dict(),
            "failures": asdict(self.limits),
            "pretest": {**asdict(self.pretest), "positions": list(self.pretest.positions)},
            "repeats": self.repeats,
            "cache": self.cache,
            **{name: seconds for name in _PATIENCE if (seconds := getattr(self, name)) is not None},
        }
        return cast(Plan, made)
