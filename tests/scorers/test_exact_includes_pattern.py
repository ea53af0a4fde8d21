import numpy as np
import pytest

from app.errors import InvalidInputError
from app.items import ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, build, check, examples, pattern
from app.scorers.pattern import altered
from tests.scorers.claims import pairs
from tests.scorers.scoring import result_of, score_of
from tests.values import of_kind

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
    "x+1": "x + 1.",
    "C++": "Answer: C++.",
    "p < 0.05": "p<0.05 | **p < 0.05**",
    "Oslo": "<Oslo> | Oslo* | => Oslo",
    "Hello, World": "Hello! World!",
}

REJECTED = {
    "Paris": "London | Paris or London",
    "25": "2.5",
    "3": "-3",
    "3, 5, 8": "3, 8, 5",
    "3, 5": "35",
    "2024-05-01": "2024 0501",
    "x+1": "x-1 | x 1 | x*1",
    "a*b": "a/b",
    "C": "C++ | C#",
    "O-": "O+",
    "p < 0.05": "p > 0.05",
    "x = 5": "x != 5",
}


@pytest.mark.parametrize(
    ("text", "extractor"),
    [
        (r"\boxed{Paris}", "boxed"),
        ("The answer is Paris.", "statement"),
        ("Hm.\nIt is **Paris**, clearly", "emphasis"),
        ("Hm.\n\nParis", "line"),
        (" Paris ", "whole"),
    ],
)
async def test_the_extractor_of_an_exact_answer_is_recorded(text: str, extractor: str) -> None:
    result = of_kind(await result_of("exact", text, "Paris"), Scored)
    assert (result.score, result.extractor) == (1.0, extractor)


@pytest.mark.parametrize(("table", "score"), [(ACCEPTED, 1.0), (REJECTED, 0.0)])
async def test_exact_compares_what_is_stated(table: dict[str, str], score: float) -> None:
    for target, text in pairs(table):
        assert await score_of("exact", text, "elsewhere", target) == score, (target, text)


GROUP = {"pattern": r"city: (?P<city>\w+)", "group": "city"}


@pytest.mark.parametrize(
    ("name", "params", "text", "targets", "marked"),
    [
        ("exact", {"ignore_case": False}, "paris", "Paris", 0.0),
        ("exact", {"ignore_punctuation": False}, "Paris!", "Paris", 0.0),
        (
            *("exact", {"ignore_whitespace": False, "ignore_punctuation": False}),
            *("Pa ris", "Paris", 0.0),
        ),
        ("exact", {"ignore_articles": True}, "the Paris", "Paris", 1.0),
        ("exact", {}, "the Paris", "Paris", 0.0),
        ("exact", {}, "...", "Paris", "unparsed"),
        ("includes", {}, "I think it is paris, in France", "Paris", 1.0),
        ("includes", {}, "a comparison", "Paris", 0.0),
        ("includes", {}, "London", "Paris", 0.0),
        ("includes", {}, "pa\nris", "Paris", 0.0),
        *(("includes", {}, text, "25", 0.0) for text in ("125", "2.25", "25.5", "1,025", "-25")),
        *(("includes", {}, text, "C", 0.0) for text in ("I use C++", "It is C#.", "Objective-C++")),
        ("includes", {}, "C+D, C", "C", 1.0),
        *(("includes", {}, text, "25", 1.0) for text in ("F-25", "It is 25-ish", "5 - 25")),
        ("includes", {}, "Oslo it is", "Rome|Oslo", 1.0),
        ("includes", {"whole_words": False}, "a comparison", "paris", 1.0),
        ("includes", {"ignore_case": False}, "paris", "Paris", 0.0),
        ("pattern", {"pattern": r"^\d{3}$"}, "123", "", 1.0),
        ("pattern", {"pattern": r"^\d{3}$"}, "1234", "", 0.0),
        ("pattern", GROUP, "city: Oslo", "Rome|Oslo", 1.0),
        ("pattern", GROUP, "city: Bonn", "Rome|Oslo", 0.0),
        ("pattern", GROUP, "Oslo", "Rome|Oslo", "unparsed"),
        ("pattern", {"pattern": r"= (\d+)", "group": 1}, "2 = 2, 2 + 3 = 5", "5", 1.0),  # the last
        (
            *("pattern", {"pattern": r"is (\w+)", "group": 1, "ignore_case": True}),
            *("IT IS PARIS", "Paris", 1.0),
        ),
        ("pattern", {"pattern": "[[a]b"}, "ab", "", 1.0),  # Python warns of it
    ],
)
async def test_answers_are_compared_as_configured(
    name: str, params: dict[str, object], text: str, targets: str, marked: float | str
) -> None:
    assert await score_of(name, text, *filter(None, targets.split("|")), **params) == marked


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
    assert await score_of("extract", text, target, **params) == marked


