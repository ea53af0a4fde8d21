"""The scorers `closeness` and `readability`."""

import pytest

from app.items import Outcome
from app.scorers import NotScored
from app.scorers.readability import grade_level, syllables
from app.scorers.text import MAX_CHARS
from tests.scorers.scoring import result_of, score_of
from tests.values import of_kind


@pytest.mark.parametrize(
    ("answer", "target", "params", "expected"),
    [
        ("200", "200", {"rel_limit": 0.5}, 1.0),
        ("About 150.", "200", {"rel_limit": 0.5}, 0.5),
        ("The answer is 250", "200", {"rel_limit": 0.5}, 0.5),
        ("100", "200", {"rel_limit": 0.5}, 0.0),
        ("1e300", "200", {"rel_limit": 0.5}, 0.0),
        ("190", "200", {"abs_limit": 20}, 0.5),
        ("190", "200", {"abs_limit": 20, "rel_limit": 0.5}, 0.9),
        ("0.15", "0.2", {"rel_limit": 0.5}, 0.5),
        ("0.25", "25 %", {"rel_limit": 0.5}, 1.0),  # a percentage is read in either way
        ("The answer is 25x", "25", {"rel_limit": 1.0}, 1.0),  # a unit, for no target is a formula
        (r"$-\frac{1}{2}$", r"-\frac{1}{4}", {"rel_limit": 2.0}, 0.5),
        ("many", "25", {"rel_limit": 1.0}, "unparsed"),
        ("The answer is 25 or 26.", "25", {"rel_limit": 1.0}, "unparsed"),
    ],
)
async def test_the_score_falls_linearly_with_the_error(
    answer: str, target: str, params: dict[str, float], expected: float | str
) -> None:
    result = await score_of("closeness", answer, target, **params)
    assert result == (expected if isinstance(expected, str) else pytest.approx(expected))


async def test_a_relative_error_from_zero_is_refused_and_not_marked_wrong() -> None:
    result = of_kind(await result_of("closeness", "1", "0", rel_limit=1.0), NotScored)
    assert result.outcome is Outcome.ERROR
    assert "abs_limit" in result.reason


@pytest.mark.parametrize(
    ("text", "n_words", "n_syllables"),
    [
        # Both sentences and their counts: Wikipedia, "Flesch-Kincaid readability tests".
        ("The cat sat on the mat.", 6, 6),
        (
            "The Australian platypus is seemingly a hybrid of a mammal and reptilian creature.",
            13,
            24,
        ),
    ],
)
def test_grade_levels_of_published_sentences(text: str, n_words: int, n_syllables: int) -> None:
    expected = 0.39 * n_words + 11.8 * n_syllables / n_words - 15.59
    assert grade_level(text) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("word", "count"),
    [
        ("the", 1), ("table", 2), ("made", 1), ("wanted", 2), ("asked", 1), ("boxes", 2),
        ("makes", 1), ("while", 1), ("readability", 5), ("rhythm", 1), ("42", 1), ("agreed", 2),
    ],
)  # fmt: skip
def test_syllables_are_counted_by_rule(word: str, count: int) -> None:
    assert syllables(word) == count


async def test_an_easy_text_scores_high_and_a_hard_one_low() -> None:
    easy = "Warm air goes up. It cools. Small drops form. They fall as rain."
    hard = (
        "Precipitation materialises whenever adiabatically cooled atmospheric moisture "
        "condenses around hygroscopic aerosol particles, subsequently coalescing gravitationally."
    )
    levels = {"goal": 5.0, "limit": 12.0}
    assert [await score_of("readability", text, **levels) for text in (easy, hard)] == [1.0, 0.0]
    between = (
        "Warm air rises above the mountains and the moisture in it condenses to clouds that bring "
        "heavy precipitation."
    )
    assert await score_of("readability", between) == pytest.approx(
        (18 - (grade_level(between) or 0.0)) / (18 - 8)
    )


@pytest.mark.parametrize(
    "apart",
    [
        "- go up\n- go down",
        "go up\n\n\n \t\n\n* go down",
        "go up\r\n  \r\n  - go down",
        "go up!?!... go down.",
    ],
)
def test_blank_lines_bullets_and_repeated_stops_end_one_sentence(apart: str) -> None:
    assert grade_level(apart) == pytest.approx(grade_level("Go up. Go down.") or 0.0)


@pytest.mark.parametrize("run", ["!", "\n", "\n ", ". ", '."', "**a ", "__a ", "* ", "`a "])
@pytest.mark.parametrize("scorer", ["readability", "exact"])
async def test_repeated_marks_are_read_without_backtracking(scorer: str, run: str) -> None:
    # Patterns that retry from every sign of such an answer stop the worker for a minute.
    await score_of(scorer, run * (MAX_CHARS // len(run) - 1) + "x", "1")
