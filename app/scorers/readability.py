"""Scores how easy an answer is to read, whatever its content."""

import re
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from app.items import Answer, ItemContent
from app.scorers.base import Mark, Scale, Scored, Scorer
from app.scorers.text import MAX_CHARS, declined, no_answer, without_emphasis

_WORD = re.compile(r"[A-Za-zÀ-ÖØ-öø-ÿ]+(?:['’][A-Za-z]+)?|\d+(?:[.,]\d+)*")
#: A run of stops matches only as a whole, because nonsense may have thousands in a row.
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++(?=[\"'”’)\]]*(?:\s|$))|\n\s*(?:\n|[-*•]|\d+[.)])")
_BLANK_LINES = re.compile(r"\n{3,}")
_VOWELS = re.compile(r"[aeiouyà-öø-ÿ]+")
#: Endings with a silent e: "made", "makes", "asked", but not "table" or "wanted".
_SILENT = re.compile(r"(?:(?<![l])e|(?<=[aeiouy])le|(?<![sxzcgh])es|(?<![td])ed)$")


class Readability(Scorer):
    """Flesch-Kincaid grade level of an English answer against a grade that was asked for.

    The grade has no bounds; lower is easier to read. The score is 1 up to grade `goal` and falls
    linearly to 0 at grade `limit`. Syllables are counted by rule, as in other readability tools.

    Source: Kincaid et al. (1975): 0.39 words / sentences + 11.8 syllables / words - 15.59.

    Attributes:
        goal: School grade up to which the score is 1.
        limit: School grade from which the score is 0.
    """

    measure: ClassVar[Scale] = Scale(min=None, max=None, higher_is_better=False)

    goal: Annotated[float, Field(ge=0, le=30)] = 8.0
    limit: Annotated[float, Field(ge=0, le=60)] = 18.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.limit <= self.goal:
            raise ValueError(f"limit must be above goal ({self.goal:g}), got {self.limit:g}")
        return self

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score the grade level of the whole answer; unparsed without any word."""
        if refusal := declined(answer.text, ()):
            return refusal
        grade = grade_level(answer.text[-MAX_CHARS:])
        if grade is None:
            return no_answer(answer.text, "The answer holds no words.")
        value = (self.limit - grade) / (self.limit - self.goal)
        return Scored(
            score=min(1.0, max(0.0, value)), extracted=f"grade {grade:.2f}", extractor="whole"
        )

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """Simple sentences, and a sentence of very long words."""
        long = "Institutional intercontinental incomprehensibilities notwithstanding."
        return "It is so. We see it. You can, too.", long


def grade_level(text: str) -> float | None:
    """Flesch-Kincaid grade level of `text`; `None` without words."""
    text = "\n".join(line.strip() for line in without_emphasis(text).split("\n"))
    text = _BLANK_LINES.sub("\n\n", text)
    words = _WORD.findall(text)
    if not words:
        return None
    sentences = sum(bool(_WORD.search(part)) for part in _SENTENCE_END.split(text))
    n_syllables = sum(map(syllables, words))
    return 0.39 * len(words) / sentences + 11.8 * n_syllables / len(words) - 15.59


def syllables(word: str) -> int:
    """Number of syllables of an English word: its groups of vowels, without silent endings."""
    word = word.lower()
    return max(1, len(_VOWELS.findall(_SILENT.sub("", word))))
