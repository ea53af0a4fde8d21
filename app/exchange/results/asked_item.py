"""One item as an examinee was asked it, and one look at it in a file of results."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from app.exchange.results.recorded import Source
from app.items import Message

#: Beyond these a setting is a slip of the file.
_MAX_TOKENS: Final = 10_000_000
_MAX_TEMPERATURE: Final = 100.0

Tool = Literal["lm-eval", "inspect", "openai-evals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One recorded answer, with the row that it stands in.

    Attributes:
        tool: Who wrote the row.
        source: The file.
        task: Of the row.
        item: Key of the item.
        examinee: Who answered.
        metric: Metric or scorer that gave the score.
        offered: All that the row has.
        score: In [0, 1]; None where it has none.
        row: The row, decoded.
        header: Of the log, where one is.
    """

    tool: Tool
    source: Source
    task: str
    item: str
    examinee: str
    metric: str
    offered: Sequence[str]
    score: float | None
    row: Mapping[str, Any]
    header: Mapping[str, Any] = field(default_factory=dict)


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
    def drawn(self) -> dict[str, Any]:
        """How long answers could be and at which temperature they were drawn, if it is known."""
        known = {"max_tokens": self.max_tokens, "temperature": self.temperature}
        return {name: value for name, value in known.items() if value is not None}


class UnusableRowError(Exception):
    """A row that cannot become an item; its words say why."""


def token_limit(value: object) -> int | None:
    """A longest answer; None where it is none."""
    return value if type(value) is int and 0 < value <= _MAX_TOKENS else None


def temperature_of(value: object) -> float | None:
    """A temperature; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= _MAX_TEMPERATURE else None


def tokens_of(usage: object, read: str, written: str) -> tuple[int, int] | None:
    """Tokens of a prompt and of its answer; None where a row does not say both.

    Args:
        usage: What a row says was used.
        read: Its name for those of the prompt.
        written: And for those of the answer.
    """
    if not isinstance(usage, Mapping):
        return None
    counts = usage.get(read), usage.get(written)
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
