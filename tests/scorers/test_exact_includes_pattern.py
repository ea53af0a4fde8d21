import numpy as np
import pytest

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import (
    NotScored,
    Scored,
    build,
    check,
    examples,
    mark,
    pattern,
)
from tests.scorers.claims import pairs


async def _score(spec: ScorerSpec, text: str, *targets: str) -> float | str:
    item = ItemContent(prompt="?", target=targets)
    result = await mark(build(spec), item, Answer(text=text))
    return result.score if isinstance(result, Scored) else result.outcome.value


async def _exact(target: str, text: str) -> float | str:
    return await _score(ScorerSpec("exact"), text, "elsewhere", target)


ACCEPTED = {
    "Paris": r"""
Paris | paris. | "Paris" | **Paris** | Answer: Paris | The answer is **Paris**.
The answer is Paris. It lies on the Seine. | \boxed{\text{Paris}} | Let me think.\n\nParis
Let me think.\n\nIt is **Paris**, clearly | Ｐａｒｉｓ
""",
    "New York": "new   york",
    "3, 5, 8": "[3,5,8]",
    "-21, 33": "Answer: -21, 33",
    "2024-05-01": "Answer: 2024-05-01.",
    "don't": "don’t",
}


async def test_exact_accepts() -> None:
    assert [pair for pair in pairs(ACCEPTED) if await _exact(*pair) != 1.0] == []


REJECTED = {
    "Paris": "London | Paris or London",
    "25": "2.5",
    "3": "-3",
    "3, 5, 8": "3, 8, 5",
    "3, 5": "35",
    "2024-05-01": "2024 0501",
}


async def test_exact_rejects() -> None:
    assert [pair for pair in pairs(REJECTED) if await _exact(*pair) != 0.0] == []


@pytest.mark.parametrize(
    ("params", "text", "score"),
    [
        ({"ignore_case": False}, "paris", 0.0),
        ({"ignore_punctuation": False}, "Paris!", 0.0),
        ({"ignore_whitespace": False, "ignore_punctuation": False}, "Pa ris", 0.0),
        ({"ignore_articles": True}, "the Paris", 1.0),
        ({"ignore_articles": False}, "the Paris", 0.0),
    ],
)
async def test_exact_normalises_as_configured(
    params: dict[str, bool], text: str, score: float
) -> None:
    assert await _score(ScorerSpec("exact", params), text, "Paris") == score


async def test_exact_finds_nothing_in_punctuation_alone() -> None:
    assert await _score(ScorerSpec("exact"), "...", "Paris") == Outcome.UNPARSED.value


@pytest.mark.parametrize(
    ("text", "score"),
    [
        pytest.param("I think it is paris, in France", 1.0, id="within a sentence"),
        pytest.param("a comparison", 0.0, id="inside a word"),
        pytest.param("London", 0.0, id="absent"),
        pytest.param("pa\nris", 0.0, id="broken"),
    ],
)
async def test_includes_looks_for_whole_words(text: str, score: float) -> None:
    assert await _score(ScorerSpec("includes"), text, "Paris") == score


@pytest.mark.parametrize("text", ["125", "2.25", "25.5", "1,025"])
async def test_includes_does_not_find_a_number_in_another(text: str) -> None:
    assert await _score(ScorerSpec("includes"), text, "25") == 0.0


async def test_includes_finds_any_target() -> None:
    assert await _score(ScorerSpec("includes"), "Oslo it is", "Rome", "Oslo") == 1.0


async def test_includes_finds_parts_of_words_if_configured() -> None:
    spec = ScorerSpec("includes", {"whole_words": False})
    assert await _score(spec, "a comparison", "paris") == 1.0


async def test_includes_respects_case_if_configured() -> None:
    assert await _score(ScorerSpec("includes", {"ignore_case": False}), "paris", "Paris") == 0.0


async def test_a_pattern_without_group_is_right_where_it_matches() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"^\d{3}$"})
    assert [await _score(spec, text) for text in ("123", "1234")] == [1.0, 0.0]


async def test_a_pattern_group_is_compared_with_the_targets() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"city: (?P<city>\w+)", "group": "city"})
    scores = [await _score(spec, t, "Rome", "Oslo") for t in ("city: Oslo", "city: Bonn", "Oslo")]
    assert scores == [1.0, 0.0, "unparsed"]


