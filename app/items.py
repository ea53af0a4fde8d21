"""Contents of items and answers: values that scorers, adapters, storage and services share.

The engine never sees these: it knows items by their position in a bank and by their parameters.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from typing_extensions import TypeAliasType

#: Name of the default scorer: `choice` for an item with choices, else `exact`.
BY_KIND = "by_kind"

#: Any JSON object; its fields depend on what made it.
JsonObject = TypeAliasType("JsonObject", Mapping[str, Any])
#: Any JSON value.
JsonValue = TypeAliasType(
    "JsonValue", "dict[str, JsonValue] | list[JsonValue] | str | bool | int | float | None"
)
#: Any JSON value that is only read, so that lists and objects of narrower types fit, too.
Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat prompt."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemContent:
    """What is asked and what counts as right.

    Exactly one of `prompt` and `messages` is given. A multiple-choice item has `choices`; its
    `target` holds the full text of each right option. A free-answer item lists every
    accepted answer.
    """

    prompt: str | None = None
    messages: tuple[Message, ...] = ()
    choices: tuple[str, ...] = ()
    target: tuple[str, ...] = ()

    @property
    def target_letters(self) -> tuple[str, ...]:
        """Letters (A, B, ...) of the right options; empty for a free-answer item."""
        return tuple(
            choice_letter(self.choices.index(text)) for text in self.target if text in self.choices
        )

    def lettered(self, text: str) -> str:
        """An option with its letter before it; another text as it is."""
        if text not in self.choices:
            return text
        return f"{choice_letter(self.choices.index(text))}. {text}"

    @property
    def content_hash(self) -> str:
        """SHA-256 of the prompt, choices and accepted answers, without tags and scorer."""
        canonical = json.dumps(
            [self.prompt, [[m.role, m.content] for m in self.messages], self.choices, self.target],
            ensure_ascii=False,
            separators=(",", ":"),
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def sha256_of(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its members."""
    canonical = json.dumps(value, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(canonical.encode(errors="surrogatepass")).hexdigest()


def choice_letter(position: int) -> str:
    """A, B, ... Z for the option at `position` (from 0)."""
    return chr(ord("A") + position)


@dataclass(frozen=True, slots=True)
class ScorerSpec:
    """Name and arguments of an item's scorer: enough to build it again later."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


class Outcome(StrEnum):
    """Outcome of an administered item. `unparsed` ones count as wrong if the policy says so."""

    SCORED = "scored"
    UNPARSED = "unparsed"
    REFUSED = "refused"
    ERROR = "error"
    TRUNCATED = "truncated"


class FinishReason(StrEnum):
    """Why the endpoint stopped writing."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an examinee wrote.

    Attributes:
        text: Visible answer without the reasoning; scorers read this.
        raw: Whole text as it came, including the reasoning.
        reasoning: Reasoning part, if the endpoint gave or marked one.
        finish: Why the endpoint stopped writing.
    """

    text: str
    raw: str = ""
    reasoning: str | None = None
    finish: FinishReason = FinishReason.STOP
