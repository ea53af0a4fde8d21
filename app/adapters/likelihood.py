"""Likelihood of a text, such as an option of an item, after another text.

It is computed from the log-probabilities of a prompt's tokens.

A tokenizer may split `context + continuation` differently from `context` alone. So the tokens are
aligned with the text that was sent. Every token that holds a part of the continuation counts as a
whole; a token across the boundary affects all options of an item alike.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from app.adapters.base import Answered, Completion, CompletionRequest, ExactRequest
from app.adapters.endpoint import JsonEndpoint
from app.adapters.prompting import Normalise, PromptStyle, build_messages, flatten, join_turns
from app.adapters.transport import Reply
from app.errors import EndpointRejectedError, InvalidInputError, NoLikelihoodsError
from app.items import ItemContent, JsonValue, Message, choice_letter
from app.records.fields import convert

#: Marks for a space and a line break in vocabularies, for servers that show tokens unchanged.
_MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n", "ĉ": "\t"})
#: Allowance for special tokens (begin, end) and for written tokens.
_SPECIAL_TOKENS = 64
_REPLACEMENT = "�"


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRequest:
    """A text whose likelihood is asked for, and the text before it."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood(Answered):
    """Likelihood of a continuation, with the usage of the call.

    Attributes:
        logprob: Sum of the natural log-probabilities of the tokens with a part of the continuation.
        n_tokens: Number of these tokens.
    """

    logprob: float
    n_tokens: int


@runtime_checkable
class TellsLikelihoods(Protocol):
    """An examinee that gives likelihoods of texts: one attempt per call, concurrent calls."""

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Make one attempt.

        Raises:
            NoLikelihoodsError: The endpoint gives no log-probabilities of the prompt.
            ExamineeError: Any other failure, classified.
        """


@runtime_checkable
class ShowsRequests(Protocol):
    """An examinee that can show a request without sending it."""

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """The call of the first attempt."""


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt; the first has no log-probability, as it has no context."""

    text: str
    logprob: float | None


async def ask_likelihood(
    endpoint: JsonEndpoint,
    body: Mapping[str, JsonValue],
    request: LikelihoodRequest,
    read: Callable[[Reply], tuple[Completion, list[PromptToken] | None]],
    *,
    how: str,
    fields: Collection[str],
) -> Likelihood:
    """Make one attempt to compute a likelihood from the log-probabilities of a prompt.

    `read` finds the completion and the prompt's tokens, if any, in a reply; `how` describes the
    request in messages; `fields` are those that a server without the feature names in its refusal.

    Raises:
        NoLikelihoodsError: The endpoint gives no log-probabilities of the prompt.
        ExamineeError: Any other failure, classified.
    """
    mute = (
        f"{endpoint.where} returns no log-probabilities of a prompt{how}, so options cannot be "
        "compared by likelihood: ask with mode 'generate'."
    )

    def likelihood(reply: Reply) -> Likelihood:
        found, tokens = read(reply)
        if tokens is None:
            raise NoLikelihoodsError(mute)
        try:
            logprob, n_tokens = continuation_logprob(tokens, request)
        except ValueError as error:
            raise endpoint.malformed(reply, str(error)) from error
        return convert(Likelihood, found, logprob=logprob, n_tokens=n_tokens)

    try:
        return await endpoint.ask(body, likelihood)
    except EndpointRejectedError as error:
        words = error.detail.removeprefix(endpoint.where).lower()
        if not any(name in words for name in fields):
            raise
        raise NoLikelihoodsError(f"{mute} It says: {error.detail}") from error


def continuation_logprob(
    tokens: Sequence[PromptToken], request: LikelihoodRequest
) -> tuple[float, int]:
    """Sum of the log-probabilities of the continuation's tokens, and their number.

    Raises:
        ValueError: The tokens do not match the text that was sent, or a token of the continuation
            has no log-probability.
    """
    seam, text = len(request.context), request.context + request.continuation
    counted = [tokens[at] for at in _holding(tokens, text, seam)]
    logprobs = [token.logprob for token in counted if token.logprob is not None]
    if len(logprobs) < len(counted):
        raise ValueError("gives no log-probability of some tokens of the option")
    return math.fsum(logprobs), len(counted)


def _holding(tokens: Sequence[PromptToken], text: str, seam: int) -> list[int]:
    """Positions of the tokens that hold a part of `text` from `seam` on, aligned from its end.

    Servers show parts of characters without readable text, so runs of them are aligned together.
    """
    found: list[int] = []
    place, at = len(text), len(tokens) - 1
    while place > seam:
        if at < 0:
            raise ValueError("shows fewer tokens than the prompt has")
        first = at
        if not _is_part(tokens[at].text):
            place, end = _laid(text, place, tokens[at].text)
            if end <= seam:
                break
        else:
            while first > 0 and _is_part(tokens[first - 1].text):
                first -= 1
            end, place = place, _start_of_parts(tokens, first, text, place)
            if place < seam:
                parts, n_bytes = at + 1 - first, len(text[place:end].encode())
                # With one byte per token, those behind the seam are known; else the run counts.
                if parts == n_bytes:
                    first = at + 1 - len(text[seam:end].encode())
        found += range(first, at + 1)
        at = first - 1
    return found


