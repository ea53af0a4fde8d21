"""How an endpoint is called: what adapters do, and endpoints store, about each call."""

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
    """How long to go on.

    A cold start does not count as an attempt: the model is on its way.

    Attributes:
        max_attempts: Calls at most, the first included; 1 never retries a failure.
        base_s: Mean of the first wait is half of this; it doubles with each failure.
        cap_s: No wait is drawn from a range longer than this.
        max_wait_s: Sum of all waits but those for a cold start. A Retry-After beyond what is
            left of it is cut to that.
        cold_start_wait_s: Sum of all waits for a cold start.
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
