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

from app.scorers.differential import share
from app.scorers.overlap import Bleu, Chrf, RougeL, Similarity, TokenF1
from tests.scorers.scoring import score_of
from tests.values import of_kind

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
    for scorer, word_order in ((Chrf(), 0), (Chrf(word_order=2), 2)):
        expected = sacrebleu.sentence_chrf(answer, [target], word_order=word_order).score
        ours = scorer.similarity(answer, [target])
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
    result = await score_of("span_f1", answer, "Paris", "Oslo", "Rome")
    assert result == pytest.approx(expected)


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
    assert scorer.similarity("Kitten", ["kitten"]) == 1.0


STATING = "Let me think about this.\nThe answer is: Denver Broncos"
REFUSAL = "I'm sorry, but I can't help with that."
#: It quotes a refusal, and is none.
STORY = "Once there was a robot. " * 20 + '"I\'m sorry, I cannot help you," it said.'


@pytest.mark.parametrize(
    ("name", "params", "text", "target", "low", "high"),
    [
        ("token_f1", {}, STATING, "Denver Broncos", 0.0, 0.5),
        ("token_f1", {"part": "stated"}, STATING, "Denver Broncos", 1.0, 1.0),
        ("chrf", {}, REFUSAL, REFUSAL, 1.0, 1.0),
        ("rouge_l", {}, STORY, "A story of a robot", 0.0, 0.5),
        ("span_f1", {"separator": ";"}, "Paris, Texas; Rome", "Paris, Texas|Rome", 1.0, 1.0),
    ],
)
async def test_the_part_that_was_asked_for_is_scored(
    name: str, params: dict[str, Any], text: str, target: str, low: float, high: float
) -> None:
    result = of_kind(await score_of(name, text, *target.split("|"), **params), float)
    assert low <= result <= high


async def test_a_target_without_comparable_words_is_an_error_not_a_wrong_answer() -> None:
    assert await score_of("rouge_l", "猫", "猫") == "error"


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The bridge was approved", (1 + 1 - 4 / 7) / 2),
        ("The bridge collapsed", (1 + 4 / 7 - 1) / 2),
        ("Nothing else", 0.5),
    ],
)
async def test_differential_takes_off_the_likeness_to_incorrect_references(
    answer: str, expected: float
) -> None:
    incorrect = ["The bridge collapsed", "No vote"]
    result = await score_of("differential", answer, "The bridge was approved", incorrect=incorrect)
    assert result == pytest.approx(expected)


async def test_more_references_do_not_make_an_answer_nearer_to_one_side() -> None:
    answer, target = "the cat sat on the mat today", "the cat sat on a mat"
    wrong = ["the dog sat on the mat", "a cat lay on the mat today", "the cat ran"]
    nearest = max(sacrebleu.sentence_bleu(answer, [each]).score for each in wrong)
    expected = (1 + (sacrebleu.sentence_bleu(answer, [target]).score - nearest) / 100) / 2
    result = await score_of("differential", answer, target, incorrect=wrong, metric="bleu")
    assert result == pytest.approx(expected)


async def test_a_score_stays_in_its_bounds_where_a_metric_rounds_beyond_its_own() -> None:
    text, other = "The cat sat on the mat.", "Nobody voted"
    assert (Bleu().similarity(text, [text]) or 0) > 1  # sacrebleu rounds so
    assert await score_of("bleu", text, text) == 1.0
    for target, wrong, expected in ((text, other, 1.0), (other, text, 0.0)):
        params = {"incorrect": [wrong], "metric": "bleu"}
        assert await score_of("differential", text, target, **params) == expected
    assert share(1.0, -0.2) == 1.0  # by a metric of vectors, below 0 as well
