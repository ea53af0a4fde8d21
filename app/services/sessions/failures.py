"""When failures end a session."""

from dataclasses import dataclass

from scipy.special import bdtrc

from app.engine import Stop, StopReason
from app.errors import InvalidInputError, ScorerBudgetError
from app.items import Outcome
from app.records.sessions import Closing

#: The share of failures is watched from so many closed items on: among fewer, nine in ten happen.
FIRST_ITEMS_FOR_SHARE = 10
#: From so many on it is taken as it is. Before, it must surely be too large: the lower end of its
#: 95 % interval (Clopper and Pearson) has to lie at the limit or above.
MIN_ITEMS_FOR_SHARE = 50
_TAIL = 0.025


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureLimits:
    """When failures end a session.

    Attributes:
        max_consecutive: So many calls in a row without any answer (outcome `error`): the endpoint
            is down. Answers that came and that the scorer could not mark are not the endpoint's
            failures: twice as many of them in a row end the session, and the scorer is named.
        max_share: Share of closed items without a score, whatever the reason, that is too much.
    """

    max_consecutive: int = 5
    max_share: float = 0.5

    def __post_init__(self) -> None:
        if self.max_consecutive < 1 or not 0 < self.max_share <= 1:
            raise InvalidInputError(
                "failures: max_consecutive is at least 1 and max_share in (0, 1], got "
                f"{self.max_consecutive} and {self.max_share:g}."
            )

    def exceeded(self, failed: int, closed: int) -> bool:
        """Whether more of the closed items ended without a score than is allowed.

        A session whose share is within the limit is hardly ever ended by bad luck: of ten items
        nine must have failed where half may, seven where a third may.
        """
        if closed < FIRST_ITEMS_FOR_SHARE or failed <= self.max_share * closed:
            return False
        if closed >= MIN_ITEMS_FOR_SHARE:
            return True
        # P(as many failures or more), were the true share the limit.
        return bool(bdtrc(failed - 1, closed, self.max_share) <= _TAIL)


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
            f"{last.reason} Answers without a score are kept: rescore the session.",
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
                f"{self._unmarked} answers in a row could not be scored; the last "
                f"({last.error_code}): {last.reason}"
            )
        elif self._limits.exceeded(failed, closed):
            detail = (
                f"{failed} of {closed} answers could not be scored (limit "
                f"{100 * self._limits.max_share:g} %)."
            )
        return None if detail is None else Stop(StopReason.TOO_MANY_FAILURES, detail)
