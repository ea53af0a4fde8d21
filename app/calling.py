"""Settings of calls to an endpoint, which endpoints store and adapters use."""

import math
from dataclasses import dataclass

from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationParams:
    """Sampling settings sent with every call; `None` leaves the endpoint's own default."""

    temperature: float | None = 0.0
    top_p: float | None = None
    max_tokens: int | None = 1024
    seed: int | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often and how long to retry a call.

    A cold start does not count as an attempt, because the model is being loaded.

    Attributes:
        max_attempts: Most calls, including the first; 1 never retries a failure.
        base_s: Twice the mean of the first wait, seconds; it doubles with each failure.
        cap_s: Longest range from which a wait is drawn, seconds.
        max_wait_s: Most seconds of all waits together, except those for a cold start. A longer
            Retry-After is cut to what is left of it.
        cold_start_wait_s: Most seconds of all waits for a cold start together.
    """

    max_attempts: int = 5
    base_s: float = 1.0
    cap_s: float = 30.0
    max_wait_s: float = 300.0
    cold_start_wait_s: float = 900.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise InvalidInputError(f"max_attempts: expected at least 1, got {self.max_attempts}.")
        for name, value in (("base_s", self.base_s), ("cap_s", self.cap_s)):
            if not 0 < value < math.inf:
                raise InvalidInputError(f"{name}: expected more than 0 seconds, got {value}.")
        for name, value in (
            ("max_wait_s", self.max_wait_s),
            ("cold_start_wait_s", self.cold_start_wait_s),
        ):
            if not 0 <= value < math.inf:
                raise InvalidInputError(f"{name}: expected at least 0 seconds, got {value}.")
