"""From an item's content to the messages that put it to a language model."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from app.errors import FieldProblem, InvalidInputError
from app.items import ItemContent, Message, choice_letter

TEMPLATE_VERSION: Final = 1
"""Raise it whenever `build_messages` or `flatten` writes anything differently."""

CHOICE_INSTRUCTION: Final = "Answer with the letter of the right option only, for example: A"
FREE_INSTRUCTION: Final = (
    "Give the final answer on the last line, in the form `Answer: ...`, with nothing after it."
)
FLAT_STOP: Final = "\nQuestion:"
"""Where a model that goes on after its answer begins to invent the next question."""

_ROLES: Final = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """How a bank puts its items.

    Attributes:
        system: System prompt; empty for none.
        prefix: Few-shot turns between the system prompt and the item.
        choice_instruction: Follows the options of a multiple-choice item; may be empty.
        free_instruction: Follows the prompt of a free-answer item; may be empty.
    """

    system: str = ""
    prefix: tuple[Message, ...] = ()
    choice_instruction: str = CHOICE_INSTRUCTION
    free_instruction: str = FREE_INSTRUCTION

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PromptStyle":
        """Read a style as JSON holds it; `prefix` is a list of `{"role", "content"}`.

        Raises:
            InvalidInputError: Unknown keys or values of another type, each with its pointer.
        """
        known = [field.name for field in fields(cls)]
        problems = [
            FieldProblem(f"/{name}", f"Expected one of {', '.join(known)}.")
            for name in data
            if name not in known
        ]
        texts = {name: data[name] for name in known if name in data and name != "prefix"}
        problems += [
            FieldProblem(f"/{name}", f"Expected a string, got {type(value).__name__}.")
            for name, value in texts.items()
            if not isinstance(value, str)
        ]
        prefix = data.get("prefix", [])
        turns = prefix if isinstance(prefix, list) else [prefix]
        problems += [
            FieldProblem(f"/prefix/{i}", 'Expected {"role": "user"|"assistant", "content": text}.')
            for i, turn in enumerate(turns)
            if not _is_turn(turn)
        ]
        if problems:
            raise InvalidInputError("The prompt style cannot be used.", problems=problems)
        return cls(**texts, prefix=tuple(Message(t["role"], t["content"]) for t in turns))

    def to_dict(self) -> dict[str, Any]:
        """The style as JSON holds it."""
        return {
            "system": self.system,
            "prefix": [{"role": turn.role, "content": turn.content} for turn in self.prefix],
            "choice_instruction": self.choice_instruction,
            "free_instruction": self.free_instruction,
        }

    @property
    def template_hash(self) -> str:
        """SHA-256 of everything but the item that decides how a prompt reads."""
        canonical = json.dumps(
            [TEMPLATE_VERSION, self.to_dict()], ensure_ascii=False, sort_keys=True
        )
        return hashlib.sha256(canonical.encode()).hexdigest()


def _is_turn(turn: object) -> bool:
    return (
        isinstance(turn, dict)
        and turn.keys() == {"role", "content"}
        and turn["role"] in _ROLES[1:]
        and isinstance(turn["content"], str)
    )


def build_messages(item: ItemContent, style: PromptStyle) -> tuple[Message, ...]:
    """The chat turns that put `item`.

    System prompt, few-shot turns, then the item. A multiple-choice item lists its options as
    `A. ...` and asks for the letter; a free-answer item asks for a last line that holds the
    answer. An item that brings its own messages keeps them as they are, with options and
    instruction added to the last user turn only when it has options; the style's system prompt
    stands aside when the item has one.
    """
    turns = item.messages or (Message("user", item.prompt or ""),)
    has_system = any(turn.role == "system" for turn in turns)
    opening = (Message("system", style.system),) if style.system and not has_system else ()
    own_system = tuple(turn for turn in turns if turn.role == "system")
    asked = [turn for turn in turns if turn.role != "system"]
    if item.choices:
        options = "\n".join(
            f"{choice_letter(position)}. {text}" for position, text in enumerate(item.choices)
        )
        _append(asked, "\n\n".join(filter(None, (options, style.choice_instruction))))
    elif not item.messages:
        _append(asked, style.free_instruction)
    return (*opening, *own_system, *style.prefix, *asked)


def _append(turns: list[Message], text: str) -> None:
    """Add `text` to the last user turn; make one if there is none."""
    if not text:
        return
    for position in range(len(turns) - 1, -1, -1):
        if turns[position].role == "user":
            turns[position] = Message("user", f"{turns[position].content}\n\n{text}")
            return
    turns.append(Message("user", text))


def flatten(messages: Iterable[Message]) -> str:
    """One text for endpoints without chat: `Question: ...`, `Answer: ...` and an open `Answer:`.

    System turns stand unlabelled where they are. Answers are cut at `FLAT_STOP`.
    """
    labels = {"system": "", "user": "Question: ", "assistant": "Answer: "}
    return "\n\n".join([*(labels[turn.role] + turn.content for turn in messages), "Answer:"])
