"""When failures end a session."""

from app.engine import Stop, StopReason
from app.errors import ScorerBudgetError
from app.items import Outcome
from app.records.sessions import Closing
from app.services.sessions.failure_limits import FailureLimits

#: Unmarked answers in a row that are taken for as much as one call without an answer: a judge that
#: fails now and then is no use less often than an endpoint that does.
UNMARKED_PER_CALL = 2


#: Failures that every further call would meet again: no use in asking on.
FATAL_CODES = frozenset(
    f"{who}_{what}"
    for who in ("endpoint", "judge", "embedding", "callback")
    for what in ("unauthorized", "address_blocked", "moved", "no_likelihoods")
)


#: Ends the code of an answer that nobody marked because the scorer's budget was spent.
SCORER_BUDGET = f"_{ScorerBudgetError.code}"


class Failures:
    """Counts the failures of one session as its items are closed.

    Attributes:
        last: The last item without a score; None where there is none.
    """

    def __init__(self, limits: FailureLimits) -> None:
        self._limits = limits
        self._unanswered = self._unmarked = 0
        self.last: Closing | None = None

    def take(self, closing: Closing) -> None:
        """Count how an item of the test was closed."""
        if closing.score is None:
            self.last = closing
        if closing.outcome != Outcome.ERROR:
            self._unanswered = self._unmarked = 0
        elif closing.marking is None:
            self._unanswered += 1
        else:  # the endpoint has answered, and the scorer called out in vain
            self._unanswered, self._unmarked = 0, self._unmarked + 1

    def stop(self, *, closed: int, scored: int) -> Stop | None:
        """Why the session ends by its failures, given how many items are closed, and scored."""
        return self._unmarkable() or self._too_many_failures(closed, scored)

    def _unmarkable(self) -> Stop | None:
        """The end of a session whose scorer may not spend any more: nobody would mark the rest."""
        last = self.last
        if last is None or not (last.error_code or "").endswith(SCORER_BUDGET):
            return None
        return Stop(
            StopReason.BUDGET_EXHAUSTED,
            f"{last.reason} Answers without a mark are kept: rescore the session to mark them.",
        )

    def _too_many_failures(self, closed: int, scored: int) -> Stop | None:
        last, failed = self.last, closed - scored
        detail = None
        if last is not None and last.error_code == StopReason.TIME_LIMIT:
            return None  # calls that we gave up ourselves say nothing about the endpoint
        failing = self._unanswered or self._unmarked
        if last is not None and last.error_code in FATAL_CODES and failing:
            detail = f"Every further call would fail like the last one: {last.reason}"
        elif last is not None and self._unanswered >= self._limits.max_consecutive:
            detail = f"{self._unanswered} calls in a row failed; the last: {last.reason}"
        elif last is not None and self._unmarked >= (
            UNMARKED_PER_CALL * self._limits.max_consecutive
        ):
            detail = (
                f"{self._unmarked} answers in a row came and could not be marked; the last "
                f"({last.error_code}): {last.reason}"
            )
        elif self._limits.exceeded(failed, closed):
            detail = (
                f"{failed} of {closed} items ended without a score, more than the share of "
                f"{self._limits.max_share:g} that is allowed."
            )
        return None if detail is None else Stop(StopReason.TOO_MANY_FAILURES, detail)
