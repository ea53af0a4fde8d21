"""The scorer's contract: item and answer in, mark out. No HTTP, no SQL, no theta."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from app.items import Answer, ItemContent, Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A mark that enters the likelihood.

    Attributes:
        score: In [0, 1]; 1 is best.
        extracted: The part of the answer that was marked.
        extractor: Which extractor found it.
    """

    score: float
    extracted: str | None = None
    extractor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotScored:
    """No mark: kept, counted, never estimated on.

    Attributes:
        outcome: Any outcome but `SCORED`.
        reason: One sentence for the person who reads the result.
    """

    outcome: Outcome
    reason: str


Mark = Scored | NotScored


@runtime_checkable
class Scorer(Protocol):
    """Marks one answer. Implementations are small frozen objects built by the registry."""

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Mark `answer` to `item`.

        A cut-off or filtered answer never reaches a scorer: `app.scorers.mark` settles those first.
        """
        ...
