"""Build the messages that ask a language model an item."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints, TypeAdapter, ValidationError
from typing_extensions import TypeAliasType

from app.errors import FieldProblem, InvalidInputError
from app.items import ItemContent, Json, Message, choice_letter
from app.shapes import Input, ShownAs, Text, Value, Whole
from app.validation import problems_of

TEMPLATE_VERSION: Final = 1
"""Raise it whenever `build_messages` or `flatten` writes anything differently."""

CHOICE_INSTRUCTION: Final = "Answer with the letter of the right option only, for example: A"
FREE_INSTRUCTION: Final = (
    "Give the final answer on the last line, in the form `Answer: ...`, with nothing after it."
)
Mode = TypeAliasType("Mode", Literal["generate", "loglikelihood"])
Normalise = TypeAliasType("Normalise", Literal["bytes", "characters", "none"])
GENERATE: Final = "generate"
LOGLIKELIHOOD: Final = "loglikelihood"

MAX_ITEM_SHOTS: Final = 1000
#: As long as an item's text may be: recorded system prompts run to tens of thousands of characters.
_Text = Annotated[Text, StringConstraints(max_length=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Value):
    """How turns are joined to one text, for endpoints without chat."""

    question: _Text = "Question: "
    """Text before a question."""
    answer: _Text = "\n\nAnswer:"
    """Text between a question and its answer; the text of an item ends with it."""
    gap: _Text = " "
    """Text right before an answer or an option."""
    separator: _Text = "\n\n"
    """Text between examples, and behind the system prompt."""

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop sequences: the beginning of a next question that a model may invent."""
        label = self.question.rstrip()
        return (f"\n{label}",) if label else ()


LAYOUT: Final = Layout()


class Turn(Input):
    """One few-shot turn."""

    role: Literal["user", "assistant"]
    content: _Text


def _message(turn: object) -> Message:
    return turn if isinstance(turn, Message) else Message(**dict(Turn.model_validate(turn)))


_Turn = Annotated[Message, BeforeValidator(_message), ShownAs(Turn)]
_Stop = Annotated[Text, StringConstraints(min_length=1, max_length=200)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle(Value):
    """How a language model is asked the items."""

    system: _Text = ""
    """System prompt; an empty text for none."""
    prefix: Annotated[tuple[_Turn, ...], Field(max_length=2 * MAX_ITEM_SHOTS)] = ()
    """Few-shot turns before each item."""
    choice_instruction: _Text = CHOICE_INSTRUCTION
    free_instruction: _Text = FREE_INSTRUCTION
    mode: Mode = "generate"
    """`loglikelihood`: the likelihoods of an item's options are compared. Endpoints that cannot
    report likelihoods are asked for the letter of the option, and the result says so."""
    normalise: Normalise = "bytes"
    """Whether log-likelihoods are divided by the option's length, in UTF-8 bytes or in
    characters."""
    blank: _Text = ""
    """A mark in the question. Each option replaces it, and the likelihoods of the text after it are
    compared. Empty: compare the likelihoods of the options themselves."""
    stop: Annotated[tuple[_Stop, ...], Field(max_length=16)] = ()
    """Stop sequences, in addition to the endpoint's own."""
    layout: Layout = LAYOUT
    item_shots: Annotated[Whole, Field(ge=0, le=MAX_ITEM_SHOTS)] = 0
    """Number of examples in the text of each item."""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PromptStyle":
        """Read a style from JSON.

        Raises:
            InvalidInputError: Unknown keys or values of another type, each with its pointer.
        """
        try:
            return _STYLE.validate_python(dict(data))
        except ValidationError as error:
            problems = problems_of(error.errors(include_url=False), cls)
        raise InvalidInputError("The prompt style cannot be used.", problems=problems)

    def to_dict(self) -> dict[str, Json]:
        """Write the style as JSON."""
        written: dict[str, Json] = _STYLE.dump_python(self, mode="json")
        return written

    @property
    def shots(self) -> int:
        """Number of examples before each item."""
        return self.item_shots + sum(turn.role == "assistant" for turn in self.prefix)

    def with_shots(self, shots: int) -> "PromptStyle":
        """The style with only its first `shots` examples.

        Raises:
            InvalidInputError: The style has fewer examples, or they are in the items' own text.
        """
        detail = ""
        if self.item_shots and shots != self.shots:
            detail = (
                f"expected {self.shots} or nothing, got {shots}: the text of each item in the "
                f"bank already holds its {self.item_shots} recorded examples"
            )
        elif shots > self.shots:
            detail = f"expected at most the {self.shots} examples of the bank's prompt, got {shots}"
        if detail:
            raise InvalidInputError(
                f"shots: {detail}.", problems=[FieldProblem("/prompt/shots", detail)]
            )
        kept: list[Message] = []
        for turn in self.prefix:
            if sum(each.role == "assistant" for each in kept) == shots - self.item_shots:
                break
            kept.append(turn)
        return replace(self, prefix=tuple(kept))

    @property
    def template_hash(self) -> str:
        """SHA-256 of everything besides the item that affects the text of a prompt."""
        # Default values are left out, so that new fields do not change old hashes.
        parts = {
            name: value
            for name, value in self.to_dict().items()
            if name in _ALWAYS_HASHED or value != _USUAL[name]
        }
        canonical = json.dumps([TEMPLATE_VERSION, parts], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


_ALWAYS_HASHED: Final = ("system", "prefix", "choice_instruction", "free_instruction")
_STYLE: Final = TypeAdapter(PromptStyle)
_USUAL: Final = PromptStyle().to_dict()


def build_messages(item: ItemContent, style: PromptStyle) -> tuple[Message, ...]:
    """The chat turns that ask `item`.

    These are the system prompt, few-shot turns, and the item. A multiple-choice item lists its
    options as `A. ...` and asks for the letter; a free-answer item asks for a last line with the
    answer. An item with its own messages keeps them; options and instruction are added to the last
    user turn only if it has options. The item's system prompt, if any, replaces the style's. If
    likelihoods of options are compared, the question has no options and no instruction.
    """
    turns = item.messages or (Message("user", item.prompt or ""),)
    has_system = any(turn.role == "system" for turn in turns)
    opening = (Message("system", style.system),) if style.system and not has_system else ()
    own_system = tuple(turn for turn in turns if turn.role == "system")
    asked = [turn for turn in turns if turn.role != "system"]
    if style.mode == LOGLIKELIHOOD:
        pass
    elif item.choices:
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


def flatten(messages: Iterable[Message], layout: Layout = LAYOUT) -> str:
    """One text for endpoints without chat; by default `Question: ...`, `Answer: ...`, `Answer:`.

    System turns keep their place and have no label. Answers are cut at `layout.stop`.
    """
    return join_turns(messages, layout) + layout.answer


def join_turns(messages: Iterable[Message], layout: Layout) -> str:
    """Join turns to one text, as in `flatten`, without the open answer at the end."""
    text = ""
    for turn in messages:
        if turn.role == "assistant":
            answer = layout.answer if text else layout.answer.lstrip()
            text += answer + layout.gap + turn.content
        else:
            label = layout.question if turn.role == "user" else ""
            text += (layout.separator if text else "") + label + turn.content
    return text
