"""Limits for the number of failures."""

import numpy as np
import pytest

from app.errors import InvalidInputError
from app.services.sessions.plan import FailureLimits, SessionPlan


@pytest.mark.parametrize(
    ("max_share", "failed", "closed", "too_many"),
    [
        (0.5, 9, 9, False),
        (0.5, 8, 10, False),
        (0.5, 9, 10, True),
        (0.5, 10, 10, True),
        (0.1, 2, 10, False),
        (0.1, 4, 10, True),
        (0.5, 31, 49, False),
        (0.5, 25, 50, False),
        (0.5, 26, 50, True),
        (1.0, 49, 49, False),
        (1.0, 100, 100, False),
    ],
)
def test_few_items_need_many_failures_and_many_items_a_share(
    max_share: float, failed: int, closed: int, too_many: bool
) -> None:
    assert FailureLimits(max_share=max_share).exceeded(failed, closed) is too_many


def test_a_session_within_its_limit_is_rarely_ended_by_chance() -> None:
    limits = FailureLimits(max_share=0.5)
    failed = (np.random.default_rng(1).random((2000, 49)) < 0.3).cumsum(axis=1)
    least = [next((k for k in range(n + 1) if limits.exceeded(k, n)), n + 1) for n in range(1, 50)]
    assert (failed >= least).any(axis=1).mean() < 0.005


def test_a_limit_of_null_is_refused_as_it_is_not_no_limit() -> None:
    with pytest.raises(InvalidInputError) as refused:
        SessionPlan.from_dict({"failures": {"max_consecutive": None}})
    assert [one.pointer for one in refused.value.problems] == ["/failures/max_consecutive"]


def test_a_misspelt_limit_gets_a_suggestion_that_ends_as_a_question() -> None:
    with pytest.raises(InvalidInputError, match=r"did you mean 'max_share'\?$"):
        SessionPlan.from_dict({"failures": {"max_shares": 0.5}})
