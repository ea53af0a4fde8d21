"""Failures that end a session, and how it then ends."""

from dataclasses import replace
from math import comb
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from app.engine import Stop, StopReason
from app.errors import InvalidInputError
from app.records.figures import CallsFigures, Marking
from app.records.sessions import Closing, Ending
from app.services.sessions.plan import Advice, FailureLimits, Failures, SessionPlan, ending_of
from tests.values import not_none


def advice(*, name: str | None = "mine", is_called: bool = True) -> Advice:
    """Return the advice on a session of an endpoint of that name, or on a manual one."""
    endpoint = {"name": name} if is_called else None
    session: Any = SimpleNamespace(id="ses_1", provenance={"endpoint": endpoint})
    return Advice.on(session)


def binomial_tail(failed: int, closed: int, share: float) -> float:
    """Return the probability of at least so many failures, term by term."""
    return sum(
        comb(closed, k) * share**k * (1 - share) ** (closed - k) for k in range(failed, closed + 1)
    )


@pytest.mark.parametrize("share", [0.1, 1 / 3, 0.5, 1.0])
def test_few_items_need_many_failures_and_many_items_a_share(share: float) -> None:
    limits = FailureLimits(max_share=share)
    for closed in range(60):
        for failed in range(closed + 1):
            above = failed > share * closed
            unlikely = closed >= 50 or binomial_tail(failed, closed, share) <= 0.025
            expected = closed >= 10 and above and unlikely
            assert limits.exceeded(failed, closed) is expected, (failed, closed)


def test_a_session_within_its_limit_is_rarely_ended_by_chance() -> None:
    limits = FailureLimits(max_share=0.5)
    failed = (np.random.default_rng(1).random((2000, 49)) < 0.3).cumsum(axis=1)
    least = [next((k for k in range(n + 1) if limits.exceeded(k, n)), n + 1) for n in range(1, 50)]
    assert (failed >= least).any(axis=1).mean() < 0.005


@pytest.mark.parametrize("limit", [0, None])  # null is not "no limit"
def test_a_limit_is_a_number_above_zero(limit: int | None) -> None:
    with pytest.raises(InvalidInputError) as refused:
        SessionPlan.from_dict({"failures": {"max_consecutive": limit}})
    assert [one.pointer for one in refused.value.problems] == ["/failures/max_consecutive"]


def test_a_misspelt_limit_gets_a_suggestion_that_ends_as_a_question() -> None:
    with pytest.raises(InvalidInputError, match=r"did you mean 'max_share'\?$"):
        SessionPlan.from_dict({"failures": {"max_shares": 0.5}})


SCORED = Closing(outcome="scored", score=1.0)
UNPARSED = Closing(outcome="unparsed", reason="It says nothing.")
ERROR = Closing(outcome="error", error_code="endpoint_fault", reason="It broke")
USAGE: CallsFigures = {"calls": 1, "tokens_in": 9, "tokens_out": 2, "usd": None}
MARKING: Marking = {"scorer": "judge", "version": "1", "spec_hash": "", "usage": USAGE}
UNMARKED = replace(ERROR, error_code="judge_timeout", marking=MARKING)
REPAIR = (
    "Repair the endpoint, then continue the session (sextant sessions extend ses_1 --max-items N)"
)
REFUSED = replace(ERROR, error_code="endpoint_unauthorized")
JUDGE_REFUSED = replace(UNMARKED, error_code="judge_unauthorized")
JUDGE_SPENT = replace(UNMARKED, error_code="judge_budget_exhausted")
CUT = replace(ERROR, error_code="time_limit")
TWO = {"max_consecutive": 2}


@pytest.mark.parametrize(
    ("closings", "limits", "told"),
    [
        ([ERROR] * 4, {}, None),
        ([ERROR] * 5, {}, f"5 calls in a row failed; the last: It broke. {REPAIR}"),
        ([ERROR, SCORED, ERROR], TWO, None),
        ([ERROR, UNPARSED, ERROR], TWO, None),
        ([ERROR, UNMARKED, ERROR], TWO, None),
        ([SCORED, ERROR, ERROR], TWO, "2 calls in a row failed"),
        ([UNMARKED] * 9, {}, None),
        (
            [UNMARKED] * 10,
            {},
            "10 answers in a row could not be scored; the last (judge_timeout): ",
        ),
        ([UNMARKED] * 3, TWO, None),
        ([UNMARKED] * 4, TWO, "It broke. Repair the scorer, then rescore the session"),
        ([UNMARKED] * 3 + [UNPARSED, UNMARKED], TWO, None),
        ([UNMARKED] * 3 + [ERROR, UNMARKED], TWO, "4 answers in a row could not be scored"),
        ([REFUSED], {}, f"Every further call would fail like the last one: It broke. {REPAIR}"),
        ([JUDGE_REFUSED], {}, "like the last one: It broke. Repair the scorer"),
        ([REFUSED, SCORED], {}, None),
        ([JUDGE_SPENT], {}, "It broke. Answers without a score are kept: rescore the session"),
        ([CUT] * 9, {}, None),
        ([SCORED, UNPARSED] * 25, {}, None),
        (
            [SCORED, UNPARSED] * 25 + [UNPARSED],
            {},
            "26 of 51 answers could not be scored (limit 50 %). Read some answers",
        ),
    ],
)
def test_failures_in_a_row_or_in_all_end_a_session(
    closings: list[Closing], limits: dict[str, Any], told: str | None
) -> None:
    failures = Failures(FailureLimits(**limits), advice())
    for closing in closings:
        failures.take(closing)
    scored = closings.count(SCORED)
    stop = failures.stop(closed=len(closings), scored=scored, parsed=scored)
    if told is None:
        assert stop is None
        return
    assert told in not_none(stop).detail
    spent = closings == [JUDGE_SPENT]
    assert not_none(stop).reason == ("budget_exhausted" if spent else "too_many_failures")


