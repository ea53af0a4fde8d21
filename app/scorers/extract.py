"""Compares what a pattern finds in an answer as lm-eval's filters and `exact_match` do."""

import re
import string
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.confined import Failed, confined
from app.scorers.pattern import COMPILE_TIMEOUT_S, PHRASINGS, altered, compile_pattern
from app.scorers.text import MAX_CHARS, is_refusal, no_answer

_Regex = Annotated[str, Field(min_length=1, max_length=2000)]


class Extract(ScorerParams):
    """The text that a pattern finds equals an accepted answer, without what is removed from both.

    lm-eval scores in the same way: a `regex` filter with its `group_select`, then `exact_match`
    with `regexes_to_ignore`, `ignore_case`, `ignore_punctuation` and `ignore_numbers`.

    Attributes:
        pattern: Regular expression in Python syntax. Its first group that is not empty counts, or
            the whole match if it has no group. Without a pattern, the whole answer counts.
        match: Which match counts: 0 for the first, -1 for the last.
        remove: Patterns whose matches are removed from answer and targets, one after the other.
        ignore_case: Whether the comparison of answer and targets ignores case.
        ignore_punctuation: Whether ASCII punctuation is ignored.
        ignore_numbers: Whether digits are ignored.
        timeout_s: Seconds that the search may take; after these the answer is unparsed.
    """

    version: ClassVar[str] = "1"
    searches: ClassVar[bool] = True

    pattern: _Regex | None = None
    match: Annotated[int, Field(ge=-1000, le=1000)] = 0
    remove: Annotated[list[_Regex], Field(max_length=20)] = Field(default_factory=list)
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0

    @property
    @override
    def work_s(self) -> float:
        return self.timeout_s

    @override
    async def check(self) -> None:
        for pattern in filter(None, [self.pattern, *self.remove]):
            work = partial(compile_pattern, pattern=pattern, ignore_case=False)
            result = await confined(work, timeout_s=COMPILE_TIMEOUT_S)
            if isinstance(result, Failed):
                raise ValueError(f"pattern {pattern!r} cannot be compiled: {result.reason}")  # noqa: TRY004  as all faults
            if isinstance(result, str):
                raise ValueError(f"{pattern!r} is not a regular expression: {result}")  # noqa: TRY004  as all faults

    @override
    def gave_up(self, reason: str) -> NotScored:
        return NotScored(outcome=Outcome.UNPARSED, reason=f"The patterns gave no result: {reason}.")

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score what the pattern finds; unparsed where it finds nothing, or not in time."""
        if not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        work = self._work([answer.text[-MAX_CHARS:]], item)
        result = await confined(work, timeout_s=self.timeout_s)
        if isinstance(result, Failed):
            return self.unmarked(result)
        ((stated, right),) = result
        if stated is None or (not right and is_refusal(answer.text)):
            return no_answer(answer.text, "The pattern does not match the answer.")
        extractor = "whole" if self.pattern is None else "pattern"
        return Scored(score=float(right), extracted=stated, extractor=extractor)

    def _work(self, texts: list[str], item: ItemContent) -> partial[list[tuple[str | None, bool]]]:
        said = self.model_dump(exclude={"timeout_s"})
        return partial(extract, texts=texts, targets=list(item.target), **said)

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A target in a phrasing that the pattern matches, and another such text that is wrong."""
        noise = "".join(chr(ord("a") + int(i)) for i in rng.integers(26, size=6))
        stems = (*(stem for t in item.target for stem in altered(t)), noise, "0", "-1", "?", "Z")
        texts = [
            *(phrase.format(stem) for stem in item.target for phrase in PHRASINGS),
            *(phrase.format(stem) for stem in stems for phrase in PHRASINGS),
        ]
        told = [
            (text, *found) for text, found in zip(texts, self._work(texts, item)(), strict=True)
        ]
        right = [text for text, stated, is_right in told if stated is not None and is_right]
        wrong = [text for text, stated, is_right in told if stated is not None and not is_right]
        if not right or not wrong:
            raise InvalidInputError(
                f"No {'right' if not right else 'wrong'} answer to simulate could be made for "
                f"pattern {self.pattern!r} from the targets {list(item.target)!r}."
            )
        return right[0], wrong[0]


def extract(
    *,
    texts: list[str],
    targets: list[str],
    pattern: str | None,
    match: int,
    remove: list[str],
    ignore_case: bool,
    ignore_punctuation: bool,
    ignore_numbers: bool,
) -> list[tuple[str | None, bool]]:
    """What `pattern` finds in each of `texts`, and whether that equals one of `targets`."""
    compiled = None if pattern is None else re.compile(pattern)
    removed = [re.compile(each) for each in remove]
    dropped = "" if not ignore_punctuation else string.punctuation
    table = str.maketrans("", "", dropped + (string.digits if ignore_numbers else ""))

    def stated(text: str) -> str | None:
        if compiled is None:
            return text.strip()
        found = compiled.findall(text)
        if not -len(found) <= match < len(found):
            return None
        chosen = found[match]
        if isinstance(chosen, tuple):
            chosen = next(filter(None, chosen), None)
        return None if chosen is None else chosen.strip()

    def bare(text: str) -> str:
        for each in removed:
            text = each.sub("", text)
        return (text.lower() if ignore_case else text).translate(table)

    accepted = {bare(target) for target in targets}
    found = [stated(text) for text in texts]
    return [(text, text is not None and bare(text) in accepted) for text in found]
