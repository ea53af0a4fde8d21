"""A regular expression of the bank's own."""

import re
import warnings
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.text import MAX_CHARS, is_refusal, no_answer
from app.scorers.workbench import Failed, workbench

_PHRASINGS = ("{}", "The answer is {}.", "The answer is {}", "Answer: {}", "#### {}", "({})")


class Pattern(ScorerParams):
    """A regular expression: a match is right, or a group of it is compared with the targets.

    Attributes:
        pattern: Python syntax, searched for in the whole answer; the last match counts.
        group: Number or name of the group that holds the answer. Without one, any match is right.
        ignore_case: Upper and lower case are one.
        timeout_s: Seconds the search may take; then the answer is unparsed.
    """

    version: ClassVar[str] = "1"

    pattern: Annotated[str, Field(min_length=1, max_length=2000)]
    group: int | str | None = None
    ignore_case: bool = False
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 2.0

    @model_validator(mode="after")
    def _compiles(self) -> Self:
        try:
            compiled = self._compile()
        except (re.error, OverflowError, RecursionError) as exc:
            raise ValueError(f"pattern is not a regular expression: {exc}") from exc
        if isinstance(self.group, int) and not 0 <= self.group <= compiled.groups:
            raise ValueError(f"group {self.group} does not exist, pattern has {compiled.groups}")
        if isinstance(self.group, str) and self.group not in compiled.groupindex:
            names = ", ".join(compiled.groupindex) or "none"
            raise ValueError(f"group {self.group!r} does not exist, pattern names: {names}")
        return self

    def _compile(self) -> re.Pattern[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "[[" may change its meaning in some later Python
            return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Mark by the last match; unparsed where a wanted group is not found in time."""
        if self.group is not None and not item.target:
            return NotScored(outcome=Outcome.ERROR, reason="The item has no target.")
        # Users' patterns may take exponential time, hence the helper process.
        result = await workbench().run(
            "search",
            timeout_s=self.timeout_s,
            pattern=self.pattern,
            ignore_case=self.ignore_case,
            group=self.group or 0,
            text=answer.text[-MAX_CHARS:],
        )
        if isinstance(result, Failed):
            return NotScored(
                outcome=Outcome.UNPARSED, reason=f"The pattern gave no result: {result.reason}."
            )
        found: str | None = result["found"]
        if found is None:
            if self.group is not None or is_refusal(answer.text):
                return no_answer(answer.text, "The pattern does not match the answer.")
            return Scored(score=0.0, extractor="pattern")
        right = self.group is None or self._fold(found) in map(self._fold, item.target)
        return Scored(score=float(right), extracted=found, extractor="pattern")

    def _fold(self, text: str) -> str:
        text = " ".join(text.split())
        return text.casefold() if self.ignore_case else text

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A target in a phrasing that the pattern matches, and one that it does not accept.

        The pattern is run here without a time limit, on short texts only.
        """
        compiled = self._compile()
        accepted = [self._fold(target) for target in item.target]
        noise = "".join(chr(ord("a") + int(i)) for i in rng.integers(26, size=6))

        def marked_right(text: str) -> bool | None:
            found = [match[self.group or 0] or "" for match in compiled.finditer(text)]
            if not found:
                return None if self.group is not None else False
            return self.group is None or self._fold(found[-1]) in accepted

        wrongs = (*(stem for t in item.target for stem in _altered(t)), noise, "0", "-1", "?")
        right = [p.format(s) for s in item.target for p in _PHRASINGS if marked_right(p.format(s))]
        wrong = [
            p.format(s) for s in wrongs for p in _PHRASINGS if marked_right(p.format(s)) is False
        ]
        if not right or not wrong:
            raise InvalidInputError(
                f"No {'right' if not right else 'wrong'} answer to simulate could be made for "
                f"pattern {self.pattern!r} from the targets {list(item.target)!r}."
            )
        return right[0], wrong[0]


def _altered(target: str) -> tuple[str, ...]:
    """Texts of the same kind as `target` that differ from it."""
    digits = re.sub(r"\d", lambda m: str((int(m[0]) + 1) % 10), target)
    letters = "".join(chr(ord(c) + 1) if c.isalpha() and c not in "zZ" else c for c in target)
    return tuple(
        text for text in (digits, letters, target[::-1], target + target) if text != target
    )
