"""Compares the accepted texts with the stated answer, or looks for them in the whole answer."""

import re
import unicodedata
from typing import ClassVar

import numpy as np
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, Scorer, random_word
from app.scorers.text import (
    is_denied,
    is_refusal,
    last_boxed,
    last_line,
    no_answer,
    plain,
    settled,
    sole_emphasis,
    stands,
    statements,
    without_emphasis,
)

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
#: Signs of a number or a date are kept: -3 is not 3, 2.5 is not 25.
_NUMBER_SIGN = re.compile(r"(?<=\d)[.:/\-](?=\d)|(?<![\w)])[-+](?=[\d.])")
#: So are these: x+1 is not x-1, p<1 not p>1, C++ not C, O+ not O-.
_OPERATOR = re.compile(
    r"(?<=[\w)])(?:[+#]+(?!\w)|\*(?=[\w(]))|"
    r"(?:(?<=[\w)])|(?<=[\w)] ))(?:[<>+]|!(?==))(?==?\s*[\w(.+-])"
)
_SENTENCE = re.compile(r"(?<=[^\d\s])[.!?](?:\s|$)")


class Exact(Scorer):
    r"""The stated answer equals one of the accepted answers.

    The stated answer is the text in `\boxed{}`, else after "the answer is", else in bold on the
    last line, else the last line itself.

    Attributes:
        ignore_case: Whether case is ignored.
        ignore_whitespace: Whether runs of white space count as one blank.
        ignore_punctuation: Whether punctuation is ignored, except for signs inside numbers and
            signs that compare or calculate.
        ignore_articles: Whether "a", "an" and "the" are ignored.
    """

    version: ClassVar[str] = "3"

    ignore_case: bool = True
    ignore_whitespace: bool = True
    ignore_punctuation: bool = True
    ignore_articles: bool = False

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score 1 if the stated answer is an accepted one, else 0; refused where it declines."""
        if not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        accepted = {self._normalise(target) for target in item.target}
        text = settled(plain(answer.text))
        extractor, stated = stated_answer(text)
        readings = [stated, without_emphasis(stated)]
        if self.ignore_punctuation:
            readings.append(_SENTENCE.split(stated)[0])
        if any(self._normalise(r) in accepted and stands(r, text) for r in readings):
            return Scored(score=1.0, extracted=stated, extractor=extractor)
        if is_refusal(answer.text) or not self._normalise(stated):
            return no_answer(answer.text, "The answer holds nothing to compare.")
        return Scored(score=0.0, extracted=stated, extractor=extractor)

    def _normalise(self, text: str) -> str:
        text = plain(text)
        if self.ignore_case:
            text = text.casefold()
        if self.ignore_punctuation:
            kept = {match.start() for match in _NUMBER_SIGN.finditer(text)}
            apart = {i for match in _OPERATOR.finditer(text) for i in range(*match.span())}
            text = "".join(
                f" {c} " if i in apart else " " if _is_punctuation(c) and i not in kept else c
                for i, c in enumerate(text)
            )
        if self.ignore_articles:
            text = _ARTICLES.sub(" ", text)
        if self.ignore_whitespace:
            text = " ".join(text.split())
        return text

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first accepted answer, and a rearrangement of it that is not accepted."""
        if not item.target:
            raise InvalidInputError("An exact item needs a target.")
        right = item.target[0]
        accepted = {self._normalise(target) for target in item.target}
        words = right.split()
        parts, joint = (words, " ") if len(words) > 2 else (list(right), "")
        for _ in range(4):
            wrong = joint.join(parts[i] for i in rng.permutation(len(parts)))
            if self._normalise(wrong) not in accepted and self._normalise(wrong):
                return f"Answer: {right}", f"Answer: {wrong}"
        wrong = right
        while self._normalise(wrong) in accepted:
            wrong += "x"
        return f"Answer: {right}", f"Answer: {wrong}"


def _is_punctuation(char: str) -> bool:
    return unicodedata.category(char)[0] == "P" or char in "$^`|~<>=+"


def stated_answer(text: str) -> tuple[str, str]:
    """Name of the extractor, and the text that counts as the answer."""
    boxed = last_boxed(text)
    if boxed is not None:
        return "boxed", boxed
    claims = statements(text)
    if claims:
        return "statement", claims[-1]
    emphasis = sole_emphasis(text)
    if emphasis is not None:
        return "emphasis", emphasis
    line = last_line(text)
    return ("whole" if line == text.strip() else "line"), line


class Includes(Scorer):
    """One of the accepted answers occurs anywhere in the answer, last without a "not".

    Attributes:
        ignore_case: Whether case is ignored.
        whole_words: Whether only whole words match: not "cat" in "concatenate", 25 in 2.25 or
            -25, nor C in C++.
    """

    version: ClassVar[str] = "3"

    ignore_case: bool = True
    whole_words: bool = True

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score 1 if a target occurs, else 0; refused if the examinee declines instead."""
        if not any(map(_squeeze, item.target)):
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        text = _squeeze(settled(plain(answer.text)))
        for target in item.target:
            match = self._find(target, text)
            if match is not None and not is_denied(text, *match.span()):
                return Scored(score=1.0, extracted=match[0], extractor="occurrence")
        if is_refusal(answer.text):
            return no_answer(answer.text, "The examinee declined to answer.")
        return Scored(score=0.0, extractor="occurrence")

    def _find(self, target: str, text: str) -> re.Match[str] | None:
        wanted = _squeeze(target)
        if not wanted:
            return None
        pattern = re.escape(wanted)
        if self.whole_words:
            unsigned = r"(?<!(?<![\w)])-)" if wanted[0].isdigit() else ""
            pattern = rf"(?<!\w)(?<!\d[.,]){unsigned}{pattern}(?!\w|[.,]\d|[+#]+(?!\w))"
        found = [*re.finditer(pattern, text, re.IGNORECASE if self.ignore_case else re.NOFLAG)]
        return found[-1] if found else None

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and a text in which no target occurs."""
        if not any(map(_squeeze, item.target)):
            raise InvalidInputError("An includes item needs a target.")
        wrong = "?"
        while any(self._find(target, wrong) for target in item.target):
            wrong = random_word(rng)
        return next(filter(_squeeze, item.target)), wrong


def _squeeze(text: str) -> str:
    return " ".join(plain(text).split())