async def test_a_catastrophic_pattern_is_unparsed_and_the_reason_says_why() -> None:
    result = await result_of("pattern", "a" * 40 + "!", pattern=r"^(a+)+$", timeout_s=0.3)
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.UNPARSED
    assert "it takes more than 0.3 s" in result.reason


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "pattern: Field required"),
        ({"pattern": "("}, "pattern is not a regular expression"),
        ({"pattern": "a", "group": 1}, "group 1 does not exist, pattern has 0"),
        ({"pattern": "a", "group": -1}, "group -1 does not exist, pattern has 0"),
        ({"pattern": "a", "group": "name"}, "'name' does not exist, pattern names: none"),
        ({**GROUP, "group": "town"}, "'town' does not exist, pattern names: city"),
        ({"pattern": 3}, "pattern: expected a text, got a number"),
    ],
)
async def test_a_pattern_that_cannot_be_used_is_refused(
    params: dict[str, object], words: str
) -> None:
    with pytest.raises(InvalidInputError, match=words) as refused:
        await check(ScorerSpec("pattern", params))
    assert "Value error" not in refused.value.detail  # no words of pydantic
    assert words.split(": ")[-1] in refused.value.problems[0].detail


@pytest.mark.parametrize("group", [None, 0, 1, 2, "city"])
async def test_a_group_of_the_pattern_is_accepted(group: int | str | None) -> None:
    pattern = r"(?P<city>\w+) in (\w+)"
    await check(ScorerSpec("pattern", {"pattern": pattern, "group": group}))


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


def test_an_answer_that_lacks_the_pattern_simulates_a_wrong_one() -> None:
    spec = ScorerSpec("pattern", {"pattern": r"^\d+$"})
    made = build(spec).examples(ItemContent(target=("Oslo", "12")), np.random.default_rng(1))
    assert made[0] == "12"
    assert not made[1].isdigit()


@pytest.mark.parametrize(
    ("name", "item", "params"),
    [
        *((each, ItemContent(), {}) for each in ("choice", "exact", "includes", "rouge_l")),
        ("numeric", ItemContent(), {}),
        ("choice", ItemContent(choices=("1", "2"), target=("1", "2")), {}),
        ("rouge_l", ItemContent(target=("猫",)), {}),
        *(
            ("pattern", ItemContent(target=("x",)), {"pattern": regex, "group": 1})
            for regex in (r"never (\d) such (\d)", r"(\d)")
        ),
    ],
)
def test_an_item_without_a_right_and_a_wrong_answer_cannot_be_simulated(
    name: str, item: ItemContent, params: dict[str, object]
) -> None:
    with pytest.raises(InvalidInputError):
        build(ScorerSpec(name, params)).examples(item, np.random.default_rng(1))


def test_wrong_answers_are_of_the_kind_of_the_right_one() -> None:
    assert altered("Oz 9") == ("Oz 0", "Pz 9", "9 zO", "Oz 9Oz 9")
    assert altered("aa") == ("bb", "aaaa")
    for target, words in (("one two three", True), ("ab cd", False)):
        made = build(ScorerSpec("exact")).examples(
            ItemContent(target=(target,)), np.random.default_rng(1)
        )
        right, wrong = (text.removeprefix("Answer: ") for text in made)
        assert (right, sorted(wrong), wrong == right) == (target, sorted(target), False)
        assert (sorted(wrong.split()) == sorted(target.split())) == words
