"""A simulated examinee of known ability inside the process, for demo and dry runs."""

import asyncio
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from app.adapters.base import Completion, CompletionRequest, EndpointConfig, ProbeReport
from app.adapters.probing import capabilities
from app.adapters.transport import Transport
from app.errors import EndpointRejectedError, InvalidInputError

_CHARS_PER_TOKEN = 4
_MAX_LATENCY_MS = 600_000.0
_OPTIONS = frozenset({"theta", "seed", "latency_ms", "skills"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scripted:
    """Answers right with the probability that an item's curve gives at `theta`.

    The random answer is a pure function of (`seed`, item), so asking again gives the same answer.
    Token counts are estimated at four characters per token.

    Attributes:
        theta: Ability on the bank's scale, logits.
        seed: Random seed; another seed is another examinee of the same ability.
        latency_ms: Duration of each answer, milliseconds.
        skills: Prefix of item keys to the ability on these items, for examinees that are better at
            one task than at another.
    """

    theta: float = 0.0
    seed: int = 0
    latency_ms: float = 0.0
    skills: Mapping[str, float] = field(default_factory=dict)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Answer from `request.hints`; see `Examinee.complete`."""
        hints = request.hints
        if hints is None:
            raise EndpointRejectedError(
                "A scripted examinee answers from an item's parameters; this request has none."
            )
        if self.latency_ms:
            await asyncio.sleep(self.latency_ms / 1000)
        theta = next(
            (skill for start, skill in self.skills.items() if hints.key.startswith(start)),
            self.theta,
        )
        # A number in [0, 1) that is the same on every machine.
        digest = hashlib.sha256(f"{self.seed}:{hints.key}".encode()).digest()
        is_right = int.from_bytes(digest[:8]) / 2**64 < hints.probability_right(theta)
        text = hints.right if is_right else hints.wrong
        prompt_chars = sum(len(turn.content) for turn in request.messages)
        return Completion(
            text=text,
            raw=text,
            tokens_in=math.ceil(prompt_chars / _CHARS_PER_TOKEN),
            tokens_out=math.ceil(len(text) / _CHARS_PER_TOKEN),
            latency_s=self.latency_ms / 1000,
            model=f"scripted(theta={self.theta:g}, seed={self.seed})",
        )

    async def probe(self) -> ProbeReport:
        """Report without a call, as the capabilities are known."""
        return ProbeReport(
            capabilities=capabilities(chat=True, system_role=True, seed=True),
            latency_ms=self.latency_ms,
            detail=f"A simulated examinee of ability {self.theta:g}; no endpoint is called.",
        )


def scripted(config: EndpointConfig, transport: Transport) -> Scripted:  # noqa: ARG001
    """Build from the options `theta`, `seed`, `latency_ms` and `skills`; the transport is not used.

    Raises:
        InvalidInputError: An option is unknown or has a wrong value.
    """
    options = config.options
    for name in options.keys() - _OPTIONS:
        detail = f"Unknown option {name!r}; kind 'scripted' has {', '.join(sorted(_OPTIONS))}."
        raise InvalidInputError.at(f"/options/{name}", detail)
    seed = _number(options, "seed", 0.0, -(2**53), 2**53)
    if not seed.is_integer():
        raise _wrong("seed", "an integer", options["seed"])
    return Scripted(
        theta=_number(options, "theta", 0.0, -100.0, 100.0),
        seed=int(seed),
        latency_ms=_number(options, "latency_ms", 0.0, 0.0, _MAX_LATENCY_MS),
        skills=_skills(options),
    )


def _skills(options: Mapping[str, object]) -> dict[str, float]:
    given = options.get("skills", {})
    if not isinstance(given, Mapping):
        raise _wrong("skills", "an object of abilities", given)
    return {str(start): _number(given, start, 0.0, -100.0, 100.0) for start in given}


def _number(
    options: Mapping[str, object], name: str, default: float, low: float, high: float
) -> float:
    value = options.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise _wrong(name, f"a number from {low:g} to {high:g}", value)
    return float(value)


def _wrong(name: str, expected: str, value: object) -> InvalidInputError:
    detail = f"Option {name!r}: expected {expected}, got {value!r}."
    return InvalidInputError.at(f"/options/{name}", detail)
