"""Settings of calls to an endpoint, which endpoints store and adapters use."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, StringConstraints

from app.shapes import Number, Text, Value, Whole

_Stop = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
_Seconds = Annotated[Number, Field(gt=0, le=3600)]
_Wait = Annotated[Number, Field(ge=0, le=86_400)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams(Value):
    """Sampling settings of every call; `null` leaves the endpoint's default."""

    temperature: Annotated[Number, Field(ge=0, le=10)] | None = 0.0
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = 1024
    seed: Annotated[Whole, Field(ge=0, le=2**53)] | None = None
    stop: Annotated[tuple[_Stop, ...], Field(max_length=16)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy(Value):
    """Retries for one answer after failures that may be temporary."""

    # A cold start does not count as an attempt, because the model is being loaded.
    max_attempts: Annotated[Whole, Field(ge=1, le=100)] = 5
    base_s: _Seconds = 1.0
    """The first wait is random, from 0 to this many seconds; each later range is twice as long."""
    cap_s: _Seconds = 30.0
    """Longest range of a wait, seconds."""
    # A longer Retry-After is cut to what is left of it.
    max_wait_s: _Wait = 300.0
    """Limit on the sum of all waits for one answer, seconds."""
    cold_start_wait_s: _Wait = 900.0
    """Limit on the sum of all waits for a cold start, seconds."""