def _is_part(text: str) -> bool:
    """Whether a token is shown without readable text: a part of a character, or nothing."""
    return not text or _REPLACEMENT in text or text.startswith(("bytes:", "<0x"))


def _laid(text: str, place: int, token: str) -> tuple[int, int]:
    """Begin and end of the token that ends at `place`; servers may omit white space around it.

    Raises:
        ValueError: The text does not have the token there.
    """
    bare = place  # white space behind it belongs to the next token
    while bare > 0 and text[bare - 1].isspace():
        bare -= 1
    for shown in (token, token.translate(_MARKS), token.strip()):
        for end in (place, bare):
            if shown and text.endswith(shown, 0, end):
                return end - len(shown), end
    raise ValueError(f"shows a token {token[:40]!r} that the prompt does not have there")


def _start_of_parts(tokens: Sequence[PromptToken], first: int, text: str, place: int) -> int:
    """Begin of a run of parts that ends at `place`, which is the end of the whole token before."""
    start = place
    while start > 0 and not text[start - 1].isascii():
        start -= 1
    if first == 0:
        return start
    shown = tokens[first - 1].text.translate(_MARKS)
    found = text.rfind(shown, start, place)  # a whole, non-ASCII token
    return start if found < 0 else found + len(shown)


def most_tokens(request: LikelihoodRequest) -> int:
    """Upper bound of the prompt's number of tokens, with special tokens; the rest is not read."""
    return len((request.context + request.continuation).encode()) + _SPECIAL_TOKENS


def of_completions(choice: Mapping[str, JsonValue], most: int) -> list[PromptToken] | None:
    """The first `most` tokens in a choice of OpenAI's completions, with `echo` and `logprobs`.

    Tokens of the prompt come first, then written tokens. None if the choice has no tokens.
    """
    found = choice.get("logprobs")
    if not isinstance(found, Mapping):
        return None
    texts, logprobs = found.get("tokens"), found.get("token_logprobs")
    if not isinstance(texts, list) or not isinstance(logprobs, list):
        return None
    return [
        PromptToken(str(text), _number(logprob))
        for text, logprob in zip(texts[:most], logprobs[:most], strict=False)
    ]


def of_vllm(choice: Mapping[str, JsonValue], most: int) -> list[PromptToken] | None:
    """Tokens in vLLM's own `prompt_logprobs`, where the first entry of a position is its token."""
    found = choice.get("prompt_logprobs")
    if not isinstance(found, list):
        return None
    tokens = []
    for entry in found[:most]:
        chosen = next(iter(entry.values()), None) if isinstance(entry, Mapping) else None
        if isinstance(chosen, Mapping):
            tokens.append(
                PromptToken(str(chosen.get("decoded_token") or ""), _number(chosen.get("logprob")))
            )
        elif not tokens:  # the first token has no context: null
            continue
        else:
            return None
    return tokens or None


def of_prefill(details: Mapping[str, JsonValue], most: int) -> list[PromptToken] | None:
    """Tokens in a reply of Text Generation Inference with `decoder_input_details`."""
    found = details.get("prefill")
    if not isinstance(found, list) or not found:
        return None
    return [
        PromptToken(str(token.get("text") or ""), _number(token.get("logprob")))
        for token in found[:most]
        if isinstance(token, Mapping)
    ]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


@dataclass(frozen=True, slots=True)
class OptionText:
    """The texts of one option, for its likelihood.

    Attributes:
        context: Text before the continuation.
        continuation: Text whose likelihood is asked for.
        compared: Text by whose length the likelihood is divided: the option without the gap.
    """

    context: str
    continuation: str
    compared: str

    @property
    def n_bytes(self) -> int:
        """Length of `compared` in UTF-8, bytes."""
        return len(self.compared.encode())

    def divisor(self, normalise: Normalise) -> int:
        """Divisor of the sum of log-probabilities."""
        lengths = {"none": 1, "bytes": self.n_bytes, "characters": len(self.compared)}
        return lengths[normalise]


def option_texts(item: ItemContent, style: PromptStyle) -> tuple[OptionText, ...]:
    """Texts of each option of a multiple-choice item, for its likelihood.

    Raises:
        InvalidInputError: Equal options, an empty option, no options, or a question without the
            style's blank.
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
            f"Expected a blank {style.blank!r} in the question, with text after it: options are "
            "compared by the likelihood of that text."
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
    """The examples with their answers filled into the blank."""
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
