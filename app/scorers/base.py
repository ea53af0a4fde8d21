"""The interface of scorers: they score an answer to an item. No HTTP, no SQL, no theta here."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict
from typing_extensions import override

from app.items import Answer, ItemContent, Outcome
from app.sandbox.pool import SMALL_MEMORY
from app.scorers.confined import Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A score that enters the likelihood.

    Attributes:
        score: Score in [0, 1]; 1 is best.
        extracted: The part of the answer that was scored.
        extractor: Name of the extractor that found this part.
        evidence: Further grounds of the score as JSON: judgements, the judge's version.
    """

    score: float
    extracted: str | None = None
    extractor: str | None = None
    evidence: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.score) and 0.0 <= self.score <= 1.0):
            raise ValueError(f"A score lies in [0, 1], got {self.score}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScored:
    """An answer without a score: it is stored and counted, but does not enter the likelihood.

    Attributes:
        outcome: Any outcome except `SCORED`.
        reason: One sentence for the person who reads the result.
        code: Code of a failure of the scorer itself (`judge_timeout`); `None` where the cause is
            the answer.
        evidence: Further grounds as JSON, as in `Scored`.
    """

    outcome: Outcome
    reason: str
    code: str | None = None
    evidence: Mapping[str, Any] | None = None


Mark = Scored | NotScored

#: Seconds allowed for scoring one long answer; an ordinary one takes a tenth of this.
WORK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Scale of the measured value, before it becomes a score in [0, 1] where 1 is best.

    Attributes:
        min: Lowest value; `None` if the scale has none.
        max: Highest value; `None` if the scale has none.
        higher_is_better: Whether higher values are better.
    """

    min: float | None = 0.0
    max: float | None = 1.0
    higher_is_better: bool = True


def random_word(rng: np.random.Generator) -> str:
    """A word of nine letters that means nothing."""
    return "".join(map(chr, rng.integers(ord("a"), ord("z"), 9)))


class Scorer(BaseModel):
    """Base of the scorers: a frozen object that scores answers; its fields are its parameters.

    Pydantic checks the parameters of a `ScorerSpec` and writes their JSON schema, so that a new
    scorer is one class with fields, `score` and `examples`.

    Attributes:
        version: Version of the scorer; changes whenever the same answer may get another score.
        measure: Scale of the measured value; scores are always in [0, 1].
        searches: Whether it runs a user's pattern, which may never end, and so needs a child.
        libraries: Modules that scoring needs; they import slowly, so only children import them.
        memory: Bytes that scoring takes; above `SMALL_MEMORY` it always runs in a child process.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: ClassVar[str] = "1"
    measure: ClassVar[Scale] = Scale()
    searches: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()
    memory: ClassVar[int] = SMALL_MEMORY

    @override
    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Take methods also from a mixin behind this class, which declares them without a body."""
        super().__init_subclass__(**kwargs)
        for name in Scorer.__abstractmethods__:
            found = [vars(each)[name] for each in cls.__mro__ if name in vars(each)]
            if found[0] is vars(Scorer)[name] and len(found) > 1:
                setattr(cls, name, found[1])

    @abstractmethod
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score `answer` to `item`.

        Scorers never get cut-off or filtered answers: `app.scorers.mark` handles these first.
        """

    @abstractmethod
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A right and a wrong answer to `item`, for simulated examinees.

        Raises:
            InvalidInputError: The item has no accepted answer, or none that this scorer accepts.
        """

    @property
    def inner(self) -> "Scorer":
        """The scorer whose `work_s`, `libraries` and `memory` apply: itself or the one it uses."""
        return self

    @property
    def work_s(self) -> float:
        """Seconds that scoring one answer may take in a helper process."""
        return WORK_S

    async def check(self) -> None:
        """Check the parameters beyond the fields' validation, where a check takes computing.

        Raises:
            ValueError: The parameters make no sense; the message says why.
            BusyError: The helper processes have too much to do.
        """

    def unmarkable(self, item: ItemContent) -> str | None:
        """Kind of target that the scorer needs if no answer can match the item's; else None.

        Only short texts are checked, so that a check of many items is fast.
        """
        del item
        return None

    def unmarked(self, failed: Failed) -> NotScored:
        """Result for an answer that the helper processes did not score.

        If the helper was lost, nobody has read the answer: the result must not be unparsed.
        """
        if failed.is_lost:
            return Scorer.gave_up(self, failed.reason)
        return self.gave_up(failed.reason)

    def gave_up(self, reason: str) -> NotScored:
        """Result for an answer that could not be scored in time."""
        return NotScored(
            outcome=Outcome.ERROR,
            reason=f"The answer could not be scored: {reason}.",
            code="scorer_gave_up",
        )
