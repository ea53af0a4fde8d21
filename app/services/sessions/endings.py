"""When failures end a session, and how its end is told."""

from dataclasses import dataclass

from scipy.special import bdtrc

from app.engine import Stop, StopReason
from app.errors import InvalidInputError, ScorerBudgetError, SextantError
from app.items import Outcome
from app.records.figures import ResultFigures
from app.records.leased import Failure
from app.records.sessions import Advance, Closing, Ending, SessionEvent, SessionRecord

#: Ends that are answers of their own: any other needs something to stand on.
_SPENT = (StopReason.TIME_LIMIT, StopReason.BUDGET_EXHAUSTED)
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

#: What is to be done about failures, by where they lie.
_ENDPOINT = "Repair the endpoint, then continue the session (sextant sessions extend)."
_SCORER = "Repair the scorer, then rescore the session (sextant sessions rescore)."
_ANSWERS = (
    "Read some answers (sextant sessions answers ID --unparsed): the prompt, max_tokens or the "
    "scorer does not fit the model."
)


#: Ends the code of an answer that nobody marked because the scorer's budget was spent.
SCORER_BUDGET = f"_{ScorerBudgetError.code}"


class Failures:
    """Counts the failures of one session as its items are closed."""

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
        last, failed = self.last, closed - scored
        detail = None
        if last is not None and (last.error_code or "").endswith(SCORER_BUDGET):
            # Its scorer may not spend any more: nobody would mark the rest.
            return Stop(
                StopReason.BUDGET_EXHAUSTED,
                f"{_reason(last)} Answers without a score are kept: rescore the session "
                "(sextant sessions rescore).",
            )
        if last is not None and last.error_code == StopReason.TIME_LIMIT:
            return None  # calls that we gave up ourselves say nothing about the endpoint
        failing = self._unanswered or self._unmarked
        if last is not None and last.error_code in FATAL_CODES and failing:
            todo = _ENDPOINT if last.error_code.startswith("endpoint") else _SCORER
            detail = f"Every further call would fail like the last one: {_reason(last)} {todo}"
        elif last is not None and self._unanswered >= self._limits.max_consecutive:
            detail = (
                f"{self._unanswered} calls in a row failed; the last: {_reason(last)} {_ENDPOINT}"
            )
        elif last is not None and self._unmarked >= (
            UNMARKED_PER_CALL * self._limits.max_consecutive
        ):
            detail = (
                f"{self._unmarked} answers in a row could not be scored; the last "
                f"({last.error_code}): {_reason(last)} {_SCORER}"
            )
        elif self._limits.exceeded(failed, closed):
            detail = (
                f"{failed} of {closed} answers could not be scored (limit "
                f"{100 * self._limits.max_share:g} %). {_ANSWERS}"
            )
        return None if detail is None else Stop(StopReason.TOO_MANY_FAILURES, detail)


def _reason(closing: Closing) -> str:
    """Why an answer has no score, as a sentence that another may follow."""
    return f"{(closing.reason or 'unknown').rstrip('.')}."


def ending_of(
    stop: Stop,
    *,
    closed: int,
    scored: int,
    last_failure: Closing | None,
    precision_reached: bool | None,
    precise_since: int | None,
    min_items: int,
) -> Ending:
    """How a test ends."""
    is_failed = stop.reason is StopReason.TOO_MANY_FAILURES
    if not is_failed and closed > 0 and scored == 0 and stop.reason not in _SPENT:
        is_failed = True
        missed = last_failure or Closing(outcome=Outcome.ERROR)
        is_call = missed.outcome == Outcome.ERROR and missed.marking is None
        todo = _ENDPOINT if is_call else _ANSWERS
        stop = Stop(
            StopReason.TOO_MANY_FAILURES,
            f"None of {closed} answers could be scored; the last: {_reason(missed)} {todo}",
        )
    detail = stop.detail
    failure: Failure | None = None
    if is_failed:
        failure = {
            "code": (last_failure and last_failure.error_code) or "too_many_failures",
            "detail": (last_failure and last_failure.reason) or detail,
        }
    elif precise_since is not None and precise_since < min_items:
        detail += (
            f" The SE target was reached with answer {precise_since}; min_items {min_items} kept "
            "the test going."
        )
    return Ending(
        status="failed" if is_failed else "completed",
        stop_reason=stop.reason.value,
        stop_detail=detail,
        precision_reached=precision_reached,
        failure=failure,
    )


def failed(error: SextantError) -> Ending:
    """The end of a session by an error that is not an answer's."""
    return Ending(
        status="failed",
        stop_reason=StopReason.CUSTOM.value,
        stop_detail=error.detail,
        precision_reached=None,
        failure={"code": error.code, "detail": error.detail},
    )


def abandoned(record: SessionRecord, ending: Ending) -> Advance:
    """What storage is to write when a session ends by a fault of our own: figures as they are."""
    return Advance(
        events=[ended_event(ending, record.summary)],
        summary=record.summary,
        active_s=record.active_s,
        ending=ending,
    )


def ended_event(ending: Ending, figures: ResultFigures) -> SessionEvent:
    """The event that ends a session's list of events."""
    return SessionEvent(
        f"session.{ending.status}",
        {
            "stop_reason": ending.stop_reason,
            "stop_detail": ending.stop_detail,
            "precision_reached": ending.precision_reached,
            "estimate": figures["estimate"],
            "score": figures["score"],
        },
    )
