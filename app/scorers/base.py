"""The scorer's contract: item and answer in, mark out. No HTTP, no SQL, no theta."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from pydantic import BaseModel, ConfigDict
from pydantic_core import ErrorDetails

from app.items import Answer, ItemContent, Outcome
from app.sandbox.pool import SMALL_MEMORY
from app.scorers.confined import Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A mark that enters the likelihood.

    Attributes:
        score: In [0, 1]; 1 is best.
        extracted: The part of the answer that was marked.
        extractor: Which extractor found it.
        evidence: What the mark rests on besides, JSON-able: judgements, the judge's version.
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
    """No mark: kept, counted, never estimated on.

    Attributes:
        outcome: Any outcome but `SCORED`.
        reason: One sentence for the person who reads the result.
        code: Names a failure of the scorer itself (`judge_timeout`); `None` where the answer was
            at fault.
        evidence: As for `Scored`.
    """

    outcome: Outcome
    reason: str
    code: str | None = None
    evidence: Mapping[str, Any] | None = None


Mark = Scored | NotScored

#: Seconds for marking one long answer; an honest one takes a tenth.
WORK_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What a scorer measures, before it becomes a mark in [0, 1] of which 1 is best.

    Attributes:
        min: Lowest value; `None` where there is none.
        max: Highest value; `None` where there is none.
        higher_is_better: Its direction.
    """

    min: float | None = 0.0
    max: float | None = 1.0
    higher_is_better: bool = True


def fault_of(error: ErrorDetails) -> str:
    """What is wrong by one of pydantic's errors, without its "Value error, " in front."""
    return str(error["msg"]).removeprefix("Value error, ")


@runtime_checkable
class Scorer(Protocol):
    """Marks one answer. Implementations are small frozen objects built by the registry."""

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Mark `answer` to `item`.

        A cut-off or filtered answer never reaches a scorer: `app.scorers.mark` settles those first.
        """
        ...

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A right and a wrong answer to `item`, for simulated examinees.

        Raises:
            InvalidInputError: The item has no accepted answer, or none that this scorer accepts.
        """
        ...


class ScorerParams(BaseModel):
    """Base of the scorers: a frozen object whose fields are its parameters.

    Pydantic checks the parameters of a `ScorerSpec` and writes their JSON schema, so that a new
    scorer is one class with fields, `score` and `examples`.

    Attributes:
        version: Changed whenever the same answer may be marked differently than before.
        measure: What it measures; marks are always in [0, 1].
        searches: Whether it runs what its user wrote, which may never end: in a child process.
        libraries: Modules that scoring needs and that take long to import: in children alone.
        memory: Bytes that scoring takes in a child; above `SMALL_MEMORY` it is always in one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    version: ClassVar[str] = "1"
    measure: ClassVar[Scale] = Scale()
    searches: ClassVar[bool] = False
    libraries: ClassVar[tuple[str, ...]] = ()
    memory: ClassVar[int] = SMALL_MEMORY

    @property
    def inner(self) -> "ScorerParams":
        """Whose `work_s`, libraries and memory it takes: its own, or of what it builds on."""
        return self

    @property
    def work_s(self) -> float:
        """Seconds that marking one answer may take in a helper process."""
        return WORK_S

    async def check(self) -> None:
        """Find out what takes computing to find out, beyond the fields' own validation.

        Raises:
            ValueError: The parameters make no sense; says why.
            BusyError: The helper processes have too much to do.
        """

    def unmarkable(self, item: ItemContent) -> str | None:
        """What is expected of a target where none of the item's could be any answer's; else None.

        Looks at short texts only, so that it may be asked of many items in a row.
        """
        del item
        return None

    def unmarked(self, failed: Failed) -> NotScored:
        """The mark of an answer to which the helper processes gave none.

        An answer whose helper is lost was not read: it is no answer that cannot be read.
        """
        if failed.is_lost:
            return ScorerParams.gave_up(self, failed.reason)
        return self.gave_up(failed.reason)

    def gave_up(self, reason: str) -> NotScored:
        """The mark of an answer that could not be marked in time."""
        return NotScored(
            outcome=Outcome.ERROR,
            reason=f"The answer could not be scored: {reason}.",
            code="scorer_gave_up",
        )
