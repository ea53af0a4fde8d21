"""Scores whether an answer contains one of the accepted texts."""

import re
from typing import ClassVar

import numpy as np

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.text import is_denied, is_refusal, no_answer, plain, settled


class Includes(ScorerParams):
    """One of the accepted answers occurs anywhere in the answer, last without a "not".

    Attributes:
        ignore_case: Whether case is ignored.
        whole_words: Whether only whole words match: not "cat" in "concatenate", nor 25 in 2.25.
    """

    version: ClassVar[str] = "2"

    ignore_case: bool = True
    whole_words: bool = True

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
            pattern = rf"(?<!\w)(?<!\d[.,]){pattern}(?!\w)(?![.,]\d)"
        found = [*re.finditer(pattern, text, re.IGNORECASE if self.ignore_case else 0)]
        return found[-1] if found else None

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and a text in which no target occurs."""
        if not any(map(_squeeze, item.target)):
            raise InvalidInputError("An includes item needs a target.")
        wrong = "?"
        while any(self._find(target, wrong) for target in item.target):
            wrong = "".join(chr(ord("a") + int(i)) for i in rng.integers(26, size=12))
        return next(filter(_squeeze, item.target)), wrong


def _squeeze(text: str) -> str:
    return " ".join(plain(text).split())
