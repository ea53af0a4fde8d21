"""Endpoints (callable language models) as stored: settings, and secrets in encrypted form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from app.acting import maker, owner
from app.calling import GenerationParams, RetryPolicy
from app.records.projects import TokensPerDay, UsdPerDay
from app.shapes import Number, Text, Value, Whole

#: Kind of an examinee that answers by hand, under a name: the server does not call it.
SELF_REPORTED = "self_reported"
#: Kind of an examinee that is simulated: no model is called.
SIMULATED = "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits(Value):
    """Limits on the calls of the endpoint, over all sessions and workers; `null` is no limit."""

    # The least rates, because the time of a call must remain one that can be stored.
    rpm: Annotated[Number, Field(ge=0.001, le=1e9)] | None = None
    """Requests per minute."""
    tpm: Annotated[Number, Field(ge=0.1, le=1e12)] | None = None
    """Tokens per minute, counted as prompt plus `max_tokens`."""
    concurrency: Annotated[Whole, Field(ge=1, le=1024)] | None = None
    """Calls in flight per worker process."""
    usd_per_day: UsdPerDay | None = None
    tokens_per_day: TokensPerDay | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Price(Value):
    """Price in US dollars per million tokens; `null` if unknown."""

    input_per_1m: Annotated[Number, Field(ge=0, le=1e9)] | None = None
    output_per_1m: Annotated[Number, Field(ge=0, le=1e9)] | None = None
    currency: Literal["USD"] = "USD"

    @property
    def known(self) -> bool:
        """Whether the cost of a call can be computed at all."""
        return self.input_per_1m is not None or self.output_per_1m is not None

    def usd(self, tokens_in: int | None, tokens_out: int | None) -> float | None:
        """Cost of one call in US dollars, `None` if price or token counts are unknown.

        A direction without a price costs nothing, whatever its token count.
        """
        if not self.known or (tokens_in is None and tokens_out is None):
            return None
        into, out = self.input_per_1m or 0.0, self.output_per_1m or 0.0
        if (into and tokens_in is None) or (out and tokens_out is None):
            return None
        return ((tokens_in or 0) * into + (tokens_out or 0) * out) / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningTags(Value):
    """Tags around reasoning in the text of an answer. The reasoning is split off and stored."""

    open: Annotated[Text, StringConstraints(min_length=1, max_length=100)] = "<think>"
    close: Annotated[Text, StringConstraints(min_length=1, max_length=100)] = "</think>"


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointSettings:
    """Everything about an endpoint that is not secret."""

    kind: str
    name: str | None = None
    base_url: str = ""
    model: str = ""
    sampling: GenerationParams = field(default_factory=GenerationParams)
    reasoning: ReasoningTags = field(default_factory=ReasoningTags)
    limits: CallLimits = field(default_factory=CallLimits)
    price: Price = field(default_factory=Price)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_s: float = 120.0
    options: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_called(self) -> bool:
        """Whether the server calls the endpoint; otherwise a client answers by hand."""
        return self.kind != SELF_REPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSecrets:
    """Key and headers of an endpoint, encrypted; only the header names are readable."""

    api_key: bytes | None = field(default=None, repr=False)
    headers: bytes | None = field(default=None, repr=False)
    header_names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """An endpoint, stored or not."""

    id: str
    settings: EndpointSettings
    sealed: SealedSecrets = field(default_factory=SealedSecrets)
    revision: int = 1
    project_id: str = field(default_factory=owner)
    created_by: str | None = field(default_factory=maker)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEndpoint(Endpoint):
    """An endpoint as stored."""

    created_at: datetime
    updated_at: datetime
