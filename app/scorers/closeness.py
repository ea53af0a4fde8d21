"""Scores how near the number of an answer is to the target."""

from decimal import Decimal
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, model_validator
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome
from app.scorers.base import Mark, NotScored, Scored, ScorerParams
from app.scorers.numbers import Number, prepare, whole_number
from app.scorers.numeric import Several, stated_number
from app.scorers.text import no_answer


class Closeness(ScorerParams):
    r"""Nearness of the answer's number to the target: 1 at the target, 0 from the limit on.

    The score falls linearly with the error. The limit is the larger of `abs_limit` and `rel_limit`
    times the target's absolute value. The number is found as by `numeric`.

    Attributes:
        rel_limit: Error from which the score is 0, as a share of the target's absolute value.
        abs_limit: Error from which the score is 0, as an absolute difference.
    """

    version: ClassVar[str] = "1"

    rel_limit: Annotated[float, Field(gt=0)] | None = None
    abs_limit: Annotated[float, Field(gt=0)] | None = None

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.rel_limit is None and self.abs_limit is None:
            raise ValueError("give rel_limit, abs_limit or both: the error from which it is 0")
        return self

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score by the nearest target; unparsed where no number or several are stated."""
        targets = [number for text in item.target if (number := whole_number(text)) is not None]
        if not any(self._limit(target.value) for target in targets):
            return NotScored(
                outcome=Outcome.ERROR,
                reason="The item has no target."
                if not targets
                else "The target is 0, which has no relative error: the scorer needs abs_limit.",
            )
        found = stated_number(prepare(answer.text), formulas=False)
        if found is None:
            return no_answer(answer.text, "No number could be found in the answer.")
        extractor, content = found
        if isinstance(content, Several):
            named = " and ".join(content.texts)
            return no_answer(answer.text, f"The answer names several numbers: {named}.")
        if not isinstance(content, Number):
            return no_answer(answer.text, "The answer is not a plain number.")
        marks = [
            1 - abs(float(value) - float(wanted)) / limit
            for target in targets
            for value, wanted in content.readings(target)
            if (limit := self._limit(wanted))
        ]
        return Scored(score=max(0.0, *marks), extracted=content.text, extractor=extractor)

    @override
    def unmarkable(self, item: ItemContent) -> str | None:
        if not item.target or any(whole_number(text) is not None for text in item.target):
            return None
        return "a number"

    def _limit(self, wanted: Decimal) -> float:
        return max(self.abs_limit or 0.0, (self.rel_limit or 0.0) * abs(float(wanted)))

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The first target, and a number beyond the limit of every target."""
        targets = [number for text in item.target if (number := whole_number(text)) is not None]
        if not targets:
            raise InvalidInputError("A closeness item needs a number as target.")
        highest = max(float(target.value) + self._limit(target.value) for target in targets)
        return item.target[0], f"{highest + 1 + rng.integers(9):f}"
