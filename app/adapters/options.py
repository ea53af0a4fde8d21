"""The options of a multiple-choice item as texts whose likelihood an endpoint is asked for."""

from collections.abc import Iterable
from dataclasses import dataclass

from app.adapters.prompting import Normalise, PromptStyle, build_messages, flatten, join_turns
from app.errors import InvalidInputError
from app.items import ItemContent, Message, choice_letter


@dataclass(frozen=True, slots=True)
class OptionText:
    """One option as its likelihood is asked for.

    Attributes:
        context: What it is to be likely after.
        continuation: What is to be likely.
        compared: What its likelihood is divided by the length of: the option without the gap.
    """

    context: str
    continuation: str
    compared: str

    @property
    def n_bytes(self) -> int:
        """Length in UTF-8."""
        return len(self.compared.encode())

    def divisor(self, normalise: Normalise) -> int:
        """What the sum of its log-probabilities is divided by."""
        lengths = {"none": 1, "bytes": self.n_bytes, "characters": len(self.compared)}
        return lengths[normalise]


def option_texts(item: ItemContent, style: PromptStyle) -> tuple[OptionText, ...]:
    """Each option of a multiple-choice item as its likelihood is asked for.

    Raises:
        InvalidInputError: Two options that are equal, an empty one, none at all, or a question
            without the style's blank.
    """
    _require_options(item)
    messages = build_messages(item, style)
    if not style.blank:
        context = flatten(messages, style.layout)
        return tuple(
            OptionText(context, style.layout.gap + option, option) for option in item.choices
        )
    before, mark, after = messages[-1].content.partition(style.blank)
    if not mark or not after.strip():
        raise InvalidInputError(
            f"The question has no blank {style.blank!r} with text behind it: the likelihood of "
            "what follows the blank is what tells the options apart."
        )
    shots = _filled(messages[:-1], style)
    return tuple(
        OptionText(
            join_turns([*shots, Message("user", before + option)], style.layout),
            after,
            after.strip(),
        )
        for option in item.choices
    )


def _filled(messages: Iterable[Message], style: PromptStyle) -> list[Message]:
    """Examples with their answers in the blank."""
    filled: list[Message] = []
    for turn in messages:
        if turn.role == "assistant" and filled and style.blank in filled[-1].content:
            question = filled.pop().content.replace(style.blank, turn.content, 1)
            filled.append(Message("user", question))
        else:
            filled.append(turn)
    return filled


def _require_options(item: ItemContent) -> None:
    if len(item.choices) < 2:
        raise InvalidInputError(
            "The item has no options to compare: asking by log-likelihood is for multiple choice."
        )
    for position, option in enumerate(item.choices):
        letter = choice_letter(position)
        if not option.strip():
            raise InvalidInputError(f"Option {letter} of the item is empty: it has no likelihood.")
        if option in item.choices[:position]:
            twin = choice_letter(item.choices.index(option))
            raise InvalidInputError(
                f"Options {twin} and {letter} of the item are the same text: no likelihood tells "
                "them apart."
            )
