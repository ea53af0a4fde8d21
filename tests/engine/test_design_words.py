"""Words for what ends a test, shown before it starts."""

from typing import Any

import pytest

from app.engine import Design
from app.engine.design.design import stops_when


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            {},
            "Stops when the score is known to ±4 points, with at least 20 scored answers "
            "(min_items); at the latest at 60 items asked.",
        ),
        (
            {"stopping": {"se": 0.3}},
            "Stops when SE <= 0.3, with at least 20 scored answers (min_items); "
            "at the latest at 50 items asked.",
        ),
        (
            {"stopping": {"se": 0.3, "max_items": 12}},
            "Stops when SE <= 0.3, with at least 12 scored answers (min_items); "
            "at the latest at 12 items asked.",
        ),
        (
            {"stopping": {"score_margin": None, "min_items": 1, "max_items": 3}},
            "Stops at 3 items asked. A result needs 5 scored answers.",
        ),
        (
            {
                "stopping": {"score_margin": None, "min_items": 0, "max_items": None},
                "budget": {"usd": 0.5, "tokens": 9000, "seconds": 60},
            },
            "Stops at 0.5 USD or 9000 tokens or 60 seconds.",
        ),
        (
            {
                "stopping": {
                    "min_items": 1,
                    "max_items": None,
                    "cut_score": {"theta": -0.5},
                    "all_of": [{"se": 0.4}, {"score_margin": 0.05, "min_items": 8}],
                }
            },
            "Stops when theta is above or below -0.5 with confidence 0.95 or (SE <= 0.4 and the "
            "score is known to ±5 points with at least 8 scored answers); "
            "at the latest at every item of the bank asked.",
        ),
    ],
)
def test_goals_and_limits_are_named(document: dict[str, Any], words: str) -> None:
    assert stops_when(Design.from_dict(document), reachable_se=0.01) == words


@pytest.mark.parametrize(
    ("n_items", "words"),
    [
        (50, "with at least 20 scored answers (min_items); at the latest at 50 items asked."),
        (
            30,
            "with at least 20 scored answers (min_items); "
            "at the latest at 30 items asked (all of the bank).",
        ),
        (
            15,
            "Stops at 15 items asked (all of the bank): "
            "no goal ends a test of fewer than 20 scored answers (min_items).",
        ),
    ],
)
def test_a_bank_of_fewer_items_than_the_limits_ends_the_test(n_items: int, words: str) -> None:
    design = Design.from_dict({"stopping": {"se": 0.3}})
    assert stops_when(design, 0.01, n_items).endswith(words)


def test_a_target_out_of_reach_is_named_as_such() -> None:
    said = stops_when(Design.from_dict({"preset": "ability"}), reachable_se=0.2134)
    assert "SE 0.05 cannot be reached" in said
    assert "0.213 at best" in said
