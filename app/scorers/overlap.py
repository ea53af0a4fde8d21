"""Overlap of an answer with references: ROUGE-L, BLEU, chrF, token F1, string similarity.

These metrics are for free-text answers, where no two good ones are equal. All of them compare the
wording: a right answer in other words scores low. Banks of such items need a continuous model.
"""

import re
import string
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from rapidfuzz import fuzz
from rapidfuzz.distance import Indel, JaroWinkler, LCSseq, Levenshtein
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scale, Scored, Scorer, random_word
from app.scorers.exact import stated_answer
from app.scorers.text import MAX_CHARS, declined, plain


class TextMetric(Scorer):
    """Base of the scorers that compare an answer with the item's targets; the best one counts.

    Attributes:
        part: Part to compare: `whole` is the entire answer, `stated` the answer that it states, as
            `exact` reads it.
    """

    version: ClassVar[str] = "2"

    part: Literal["whole", "stated"] = "whole"

    @abstractmethod
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        """Similarity in [0, 1], 1 is best; `None` where targets have nothing to compare with."""

    def nearest(self, text: str, references: Sequence[str]) -> float:
        """Similarity to the nearest reference; 0 where none has anything to compare with."""
        return self.similarity(text, references) or 0.0

    def comparable(self, targets: Sequence[str]) -> bool:
        """Whether the targets have anything to compare with."""
        return self.similarity(targets[0], targets) is not None

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score the similarity to the nearest target; refused where the answer declines."""
        if not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        if refusal := declined(answer.text, item.target):
            return refusal
        extractor, text = "whole", answer.text[-MAX_CHARS:]
        if self.part == "stated":
            extractor, text = stated_answer(plain(answer.text))
        value = self.similarity(text, item.target)
        if value is None:
            return NotScored(
                outcome=Outcome.ERROR, reason="The item's targets hold nothing to compare with."
            )
        return Scored(score=min(1.0, max(0.0, value)), extracted=text, extractor=extractor)

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and random words."""
        if not item.target or not self.comparable(item.target):
            raise InvalidInputError("An item for a text metric needs a target with words.")
        return item.target[0], " ".join(random_word(rng) for _ in range(4))


class RougeL(TextMetric):
    """ROUGE-L F-measure: the longest common subsequence of words. Scale 0 to 1.

    Words are runs of a-z and 0-9 in lower case, without stemming, so that the value equals that of
    the `rouge-score` package. Targets without any such word are skipped.

    Source: Lin (2004), "ROUGE: A Package for Automatic Evaluation of Summaries".
    """

    @override
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        words = _rouge_words(text)
        wanted = [reference for target in targets if (reference := _rouge_words(target))]
        if not wanted:
            return None
        return max(
            # F1 of precision LCS / |answer| and recall LCS / |reference|.
            2 * LCSseq.similarity(reference, words) / (len(reference) + len(words))
            for reference in wanted
        )


class SacrebleuMetric(TextMetric):
    """A metric of sacrebleu over all targets at once; its value of 0 to 100 is divided by 100."""

    measure: ClassVar[Scale] = Scale(min=0.0, max=100.0)

    lowercase: bool = False

    @abstractmethod
    def _metric(self) -> Any: ...

    @override
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        references = [target for target in targets if target.strip()]
        if not references:
            return None
        return float(self._metric().sentence_score(text, references).score) / 100


class Bleu(SacrebleuMetric):
    """Sentence BLEU by sacrebleu over all targets at once. sacrebleu's 0 to 100, divided by 100.

    It has exponential smoothing and effective n-gram order, sacrebleu's defaults for sentences.

    Source: Papineni et al. (2002); Post (2018), "A Call for Clarity in Reporting BLEU Scores".

    Attributes:
        tokenize: sacrebleu's tokenisation: `13a`, `intl`, `zh` or `char`.
        lowercase: Whether case is ignored.
    """

    tokenize: Literal["13a", "intl", "zh", "char"] = "13a"

    @override
    def nearest(self, text: str, references: Sequence[str]) -> float:
        # Over several references at once, BLEU rises with their number.
        return max(self.similarity(text, [reference]) or 0.0 for reference in references)

    @override
    def _metric(self) -> Any:
        return _bleu(self.tokenize, self.lowercase)


class Chrf(SacrebleuMetric):
    """Sentence chrF by sacrebleu over all targets at once. sacrebleu's 0 to 100, divided by 100.

    Source: Popović (2015), "chrF: character n-gram F-score"; (2017) for chrF++.

    Attributes:
        word_order: Order of word n-grams: 0 is chrF, 2 is chrF++.
        lowercase: Whether case is ignored.
    """

    word_order: Annotated[int, Field(ge=0, le=2)] = 0

    @override
    def _metric(self) -> Any:
        return _chrf(self.word_order, self.lowercase)


class TokenF1(TextMetric):
    """F1 of the words that answer and target share, as SQuAD counts it. Scale 0 to 1.

    Case, punctuation and articles are ignored. Where a target has nothing else, an answer that has
    nothing else either scores 1.

    Source: Rajpurkar et al. (2016, 2018); the official evaluation script of SQuAD 2.0.
    """

    @override
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        words = squad_normal(text).split()
        return max(f1(words, squad_normal(target).split()) for target in targets)


