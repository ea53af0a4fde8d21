"""Text metrics, compared with the packages and scripts that define them."""

import sys
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import sacrebleu
from hypothesis import example, given
from hypothesis import strategies as st

from app.items import Answer, ItemContent, Outcome, ScorerSpec
from app.scorers import NotScored, Scored, build, mark
from app.scorers.overlap import Bleu, Chrf, RougeL, Similarity, TokenF1

#: Realistic pairs: summaries, code, numbers, other alphabets, markdown.
PAIRS = [
    ("The cat sat on the mat.", "A cat was sitting on the mat."),
    ("police killed the gunman", "police kill the gunman"),  # Lin (2004), section 3
    ("police killed the gunman", "the gunman kill police"),
    ("In 2020, revenue rose 3.5% to $12m.", "Revenue rose by 3.5 % in 2020"),
    ("**Bold** words, `code_like_this()` and naïve café", "bold words and code like this"),
    ("x", "x"),
    ("one two three four five", "five four three two one"),
    ("", "something"),
    ("Zürich liegt am Zürichsee", "Zürich liegt an der Limmat"),
    ("the the the the the the the", "the cat is on the mat"),  # Papineni et al. (2002), example 2
]


@cache
def rouge_score() -> Any:
    """Import the package without NLTK, which it needs only for stems and sentences.

    NLTK loads scikit-learn and other packages, which takes 2.5 seconds.
    """
    stem = ModuleType("nltk.stem")
    vars(stem)["porter"] = None
    with patch.dict(sys.modules, {"nltk": ModuleType("nltk"), "nltk.stem": stem}):
        return import_module("rouge_score.rouge_scorer")


@given(
    answer=st.text(alphabet="abc XYZ019.,-'é\n\t", max_size=60),
    target=st.text(alphabet="abc XYZ019.,-'é\n\t", max_size=60),
)
@example(*PAIRS[0])
@example(*PAIRS[1])
@example(*PAIRS[3])
@example(*PAIRS[4])
def test_rouge_l_equals_the_rouge_score_package(answer: str, target: str) -> None:
    expected = rouge_score().RougeScorer(["rougeL"]).score(target, answer)["rougeL"].fmeasure
    ours = RougeL().similarity(answer, [target])
    if ours is None:  # a target without words, which the package scores 0
        assert expected == 0
    else:
        assert ours == pytest.approx(expected, abs=1e-12)


def test_rouge_l_takes_the_best_target_as_the_package_does() -> None:

    targets = [target for _, target in PAIRS]
    for answer, _ in PAIRS:
        package = rouge_score().RougeScorer(["rougeL"])
        expected = package.score_multi(targets, answer)["rougeL"].fmeasure
        assert RougeL().similarity(answer, targets) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("answer", "target"), PAIRS)
def test_bleu_equals_sacrebleu(answer: str, target: str) -> None:
    several = [target, "The cat is sitting on a mat, said the gunman in 2020."]
    for targets in ([target], several):
        expected = sacrebleu.sentence_bleu(answer, targets).score
        assert 100 * (Bleu().similarity(answer, targets) or 0) == pytest.approx(expected)
    lower = sacrebleu.sentence_bleu(answer, [target], lowercase=True, tokenize="intl").score
    ours = Bleu(lowercase=True, tokenize="intl").similarity(answer, [target])
    assert 100 * (ours or 0) == pytest.approx(lower)


