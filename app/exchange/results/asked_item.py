"""One item as an examinee was asked it, and one look at it in a file of results."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from app.exchange.results.recorded import Method, Source, value_at
from app.items import JsonValue, Message, ScorerSpec

#: Beyond these a setting is a slip of the file.
_MAX_TOKENS: Final = 10_000_000
_MAX_TEMPERATURE: Final = 100.0

Tool = Literal["lm-eval", "inspect", "openai-evals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recorded answer, and what its row says of it.

    Attributes:
        tool: Who wrote the row.
        source: The file.
        task: Of the row.
        item: Key of the item.
        examinee: Who answered.
        metric: Metric or scorer that gave the score.
        offered: All that the row has.
        score: In [0, 1]; None where it has none.
        asked: What was asked; raises `UnusableRowError`.
        sent: Tells its words from others.
        number: Of the document in its data set.
        written: The answer as the model wrote it.
        used: Tokens of prompt and answer, where they were counted.
        responses: Those of lm-eval, with likelihoods.
        filter: What the answer went through before it was marked.
        shots: Examples before each question; None where nobody says.
        scorer: How the answer was marked, as far as one of ours does the same.
        templated: The prompt was written by a model's own chat template.
        method: How a log says that all its answers were obtained.
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
    """What was sent, byte for byte, and what counts as right.

    Exactly one of `prompt` and `messages` is given.

    Attributes:
        options: Texts whose likelihood after the prompt was compared, each as it was sent; empty
            where an answer was written.
        after: Where the options stood in a blank: what followed them, and was compared.
        gap: What every option begins with that lengths do not count.
        targets: Accepted answers, as recorded.
        stop: Where answers ended.
        max_tokens: Longest answer; None where the file does not say.
        temperature: At which answers were drawn; None where the file does not say.
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
        """How long answers could be and at which temperature they were drawn, if it is known."""
        return drawn(self.max_tokens, self.temperature)


class UnusableRowError(Exception):
    """A row that cannot become an item; its words say why."""


def drawn(max_tokens: int | None, temperature: float | None) -> Method:
    """How answers were drawn, as far as it is known."""
    found = Method()
    if max_tokens is not None:
        found["max_tokens"] = max_tokens
    if temperature is not None:
        found["temperature"] = temperature
    return found


def token_limit(value: object) -> int | None:
    """A longest answer; None where it is none."""
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None


def temperature_of(value: object) -> float | None:
    """A temperature; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_TEMPERATURE else None


def tokens_of(usage: object, read: str, written: str) -> tuple[int, int] | None:
    """Tokens of a prompt and of its answer; None where a row does not say both."""
    counts = value_at(usage, read), value_at(usage, written)
    known = [n for n in counts if type(n) is int and 0 <= n <= _MAX_TOKENS]
    return (known[0], known[1]) if len(known) == len(counts) else None


def digest_of(value: object) -> bytes:
    """Tells what was sent apart."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).digest()


def common_space(texts: Sequence[str]) -> str:
    """The white space that all texts begin with."""
    if not texts:
        return ""
    spaces = [text[: len(text) - len(text.lstrip())] for text in texts]
    shortest = min(spaces, key=len)
    while not all(space.startswith(shortest) for space in spaces):
        shortest = shortest[:-1]
    return shortest
