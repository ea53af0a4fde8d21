"""Scores answers by regular expressions that the bank gives."""

import re
import string
import warnings
from collections.abc import Iterable
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, Scorer, random_word
from app.scorers.confined import Failed, confined
from app.scorers.text import MAX_CHARS, is_refusal, no_answer, settled, stands

#: Seconds that compiling may take; an ordinary pattern takes thousandths of a second.
COMPILE_TIMEOUT_S = 2.0
#: Phrasings for simulated answers, one of which the pattern should match.
PHRASINGS = ("{}", "The answer is {}.", "The answer is {}", "Answer: {}", "#### {}", "({})")
_Regex = Annotated[str, Field(min_length=1, max_length=2000)]


class _Searching(Scorer):
    """Base of the scorers that search with a user's patterns, for `timeout_s` seconds at most."""

    searches: ClassVar[bool] = True

    timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0

    @property
    @override
    def work_s(self) -> float:
        return self.timeout_s

    @override
    def gave_up(self, reason: str) -> NotScored:
        return NotScored(outcome=Outcome.UNPARSED, reason=f"The pattern gave no result: {reason}.")


class Pattern(_Searching):
    """A regular expression: a match is right, or a group of it is compared with the targets.

    Attributes:
        pattern: Regular expression in Python syntax, to find in the answer; the last match counts.
        group: Number or name of the group that holds the answer. Without one, any match is right.
        ignore_case: Whether case is ignored.
        timeout_s: Seconds that the search may take; after these the answer is unparsed.
    """

    version: ClassVar[str] = "2"

    pattern: _Regex
    group: int | str | None = None
    ignore_case: bool = False

    @override
    async def check(self) -> None:
        groups, names = await _groups_of("pattern", self.pattern, ignore_case=self.ignore_case)
        if isinstance(self.group, int) and not 0 <= self.group <= groups:
            raise ValueError(f"group {self.group} does not exist, pattern has {groups}")
        if isinstance(self.group, str) and self.group not in names:
            listed = ", ".join(names) or "none"
            raise ValueError(f"group {self.group!r} does not exist, pattern names: {listed}")

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score the last match; unparsed if `group` is set and nothing matches, or not in time."""
        if self.group is not None and not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        text = answer.text[-MAX_CHARS:]
        text = text if self.group is None else settled(text)
        result = await confined(self._search([text]), timeout_s=self.timeout_s)
        if isinstance(result, Failed):
            return self.unmarked(result)
        (found,) = result
        if found is None:
            if self.group is not None or is_refusal(answer.text):
                return no_answer(answer.text, "The pattern does not match the answer.")
            return Scored(score=0.0, extractor="pattern")
        right = self.group is None or (
            self._fold(found) in map(self._fold, item.target) and stands(found, text)
        )
        return Scored(score=float(right), extracted=found, extractor="pattern")

    def _search(self, texts: list[str]) -> partial[list[str | None]]:
        return partial(
            search,
            pattern=self.pattern,
            ignore_case=self.ignore_case,
            group=self.group or 0,
            texts=texts,
        )

    def _fold(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A target in a phrasing that the pattern matches, and another such text that is wrong."""
        accepted = [self._fold(target) for target in item.target]
        rights, others = _phrased(item.target), _phrased(_others(item, rng))

        def is_right(found: str | None) -> bool | None:
            if found is None:
                return None if self.group is not None else False
            return self.group is None or self._fold(found) in accepted

        found = [is_right(text) for text in self._search([*rights, *others])()]
        right = [text for text, mark in zip(rights, found, strict=False) if mark]
        wrong = [
            text for text, mark in zip(others, found[len(rights) :], strict=True) if mark is False
        ]
        return _simulated(right, wrong, self.pattern, item)


def search(
    *, pattern: str, ignore_case: bool, group: int | str, texts: list[str]
) -> list[str | None]:
    """The wanted group of the last match of `pattern` in each of `texts`; None without a match."""
    compiled = _compiled(pattern, ignore_case=ignore_case)

    def last(text: str) -> str | None:
        found = None
        for match in compiled.finditer(text):
            found = match
        return None if found is None else found[group] or ""

    return [last(text) for text in texts]


async def _groups_of(
    called: str, pattern: str, *, ignore_case: bool = False
) -> tuple[int, list[str]]:
    """Number of groups in `pattern` and their names, found out within limits.

    Raises:
        ValueError: It does not compile, or takes too long; `called` names it.
    """
    work = partial(compile_pattern, pattern=pattern, ignore_case=ignore_case)
    result = await confined(work, timeout_s=COMPILE_TIMEOUT_S)
    if isinstance(result, Failed):
        raise ValueError(f"{called} cannot be compiled: {result.reason}")  # noqa: TRY004  as all faults
    if isinstance(result, str):
        raise ValueError(f"{called} is not a regular expression: {result}")  # noqa: TRY004  as all faults
    return result


def compile_pattern(*, pattern: str, ignore_case: bool) -> str | tuple[int, list[str]]:
    """Number of groups in `pattern` and their names, or the error if it does not compile."""
    try:
        compiled = _compiled(pattern, ignore_case=ignore_case)
    except (re.error, OverflowError, RecursionError) as exc:
        return str(exc)
    return compiled.groups, list(compiled.groupindex)


def _compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "[[" may change its meaning in some later Python
        return re.compile(pattern, re.IGNORECASE if ignore_case else re.NOFLAG)


def _simulated(
    right: list[str], wrong: list[str], pattern: str | None, item: ItemContent
) -> tuple[str, str]:
    if not right or not wrong:
        raise InvalidInputError(
            f"No {'right' if not right else 'wrong'} answer to simulate could be made for "
            f"pattern {pattern!r} from the targets {list(item.target)!r}."
        )
    return right[0], wrong[0]


def _phrased(stems: Iterable[str]) -> list[str]:
    return [phrase.format(stem) for stem in stems for phrase in PHRASINGS]


def _others(item: ItemContent, rng: np.random.Generator) -> list[str]:
    """Texts that differ from a target: of its kind, and of others."""
    alike = [text for target in item.target for text in altered(target)]
    return [*alike, random_word(rng), "0", "-1", "?", "Z"]


def altered(target: str) -> tuple[str, ...]:
    """Texts of the same kind as `target` that differ from it."""
    digits = re.sub(r"\d", lambda m: str((int(m[0]) + 1) % 10), target)
    letters = "".join(chr(ord(c) + 1) if c.isalpha() and c not in "zZ" else c for c in target)
    return tuple(
        text for text in (digits, letters, target[::-1], target + target) if text != target
    )


class Extract(_Searching):
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

    pattern: _Regex | None = None
    match: Annotated[int, Field(ge=-1000, le=1000)] = 0
    remove: Annotated[list[_Regex], Field(max_length=20)] = Field(default_factory=list)
    ignore_case: bool = False
    ignore_punctuation: bool = False
    ignore_numbers: bool = False

    @override
    async def check(self) -> None:
        for pattern in filter(None, [self.pattern, *self.remove]):
            await _groups_of(f"pattern {pattern!r}", pattern)

    @override
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

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A target in a phrasing that the pattern matches, and another such text that is wrong."""
        texts = _phrased([*item.target, *_others(item, rng)])
        told = [
            (text, *found) for text, found in zip(texts, self._work(texts, item)(), strict=True)
        ]
        right = [text for text, _, is_right in told if is_right]
        wrong = [text for text, stated, is_right in told if stated is not None and not is_right]
        return _simulated(right, wrong, self.pattern, item)


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
