"""Scorers that call out: what they need from outside, what they may spend, how they fail.

No HTTP here. A scorer names endpoints; whoever marks hands it `Tools` that reach them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from app.errors import ExamineeError, InvalidInputError, ScorerBudgetError
from app.items import Answer, FinishReason, ItemContent, Json, Message, Outcome
from app.scorers.base import Mark, NotScored, ScorerParams

#: An endpoint's id or name; names are resolved when a session is created.
EndpointName = Annotated[str, Field(min_length=1, max_length=200)]

#: What an endpoint offers a scorer.
Need = Literal["completions", "embeddings", "callback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What an endpoint wrote.

    Attributes:
        text: Its visible answer.
        finish: Why it stopped.
        model: The model that wrote, as the endpoint names it.
    """

    text: str
    finish: FinishReason
    model: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """Vectors of some texts, in their order, and the model that made them."""

    vectors: Sequence[Sequence[float]]
    model: str


class Tools(Protocol):
    """Calls for one answer. Retries, rate limits and the budget are in here, not in scorers.

    Every method raises `ExamineeError` when there is no usable reply in the end, and
    `ScorerBudgetError` when the scorer's budget is spent.
    """

    async def complete(
        self, endpoint: str, messages: tuple[Message, ...], schema: Mapping[str, Json]
    ) -> Written:
        """Have a language model write; `schema` is asked for where the endpoint knows how to."""
        ...

    async def embed(self, endpoint: str, texts: Sequence[str]) -> Embedded:
        """Vectors of `texts`."""
        ...

    async def post(self, endpoint: str, payload: Mapping[str, Json]) -> Mapping[str, Json]:
        """Send `payload`, signed, to a callback endpoint; the JSON object that it replies."""
        ...


class Budget(BaseModel):
    """What a scorer may spend in one session. Calls in flight when it ends are still paid.

    Attributes:
        usd: US dollars; needs the price of every endpoint.
        tokens: Prompt and completion together.
        calls: Calls, retries included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    usd: Annotated[float, Field(gt=0)] | None = None
    tokens: Annotated[int, Field(ge=1)] | None = None
    calls: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _some_cap(self) -> Self:
        if self.usd is None and self.tokens is None and self.calls is None:
            raise ValueError("give at least one of usd, tokens and calls")
        return self


class CallingScorer(ScorerParams):
    """Base of the scorers that call out.

    Attributes:
        failure_prefix: Begins the codes of its failures: `judge_timeout`.
        needs: What its endpoints must offer.
        budget: What may be spent on marking in one session; when it is gone, the session ends.
    """

    failure_prefix: ClassVar[str]
    needs: ClassVar[Need]

    budget: Budget | None = None

    @abstractmethod
    def endpoints(self) -> tuple[str, ...]:
        """Ids or names of the endpoints it calls, at least one."""

    @abstractmethod
    async def score_with(self, tools: Tools, item: ItemContent, answer: Answer) -> Mark:
        """Mark `answer`, calling out."""

    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Not without tools.

        Raises:
            InvalidInputError: Always; `app.scorers.mark` takes the tools.
        """
        raise InvalidInputError(
            f"A {self.failure_prefix} scorer calls an endpoint: it needs tools to score "
            f"{answer.text[:40]!r} to {(item.prompt or '')[:40]!r}."
        )

    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:  # noqa: ARG002
        """A right and a wrong answer, see `Scorer`; by default needing no chance."""
        if not item.target:
            raise InvalidInputError("Simulated examinees need a target to answer with.")
        return item.target[0], "Something else altogether."

    def failed(self, error: ExamineeError | ScorerBudgetError) -> NotScored:
        """No mark, for a failure that is ours and not the examinee's."""
        code = f"{self.failure_prefix}_{error.code.removeprefix('endpoint_')}"
        return self.missing(code, error.detail)

    def missing(self, code: str, reason: str) -> NotScored:
        """No mark, and why."""
        return NotScored(outcome=Outcome.ERROR, reason=reason, code=code)