async def test_the_last_match_of_a_pattern_counts() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"= (\d+)", "group": 1})
    assert await _score(spec, "2 = 2, 2 + 3 = 5", "5") == 1.0


@pytest.mark.parametrize(
    ("params", "text", "target", "marked"),
    [
        ({"pattern": r"\d+"}, "3, then 5, then 8", "3", 1.0),
        ({"pattern": r"\d+", "match": -1}, "3, then 5, then 8", "8", 1.0),
        ({"pattern": r"\d+", "match": 2}, "3, then 5, then 8", "8", 1.0),
        ({"pattern": r"\d+", "match": 3}, "3, then 5, then 8", "8", "unparsed"),
        ({"pattern": r"\d+", "match": -3}, "3, then 5, then 8", "3", 1.0),
        ({"pattern": r"\d+", "match": -4}, "3, then 5, then 8", "3", "unparsed"),
        ({"pattern": r"is (\w)|(\w)\)"}, "b) it", "b", 1.0),  # the group that is not empty
        ({"remove": [",", r"\$"]}, "$1,000", "1000", 1.0),
        ({}, " Paris\n", "Paris", 1.0),
        ({}, "paris", "Paris", 0.0),
        ({"ignore_case": True}, "paris", "Paris", 1.0),
        ({}, "Paris!", "Paris", 0.0),
        ({"ignore_punctuation": True}, "Paris!", "Paris", 1.0),
        ({"ignore_punctuation": True}, "Paris 2", "Paris ", 0.0),
        ({"ignore_numbers": True}, "Paris 2", "Paris ", 1.0),
    ],
)
async def test_extract_takes_the_match_and_ignores_as_configured(
    params: dict[str, object], text: str, target: str, marked: float | str
) -> None:
    assert await _score(ScorerSpec("extract", params), text, target) == marked


async def test_a_pattern_ignores_case_if_configured() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"is (\w+)", "group": 1, "ignore_case": True})
    assert await _score(spec, "IT IS PARIS", "Paris") == 1.0


async def test_a_catastrophic_pattern_is_unparsed_and_the_reason_says_why() -> None:
    scorer = build(ScorerSpec("pattern", {"pattern": r"^(a+)+$", "timeout_s": 0.3}))
    result = await mark(scorer, ItemContent(prompt="?"), Answer(text="a" * 40 + "!"))
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.UNPARSED
    assert "it takes more than 0.3 s" in result.reason


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"pattern": "("},
        {"pattern": ""},
        {"pattern": "a", "group": 1},
        {"pattern": "a", "group": "name"},
        {"pattern": "a", "group": -1},
        {"pattern": 3},
        {"pattern": "a", "timeout_s": 0},
    ],
)
async def test_a_pattern_that_cannot_be_used_is_refused(params: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError, match="pattern"):
        await check(ScorerSpec("pattern", params))


async def test_a_pattern_that_compiles_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # Takes seconds on any machine, as each range is read letter by letter.
    ranges = "".join(f"{chr(0x100 + nth)}-\uffff" for nth in range(660))
    params = {"pattern": f"[{ranges}]", "ignore_case": True}
    monkeypatch.setattr(pattern, "COMPILE_TIMEOUT_S", 0.1)
    with pytest.raises(InvalidInputError, match=r"cannot be compiled: it takes more than 0\.1 s"):
        await check(ScorerSpec("pattern", params))


async def test_simulation_of_an_endless_pattern_stops() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"(x+x+)+y", "timeout_s": 0.3})
    with pytest.raises(InvalidInputError, match=r"takes more than 0\.3 s"):
        await examples(spec, ItemContent(target=("x" * 60,)), [1])


async def test_a_pattern_that_python_warns_of_can_be_used() -> None:
    assert await _score(ScorerSpec("pattern", {"pattern": "[[a]b"}), "ab") == 1.0


def test_a_pattern_that_no_target_fits_cannot_be_simulated() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"never (\d) such (\d)", "group": 1})
    with pytest.raises(InvalidInputError, match="No right answer"):
        build(spec).examples(ItemContent(target=("x",)), np.random.default_rng(1))


@pytest.mark.parametrize("name", ["choice", "exact", "includes", "numeric"])
def test_an_item_without_target_cannot_be_simulated(name: str) -> None:
    with pytest.raises(InvalidInputError):
        build(ScorerSpec(name)).examples(ItemContent(prompt="?"), np.random.default_rng(1))
