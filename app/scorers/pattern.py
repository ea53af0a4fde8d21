"""A regular expression of the bank's own."""

import re
import warnings
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.confined import Failed, Json, confined
from app.scorers.text import MAX_CHARS, is_refusal, no_answer, settled, stands

#: Seconds; an honest pattern is compiled in thousandths.
COMPILE_TIMEOUT_S = 2.0
#: How answers are stated, where one is made up that a pattern matches.
PHRASINGS = ("{}", "The answer is {}.", "The answer is {}", "Answer: {}", "#### {}", "({})")


class Pattern(ScorerParams):
    """A regular expression: a match is right, or a group of it is compared with the targets.

    Attributes:
        pattern: Python syntax, searched for in the whole answer; the last match counts.
        group: Number or name of the group that holds the answer. Without one, any match is right.
        ignore_case: Upper and lower case are one.
        timeout_s: Seconds the search may take; then the answer is unparsed.
    """

    version: ClassVar[str] = "2"
    searches: ClassVar[bool] = True

    pattern: Annotated[str, Field(min_length=1, max_length=2000)]
    group: int | str | None = None
    ignore_case: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0

    @property
    @override
    def work_s(self) -> float:
        return self.timeout_s

    @override
    async def check(self) -> None:
        result = await confined(compile_pattern, self._asked(), timeout_s=COMPILE_TIMEOUT_S)
        if isinstance(result, Failed):
            raise ValueError(f"pattern cannot be compiled: {result.reason}")  # noqa: TRY004  as all faults
        if "fault" in result:
            raise ValueError(f"pattern is not a regular expression: {result['fault']}")
        groups, names = result["groups"], result["names"]
        if isinstance(self.group, int) and not 0 <= self.group <= groups:
            raise ValueError(f"group {self.group} does not exist, pattern has {groups}")
        if isinstance(self.group, str) and self.group not in names:
            listed = ", ".join(names) or "none"
            raise ValueError(f"group {self.group!r} does not exist, pattern names: {listed}")

    def _asked(self) -> dict[str, Any]:
        return {"pattern": self.pattern, "ignore_case": self.ignore_case}

    @override
    def gave_up(self, reason: str) -> NotScored:
        return NotScored(outcome=Outcome.UNPARSED, reason=f"The pattern gave no result: {reason}.")

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Mark by the last match; unparsed where a wanted group is not found in time."""
        if self.group is not None and not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        text = answer.text[-MAX_CHARS:]
        text = text if self.group is None else settled(text)
        result = await confined(search, self._search([text]), timeout_s=self.timeout_s)
        if isinstance(result, Failed):
            return self.unmarked(result)
        found: str | None = result["found"][0]
        if found is None:
            if self.group is not None or is_refusal(answer.text):
                return no_answer(answer.text, "The pattern does not match the answer.")
            return Scored(score=0.0, extractor="pattern")
        right = self.group is None or (
            self._fold(found) in map(self._fold, item.target) and stands(found, text)
        )
        return Scored(score=float(right), extracted=found, extractor="pattern")

    def _search(self, texts: list[str]) -> dict[str, Any]:
        return {**self._asked(), "group": self.group or 0, "texts": texts}

    def _fold(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A target in a phrasing that the pattern matches, and one that it does not accept."""
        accepted = [self._fold(target) for target in item.target]
        noise = "".join(chr(ord("a") + int(i)) for i in rng.integers(26, size=6))
        wrongs = (*(stem for t in item.target for stem in altered(t)), noise, "0", "-1", "?")
        rights = [phrase.format(stem) for stem in item.target for phrase in PHRASINGS]
        others = [phrase.format(stem) for stem in wrongs for phrase in PHRASINGS]
        result = search(self._search([*rights, *others]))

        def is_right(found: str | None) -> bool | None:
            if found is None:
                return None if self.group is not None else False
            return self.group is None or self._fold(found) in accepted

        found = [is_right(text) for text in result["found"]]
        right = [text for text, mark in zip(rights, found, strict=False) if mark]
        wrong = [
            text for text, mark in zip(others, found[len(rights) :], strict=True) if mark is False
        ]
        if not right or not wrong:
            raise InvalidInputError(
                f"No {'right' if not right else 'wrong'} answer to simulate could be made for "
                f"pattern {self.pattern!r} from the targets {list(item.target)!r}."
            )
        return right[0], wrong[0]


def search(job: Json) -> Json:
    """The last match of `pattern` in each of `texts`."""
    compiled = _compiled(job)

    def last(text: str) -> str | None:
        found = None
        for match in compiled.finditer(text):
            found = match
        return None if found is None else found[job["group"]] or ""

    return {"found": [last(text) for text in job["texts"]]}


def compile_pattern(job: Json) -> Json:
    """The groups that `pattern` has, or what is wrong with it."""
    try:
        compiled = _compiled(job)
    except (re.error, OverflowError, RecursionError) as exc:
        return {"fault": str(exc)}
    return {"groups": compiled.groups, "names": list(compiled.groupindex)}


def _compiled(job: Json) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "[[" may change its meaning in some later Python
        return re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)


def altered(target: str) -> tuple[str, ...]:
    """Texts of the same kind as `target` that differ from it."""
    digits = re.sub(r"\d", lambda m: str((int(m[0]) + 1) % 10), target)
    letters = "".join(chr(ord(c) + 1) if c.isalpha() and c not in "zZ" else c for c in target)
    return tuple(
        text for text in (digits, letters, target[::-1], target + target) if text != target
    )
