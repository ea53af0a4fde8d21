"""An item as it was sent to an examinee, and a row of a results file that records an answer."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from app.exchange.results.recorded import Method, Source, value_at
from app.items import JsonValue, Message, ScorerSpec

#: Larger values of these settings are errors in the file.
_MAX_TOKENS: Final = 10_000_000
_MAX_TEMPERATURE: Final = 100.0

Tool = Literal["lm-eval", "inspect", "openai-evals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recorded answer, and what its row says about it.

    Attributes:
        tool: Tool that wrote the row.
        source: File that holds the row.
        task: Task of the row.
        item: Key of the item.
        examinee: Name of the examinee that answered.
        metric: Metric or scorer that gave the score.
        offered: All metrics or scorers of the row.
        score: Score in [0, 1]; None without a score.
        asked: Returns the item as it was sent; raises `UnusableRowError`.
        sent: Returns what was sent, to tell different wordings of an item apart.
        number: Number of the document in its data set.
        written: The answer as the model wrote it.
        used: Numbers of prompt and answer tokens, if they were counted.
        responses: Responses as lm-eval records them, with likelihoods.
        filter: Filter that processed the answer before it was scored.
        shots: Number of examples before each question; None if unknown.
        scorer: Our scorer that scores as the file's did, if there is one.
        templated: The prompt was written by a model's own chat template.
        method: How all answers of the file were obtained, as its log says.
    """

    tool: Tool
    source: Source
    task: str
    item: str
    examinee: str
    metric: str
    offered: Sequence[str]
    score: float | None
    asked: "Callable[[], AskedItem]"
    sent: Callable[[], JsonValue]
    number: JsonValue
    written: str | None = None
    used: tuple[int, int] | None = None
    responses: JsonValue = None
    filter: str | None = None
    shots: int | None = None
    scorer: ScorerSpec | None = None
    templated: bool = False
    method: Method = field(default_factory=Method)


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """The item as it was sent, byte for byte, and its accepted answers.

    Exactly one of `prompt` and `messages` is given.

    Attributes:
        options: Option texts, as sent, whose likelihoods after the prompt were compared; empty if
            the model wrote an answer.
        after: Text behind the blank that the options filled, whose likelihoods were compared.
        gap: Common beginning of the options that does not count for their lengths.
        targets: Accepted answers, as recorded.
        stop: Stop sequences of the answers.
        max_tokens: Largest number of answer tokens; None if the file does not say.
        temperature: Sampling temperature of the answers; None if the file does not say.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    options: tuple[str, ...] = ()
    after: str = ""
    gap: str = ""
    targets: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None

    @property
    def drawn(self) -> Method:
        """Token limit and temperature of the answers, if they are known."""
        return drawn(self.max_tokens, self.temperature)


class UnusableRowError(Exception):
    """A row that cannot become an item; the message says why."""


def drawn(max_tokens: int | None, temperature: float | None) -> Method:
    """Token limit and temperature as a `Method`, without those that are unknown."""
    found = Method()
    if max_tokens is not None:
        found["max_tokens"] = max_tokens
    if temperature is not None:
        found["temperature"] = temperature
    return found


def token_limit(value: object) -> int | None:
    """A valid token limit of answers, else None."""
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None


def temperature_of(value: object) -> float | None:
    """A valid temperature, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_TEMPERATURE else None


def tokens_of(usage: object, read: str, written: str) -> tuple[int, int] | None:
    """Numbers of prompt and answer tokens; None unless the row has both."""
    counts = value_at(usage, read), value_at(usage, written)
    known = [n for n in counts if type(n) is int and 0 <= n <= _MAX_TOKENS]
    return (known[0], known[1]) if len(known) == len(counts) else None


def digest_of(value: object) -> bytes:
    """Hash of what was sent, which differs for different wordings."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def common_space(texts: Sequence[str]) -> str:
    """The white space at the beginning of all texts."""
    if not texts:
        return ""
    spaces = [text[: len(text) - len(text.lstrip())] for text in texts]
    shortest = min(spaces, key=len)
    while not all(space.startswith(shortest) for space in spaces):
        shortest = shortest[:-1]
    return shortest
