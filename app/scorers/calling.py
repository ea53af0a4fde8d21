"""Scorers that call endpoints: the tools they need, what they may spend, how they fail.

No HTTP here. A scorer names endpoints; its caller passes `Tools` that reach them.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Protocol, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator
from typing_extensions import override

from app.errors import ExamineeError, InvalidInputError, ScorerBudgetError
from app.items import Answer, FinishReason, ItemContent, Json, Message, Outcome
from app.scorers.base import Mark, NotScored, Scorer

#: An endpoint's id or name; names are resolved when a session is created.
EndpointName = Annotated[str, Field(min_length=1, max_length=200)]

#: Kinds of service that an endpoint offers to a scorer.
Need = Literal["completions", "embeddings", "callback"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Reply of a language model.

    Attributes:
        finish: Why the model stopped writing.
        model: Name that the endpoint gives to its model.
    """

    text: str
    finish: FinishReason
    model: str


@dataclass(frozen=True, slots=True)
class Embedded:
    """Embedding vectors of texts, in the order of the texts, and the model that made them."""

    vectors: Sequence[Sequence[float]]
    model: str


class Tools(Protocol):
    """Calls for one answer. Tools handle retries, rate limits and the budget; scorers do not.

    Every method raises `ExamineeError` if no try gives a usable reply, and `ScorerBudgetError` if
    the scorer's budget is spent.
    """

    async def complete(
        self, endpoint: str, messages: tuple[Message, ...], schema: Mapping[str, Json]
    ) -> Written:
        """Get a reply of a language model, by the JSON `schema` if the endpoint supports this."""
        ...

    async def embed(self, endpoint: str, texts: Sequence[str]) -> Embedded:
        """Get embedding vectors of `texts`."""
        ...

    async def post(self, endpoint: str, payload: Mapping[str, Json]) -> Mapping[str, Json]:
        """Send `payload`, signed, to a callback endpoint, and return the JSON object it replies."""
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


class CallingScorer(Scorer):
    """Base of the scorers that call out.

    Attributes:
        failure_prefix: Prefix of the scorer's failure codes, such as `judge` in `judge_timeout`.
        needs: Kind of service that the endpoints must offer.
        budget: Budget for scoring in one session; when it is spent, the session ends.
    """

    failure_prefix: ClassVar[str]
    needs: ClassVar[Need]

    budget: Budget | None = None

    @abstractmethod
    def endpoints(self) -> tuple[str, ...]:
        """Ids or names of the endpoints that the scorer calls, at least one."""

    @abstractmethod
    async def score_with(self, tools: Tools, item: ItemContent, answer: Answer) -> Mark:
        """Score `answer` with calls to endpoints."""

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Refuse to score, because this scorer has no tools.

        Raises:
            InvalidInputError: Always; `app.scorers.mark` takes the tools.
        """
        raise InvalidInputError(
            f"A {self.failure_prefix} scorer calls an endpoint: it needs tools to score "
            f"{answer.text[:40]!r} to {(item.prompt or '')[:40]!r}."
        )

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """A right and a wrong answer; see `Scorer`."""
        if not item.target:
            raise InvalidInputError("Simulated examinees need a target to answer with.")
        return item.target[0], "Something else altogether."

    def failed(self, error: ExamineeError | ScorerBudgetError) -> NotScored:
        """Result without a score, for a failure of the scorer and not of the examinee."""
        code = f"{self.failure_prefix}_{error.code.removeprefix('endpoint_')}"
        return self.missing(code, error.detail)

    def missing(self, code: str, reason: str) -> NotScored:
        """Result without a score, with a code and a reason."""
        return NotScored(outcome=Outcome.ERROR, reason=reason, code=code)
