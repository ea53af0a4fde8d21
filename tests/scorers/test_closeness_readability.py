"""The scorers `closeness` and `readability`."""

from typing import Any

import pytest

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import Mark, NotScored, Scored, build, mark
from app.scorers.readability import grade_level, syllables
from app.scorers.text import MAX_CHARS


async def near(answer: str, *targets: str, **params: Any) -> Mark:
    item = ItemContent(prompt="How many?", target=targets)
    return await mark(build(ScorerSpec("closeness", params)), item, Answer(text=answer))


@pytest.mark.parametrize(
    ("answer", "params", "expected"),
    [
        ("200", {"rel_limit": 0.5}, 1.0),
        ("About 150.", {"rel_limit": 0.5}, 0.5),
        ("The answer is 250", {"rel_limit": 0.5}, 0.5),
        ("100", {"rel_limit": 0.5}, 0.0),
        ("1e300", {"rel_limit": 0.5}, 0.0),
        ("190", {"abs_limit": 20}, 0.5),
        ("190", {"abs_limit": 20, "rel_limit": 0.5}, 0.9),
    ],
)
async def test_the_score_falls_linearly_with_the_error(
    answer: str, params: dict[str, float], expected: float
) -> None:
    result = await near(answer, "200", **params)
    assert isinstance(result, Scored)
    assert result.score == pytest.approx(expected)


async def test_a_percentage_is_read_in_either_way() -> None:
    result = await near("0.25", "25 %", rel_limit=0.5)
    assert isinstance(result, Scored)
    assert result.score == 1.0


@pytest.mark.parametrize("answer", ["many", "The answer is 25 or 26."])
async def test_an_answer_without_one_number_is_unparsed(answer: str) -> None:
    result = await near(answer, "25", rel_limit=1.0)
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.UNPARSED


async def test_a_relative_error_from_zero_is_refused_and_not_marked_wrong() -> None:
    result = await near("1", "0", rel_limit=1.0)
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.ERROR
    assert "abs_limit" in result.reason


def test_closeness_without_a_limit_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="rel_limit, abs_limit or both"):
        build(ScorerSpec("closeness"))


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
    scorer = build(ScorerSpec("readability", {"goal": 5.0, "limit": 12.0}))
    item = ItemContent(prompt="Explain rain to a child.")
    easy = Answer(text="Warm air goes up. It cools. Small drops form. They fall as rain.")
    hard = Answer(
        text="Precipitation materialises whenever adiabatically cooled atmospheric moisture "
        "condenses around hygroscopic aerosol particles, subsequently coalescing gravitationally."
    )
    results = [await mark(scorer, item, answer) for answer in (easy, hard)]
    assert [r.score for r in results if isinstance(r, Scored)] == [1.0, 0.0]


def test_each_point_of_a_list_is_a_sentence() -> None:
    assert grade_level("- go up\n- go down\n- go on") == pytest.approx(
        grade_level("Go up. Go down. Go on.") or 0.0
    )


def test_a_limit_below_the_goal_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="limit must be above goal"):
        build(ScorerSpec("readability", {"goal": 9.0, "limit": 5.0}))


@pytest.mark.parametrize(
    "apart",
    ["go up\n\n\n \t\n\n* go down", "go up\r\n  \r\n  - go down", "go up!?!... go down."],
)
def test_blank_lines_bullets_and_repeated_stops_end_one_sentence(apart: str) -> None:
    assert grade_level(apart) == pytest.approx(grade_level("Go up. Go down.") or 0.0)


@pytest.mark.parametrize("run", ["!", "\n", "\n ", ". ", '."', "**a ", "__a ", "* ", "`a "])
@pytest.mark.parametrize("scorer", ["readability", "exact"])
async def test_repeated_marks_are_read_without_backtracking(scorer: str, run: str) -> None:
    # Patterns that retry from every sign of such an answer stop the worker for a minute.
    answer = Answer(text=run * (MAX_CHARS // len(run) - 1) + "x")
    result = await mark(build(ScorerSpec(scorer)), ItemContent(prompt="?", target=("1",)), answer)
    assert isinstance(result, Scored | NotScored)