def test_an_endpoint_that_is_not_saved_cannot_be_repaired() -> None:
    """Neither after a refused key nor where the address has no such model."""
    failures = Failures(FailureLimits(), advice(name=None))
    failures.take(REFUSED)
    detail = not_none(failures.stop(closed=1, scored=0, parsed=0)).detail
    told = "Start again with the right address, model and key (sextant run"
    assert told in detail
    unknown = replace(ERROR, error_code="endpoint_rejected")
    for _ in range(5):
        failures.take(unknown)
    detail = not_none(failures.stop(closed=6, scored=0, parsed=0)).detail
    assert detail.startswith("6 calls in a row failed")
    assert told in detail


def test_a_harness_without_scores_is_not_told_of_an_endpoint() -> None:
    failures = Failures(FailureLimits(), advice(is_called=False))
    for _ in range(5):
        failures.take(ERROR)
    detail = not_none(failures.stop(closed=5, scored=0, parsed=0)).detail
    assert "It broke. Mend what answers, or its scorer, then continue the session" in detail


def ended(stop: Stop, **how: Any) -> Ending:
    """Return the ending of a session of nine items that was precise enough."""
    given = {"last_failure": None, "precise_since": None, **how}
    return ending_of(stop, precision_reached=True, min_items=9, advice=advice(), **given)


DONE = Stop(StopReason.MAX_ITEMS, "It asked all.")
GIVEN_UP = Stop(StopReason.TOO_MANY_FAILURES, f"It fails. {REPAIR}.")
FULL_TIME = Stop(StopReason.TIME_LIMIT, "Time is up.")
NONE_OF_TWO = "None of 2 answers could be scored; the last: "
NONE_PARSED = NONE_OF_TWO.replace("scored", "parsed")
READ = "Read some answers (sextant sessions answers ses_1 --unparsed)"


@pytest.mark.parametrize(
    ("stop", "closed", "parsed", "last", "detail", "failure"),
    [
        (DONE, 2, 1, ERROR, "It asked all.", None),
        (DONE, 0, 0, None, "It asked all.", None),
        (FULL_TIME, 2, 0, ERROR, "Time is up.", None),
        (DONE, 2, 0, ERROR, f"{NONE_OF_TWO}It broke. {REPAIR}", ("endpoint_fault", "It broke")),
        (DONE, 1, 0, ERROR, "None of 1 answers could", ("endpoint_fault", "It broke")),
        (DONE, 2, 0, UNMARKED, f"{NONE_OF_TWO}It broke. {READ}", ("judge_timeout", "It broke")),
        (
            *(DONE, 2, 0, UNPARSED, f"{NONE_PARSED}It says nothing. {READ}"),
            ("too_many_failures", "It says nothing."),
        ),
        (
            *(DONE, 2, 0, None, f"{NONE_OF_TWO}unknown. {REPAIR}"),
            ("too_many_failures", f"{NONE_OF_TWO}unknown. {REPAIR}."),
        ),
        (GIVEN_UP, 9, 4, ERROR, f"It fails. {REPAIR}", ("endpoint_fault", "It broke")),
    ],
)
def test_a_session_without_a_score_or_with_too_many_failures_has_failed(
    stop: Stop,
    closed: int,
    parsed: int,
    last: Closing | None,
    detail: str,
    failure: tuple[str, str] | None,
) -> None:
    made = ended(stop, closed=closed, parsed=parsed, last_failure=last)
    assert made.stop_detail.startswith(detail)
    assert made.precision_reached
    if failure is None:
        assert (made.status, made.stop_reason, made.failure) == ("completed", stop.reason, None)
    else:
        assert (made.status, made.stop_reason) == ("failed", "too_many_failures")
        assert made.failure == {"code": failure[0], "detail": failure[1]}


@pytest.mark.parametrize(("precise_since", "is_told"), [(None, False), (8, True), (9, False)])
def test_a_test_that_min_items_kept_going_says_so(precise_since: int | None, is_told: bool) -> None:
    made = ended(DONE, closed=9, parsed=9, precise_since=precise_since)
    sentence = f" The SE target was reached with answer {precise_since}; min_items 9 kept the test "
    assert made.stop_detail == "It asked all." + (f"{sentence}going." if is_told else "")
