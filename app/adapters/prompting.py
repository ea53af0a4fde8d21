"""Build the messages that ask a language model an item."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, get_args

from typing_extensions import TypeAliasType

from app.errors import FieldProblem, InvalidInputError
from app.items import ItemContent, Json, Message, choice_letter

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

_ROLES: Final = ("system", "user", "assistant")
_MAX_STOPS: Final = 16
MAX_ITEM_SHOTS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How turns become one text, where an endpoint has no chat.

    Attributes:
        question: Text before a question.
        answer: Text between a question and its answer; the text of an item ends with it.
        gap: Text between `answer` and an example's answer or an option.
        separator: Text between examples, and behind the system prompt.
    """

    question: str = "Question: "
    answer: str = "\n\nAnswer:"
    gap: str = " "
    separator: str = "\n\n"

    @property
    def stop(self) -> tuple[str, ...]:
        """Stop sequences: the beginning of a next question that a model may invent."""
        label = self.question.rstrip()
        return (f"\n{label}",) if label else ()


LAYOUT: Final = Layout()


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptStyle:
    """How a bank asks its items.

    Attributes:
        system: System prompt; empty for none.
        prefix: Few-shot turns between the system prompt and the item.
        choice_instruction: Text behind the options of a multiple-choice item; may be empty.
        free_instruction: Text behind the prompt of a free-answer item; may be empty.
        mode: `generate`: the model writes an answer, which is parsed; `loglikelihood`: the options
            of a multiple-choice item are compared by their likelihoods.
        normalise: Whether log-likelihoods are divided by the options' lengths, in bytes or in
            characters.
        blank: Mark in the question that each option replaces; the likelihoods of the text behind
            it are compared. Empty: the options' own likelihoods are compared.
        stop: Stop sequences, beside those of the endpoint.
        item_shots: Number of examples in each item's own text.
    """

    system: str = ""
    prefix: tuple[Message, ...] = ()
    choice_instruction: str = CHOICE_INSTRUCTION
    free_instruction: str = FREE_INSTRUCTION
    mode: Mode = "generate"
    normalise: Normalise = "bytes"
    blank: str = ""
    stop: tuple[str, ...] = ()
    layout: Layout = LAYOUT
    item_shots: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PromptStyle":
        """Read a style from JSON; `prefix` is a list of `{"role", "content"}`.

        Raises:
            InvalidInputError: Unknown keys or values of another type, each with its pointer.
        """
        known = [each.name for each in fields(cls)]
        problems = [
            FieldProblem(f"/{name}", f"Expected one of {', '.join(known)}, got {name!r:.80}.")
            for name in data
            if name not in known
        ]
        texts = {name: data[name] for name in _TEXTS if name in data}
        layout = data.get("layout", {})
        parts = layout if isinstance(layout, Mapping) else {"": layout}
        labels = [each.name for each in fields(Layout)]
        problems += [
            FieldProblem(pointer, f"Expected a string, got {type(value).__name__}.")
            for pointer, value in [
                *((f"/{name}", value) for name, value in texts.items()),
                *((f"/layout/{name}", value) for name, value in parts.items() if name in labels),
            ]
            if not isinstance(value, str)
        ]
        problems += [
            FieldProblem(
                f"/layout/{name}", f"Expected one of {', '.join(labels)}, got {name!r:.80}."
            )
            for name in parts
            if name not in labels
        ]
        problems += [
            FieldProblem(f"/{name}", f"Expected one of {', '.join(choices)}, got {data[name]!r}.")
            for name, kind in (("mode", Mode), ("normalise", Normalise))
            if name in data and data[name] not in (choices := get_args(kind.__value__))
        ]
        stop = data.get("stop", [])
        stops = (
            tuple(mark for mark in stop if mark and isinstance(mark, str))
            if isinstance(stop, list)
            else None
        )
        if stops is None or len(stops) < len(stop) or len(stops) > _MAX_STOPS:
            expected = (
                f"Expected a list of at most {_MAX_STOPS} texts, none empty, got {stop!r:.80}."
            )
            problems.append(FieldProblem("/stop", expected))
        prefix = data.get("prefix", [])
        turns = prefix if isinstance(prefix, list) else [prefix]
        problems += [
            FieldProblem(f"/prefix/{i}", 'Expected {"role": "user"|"assistant", "content": text}.')
            for i, turn in enumerate(turns)
            if not _is_turn(turn)
        ]
        item_shots = data.get("item_shots", 0)
        if type(item_shots) is not int or not 0 <= item_shots <= MAX_ITEM_SHOTS:
            expected = (
                f"Expected a whole number from 0 to {MAX_ITEM_SHOTS}, got {item_shots!r:.80}."
            )
            problems.append(FieldProblem("/item_shots", expected))
        if problems:
            raise InvalidInputError("The prompt style cannot be used.", problems=problems)
        return cls(
            **texts,
            **{name: data[name] for name in ("mode", "normalise") if name in data},
            prefix=tuple(Message(t["role"], t["content"]) for t in turns),
            stop=stops or (),
            layout=Layout(**parts),
            item_shots=item_shots,
        )

    def to_dict(self) -> dict[str, Json]:
        """Write the style as JSON."""
        return {
            **{name: getattr(self, name) for name in (*_TEXTS, "mode", "normalise")},
            "prefix": [{"role": turn.role, "content": turn.content} for turn in self.prefix],
            "stop": list(self.stop),
            "layout": asdict(self.layout),
            "item_shots": self.item_shots,
        }

    @property
    def shots(self) -> int:
        """Number of examples before each item."""
        return self.item_shots + sum(turn.role == "assistant" for turn in self.prefix)

    def with_shots(self, shots: int) -> "PromptStyle":
        """The style with only its first `shots` examples.

        Raises:
            InvalidInputError: The style has fewer examples, or they are in the items' own text.
        """
        if self.item_shots and shots != self.shots:
            detail = (
                f"expected {self.shots} or nothing, got {shots}: the text of each item in the "
                f"bank already holds its {self.item_shots} recorded examples"
            )
            raise InvalidInputError(
                f"shots: {detail}.", problems=[FieldProblem("/prompt/shots", detail)]
            )
        if shots > self.shots:
            detail = f"expected at most the {self.shots} examples of the bank's prompt, got {shots}"
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
        usual = PromptStyle().to_dict()
        # Default values are left out, so that new fields do not change old hashes.
        parts = {
            name: value
            for name, value in self.to_dict().items()
            if name in _ALWAYS_HASHED or value != usual[name]
        }
        canonical = json.dumps([TEMPLATE_VERSION, parts], ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()


_ALWAYS_HASHED: Final = ("system", "prefix", "choice_instruction", "free_instruction")
_TEXTS: Final = ("system", "choice_instruction", "free_instruction", "blank")


def _is_turn(turn: object) -> bool:
    return (
        isinstance(turn, dict)
        and turn.keys() == {"role", "content"}
        and turn["role"] in _ROLES[1:]
        and isinstance(turn["content"], str)
    )


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