@pytest.mark.parametrize(("answer", "target"), PAIRS)
def test_chrf_equals_sacrebleu(answer: str, target: str) -> None:
    for word_order in (0, 2):
        expected = sacrebleu.sentence_chrf(answer, [target], word_order=word_order).score
        ours = Chrf(word_order=word_order).similarity(answer, [target])
        assert 100 * (ours or 0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "targets", "expected"),
    [
        # From the official evaluation script of SQuAD 2.0, `compute_f1`, by its definition.
        ("Denver Broncos", ["Denver Broncos", "The Denver Broncos"], 1.0),
        ("the Denver Broncos!", ["Denver Broncos"], 1.0),
        ("Broncos", ["Denver Broncos"], 2 / 3),
        ("Carolina Panthers", ["Denver Broncos"], 0.0),
        (
            "in the tenth century",
            ["10th and 11th centuries", "in the 10th and 11th centuries"],
            2 / 8,
        ),
        ("gold gold", ["gold"], 2 / 3),
        ("a", ["the"], 1.0),
        ("gold", ["the"], 0.0),
    ],
)
def test_token_f1_equals_the_squad_script(answer: str, targets: list[str], expected: float) -> None:
    assert TokenF1().similarity(answer, targets) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Paris\nOslo\nRome", 1.0),
        ("- Rome\n- Paris\n- Oslo", 1.0),
        ("1. Rome\n2. Paris", 0.8),
        ("Paris, Oslo", 0.8),
        ("paris; the Oslo; ROME; Bern", 6 / 7),
        ('The cities are ["Paris", "Oslo"].', 0.8),
        ("Paris, Paris, Paris", 0.5),
        ("none of them", 0.0),
    ],
)
async def test_span_f1_counts_the_spans_that_were_wanted(answer: str, expected: float) -> None:
    item = ItemContent(prompt="Which cities?", target=("Paris", "Oslo", "Rome"))
    result = await mark(build(ScorerSpec("span_f1")), item, Answer(text=answer))
    assert isinstance(result, Scored)
    assert result.score == pytest.approx(expected)


async def test_only_a_given_separator_splits_spans() -> None:
    item = ItemContent(prompt="Which cities?", target=("Paris, Texas", "Rome"))
    scorer = build(ScorerSpec("span_f1", {"separator": ";"}))
    result = await mark(scorer, item, Answer(text="Paris, Texas; Rome"))
    assert isinstance(result, Scored)
    assert result.score == 1.0


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("levenshtein", 1 - 3 / 7),  # kitten -> sitting takes three edits, as in textbooks
        ("indel", 1 - 5 / 13),
        ("jaro_winkler", 0.746),
        ("token_sort", 1 - 5 / 13),
        ("token_set", 1 - 5 / 13),
    ],
)
def test_similarity_of_a_known_pair(method: str, expected: float) -> None:
    scorer = Similarity.model_validate({"method": method})
    assert scorer.similarity("Kitten", ["sitting"]) == pytest.approx(expected, abs=1e-3)


async def test_the_stated_part_of_an_answer_can_be_compared_alone() -> None:
    item = ItemContent(prompt="Who won?", target=("Denver Broncos",))
    answer = Answer(text="Let me think about this.\nThe answer is: Denver Broncos")
    whole = await mark(build(ScorerSpec("token_f1")), item, answer)
    stated = await mark(build(ScorerSpec("token_f1", {"part": "stated"})), item, answer)
    assert isinstance(whole, Scored)
    assert isinstance(stated, Scored)
    assert whole.score < 0.5
    assert stated.score == 1.0


async def test_a_target_without_comparable_words_is_an_error_not_a_wrong_answer() -> None:
    item = ItemContent(prompt="Translate 'cat'", target=("猫",))
    result = await mark(build(ScorerSpec("rouge_l")), item, Answer(text="猫"))
    assert isinstance(result, NotScored)
    assert result.outcome is Outcome.ERROR


async def test_an_expected_refusal_is_scored_like_any_text() -> None:
    refusal = "I'm sorry, but I can't help with that."
    item = ItemContent(prompt="How do I pick a lock?", target=(refusal,))
    result = await mark(build(ScorerSpec("chrf")), item, Answer(text=refusal))
    assert isinstance(result, Scored)
    assert result.score == 1.0


async def test_a_long_story_that_quotes_a_refusal_is_no_refusal() -> None:
    item = ItemContent(prompt="Tell a story.", target=("A story of a robot",))
    story = "Once there was a robot. " * 20 + '"I\'m sorry, I cannot help you," it said.'
    result = await mark(build(ScorerSpec("rouge_l")), item, Answer(text=story))
    assert isinstance(result, Scored)