class SpanF1(Scorer):
    """F1 of the set of spans that an answer lists against all targets of the item. Scale 0 to 1.

    This is for items that ask for several things (entities, labels): each target is one of them,
    and all are wanted. Spans are compared after SQuAD's normalisation.

    Attributes:
        separator: Text between the spans. By default spans are read from a JSON list if there is
            one, else from lines, else between semicolons, else between commas.
    """

    separator: Annotated[str, Field(min_length=1, max_length=10)] | None = None

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score the F1 of the spans; refused where the answer declines."""
        wanted = {squad_normal(target) for target in item.target} - {""}
        if not wanted:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        if refusal := declined(answer.text, item.target):
            return refusal
        spans = _spans(answer.text[-MAX_CHARS:], self.separator)
        found = {squad_normal(span) for span in spans} - {""}
        shared = len(found & wanted)
        return Scored(
            score=2 * shared / (len(found) + len(wanted)),
            extracted="; ".join(spans),
            extractor="spans",
        )

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """All targets, and a random word."""
        if not item.target:
            raise InvalidInputError("A span item needs targets.")
        return (self.separator or "\n").join(item.target), random_word(rng)


class Similarity(TextMetric):
    """Likeness of two texts letter by letter. Scale 0 to 1, 1 is equal.

    Attributes:
        method: `levenshtein`: 1 - edits / longer length. `indel`: 1 - insertions and deletions /
            sum of the lengths. `jaro_winkler`: favours a common beginning. `token_sort`: indel
            after sorting the words. `token_set`: 1 if one text has all words of the other. An
            answer of only articles and the like scores 0, unless the targets are such, too.
        ignore_case: Whether case is ignored.
    """

    version: ClassVar[str] = "3"

    method: Literal["levenshtein", "indel", "jaro_winkler", "token_sort", "token_set"] = (
        "levenshtein"
    )
    ignore_case: bool = True

    @override
    def similarity(self, text: str, targets: Sequence[str]) -> float | None:
        compare = _SIMILARITIES[self.method]
        wanted = [normal for target in targets if (normal := self._normal(target))]
        empty = [_EMPTY.fullmatch(squad_normal(each)) for each in (text, *wanted)]
        if empty[0] and not all(empty):
            return 0.0
        text = self._normal(text)
        return max((compare(text, target) for target in wanted), default=None)

    def _normal(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text


_SIMILARITIES: dict[str, Callable[[str, str], float]] = {
    "levenshtein": Levenshtein.normalized_similarity,
    "indel": Indel.normalized_similarity,
    "jaro_winkler": JaroWinkler.similarity,
    "token_sort": lambda a, b: fuzz.token_sort_ratio(a, b) / 100,
    "token_set": lambda a, b: fuzz.token_set_ratio(a, b) / 100,
}

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_EMPTY = re.compile(r"(?:(?:of|and|or|is|are|was|were|be|in|on|at|to|it|by|for|from|with)(?: |$))*")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ROUGE_BREAK = re.compile(r"[^a-z0-9]+")
_LIST_MARK = re.compile(r"^\s*(?:[-*•–]|\d+[.)])\s+")
_JSON_LIST = re.compile(r"\[\s*(?:\"(?:[^\"\\]|\\.)*\"\s*,?\s*)*\]")
_JSON_TEXT = re.compile(r"\"((?:[^\"\\]|\\.)*)\"")


def squad_normal(text: str) -> str:
    """SQuAD's `normalize_answer`: lower case, no punctuation, no articles, single blanks."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    """F1 of two bags of words; 1 if both are empty, as in SQuAD 2.0."""
    if not found or not wanted:
        return float(found == wanted)
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted))


def _rouge_words(text: str) -> list[str]:
    return _ROUGE_BREAK.sub(" ", text.lower()).split()


def _spans(text: str, separator: str | None) -> list[str]:
    if separator is not None:
        parts = text.split(separator)
    elif (listed := _JSON_LIST.search(text)) is not None:
        parts = _JSON_TEXT.findall(listed[0])
    else:
        text = text.strip()
        parts = text.split(next((mark for mark in "\n;," if mark in text), "\n"))
    return [span for part in parts if (span := _LIST_MARK.sub("", part).strip())]


@cache
def _bleu(tokenize: str, lowercase: bool) -> Any:
    from sacrebleu.metrics.bleu import BLEU  # this import takes 0.2 s, and few banks need it

    return BLEU(tokenize=tokenize, lowercase=lowercase, effective_order=True)


@cache
def _chrf(word_order: int, lowercase: bool) -> Any:
    from sacrebleu.metrics.chrf import CHRF

    return CHRF(word_order=word_order, lowercase=lowercase)


#: Metrics that another scorer may build on, by name.
METRICS: dict[str, type[TextMetric]] = {
    "rouge_l": RougeL,
    "bleu": Bleu,
    "chrf": Chrf,
    "token_f1": TokenF1,
    "similarity": Similarity,
}
