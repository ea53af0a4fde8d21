"""How likely an endpoint finds a text, such as an option of an item, after another.

It is read from the log-probabilities of a prompt.

A tokenizer may cut `context + continuation` otherwise than `context` alone. So tokens are laid
along the text that was sent, and every token that holds a part of the continuation counts, whole: a
token across the seam is the same in kind for all options of an item.
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

#: How vocabularies write a blank and a line break, where a server shows tokens as they are.
_MARKS = str.maketrans({"▁": " ", "Ġ": " ", "Ċ": "\n", "ĉ": "\t"})
#: Marks of beginnings and ends, and tokens that were written.
_SPECIAL_TOKENS = 64
_REPLACEMENT = "�"


@dataclass(frozen=True, slots=True, kw_only=True)
class LikelihoodRequest:
    """A text, and the one that it follows."""

    context: str
    continuation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihood(Answered):
    """How likely the continuation is, and what it took to find out.

    Attributes:
        logprob: Sum over the tokens that hold a part of the continuation, natural logarithm.
        n_tokens: How many these are.
    """

    logprob: float
    n_tokens: int


@runtime_checkable
class TellsLikelihoods(Protocol):
    """An examinee that says how likely texts are: one attempt a call, many calls at once."""

    async def likelihood(self, request: LikelihoodRequest) -> Likelihood:
        """Ask once.

        Raises:
            NoLikelihoodsError: The endpoint gives no log-probabilities of the prompt.
            ExamineeError: Any other failure, classified.
        """
        ...


@runtime_checkable
class ShowsRequests(Protocol):
    """An examinee that tells what it would send; nothing is."""

    def exact(self, request: CompletionRequest | LikelihoodRequest) -> ExactRequest:
        """The call as its first attempt makes it."""
        ...


@dataclass(frozen=True, slots=True)
class PromptToken:
    """A token of the prompt; the first one has no log-probability, for nothing is before it."""

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
    """Ask once, by the log-probabilities of a prompt.

    Args:
        endpoint: Is asked.
        body: The call.
        request: What it is about.
        read: Finds in a reply what was written, and the tokens of the prompt; None without any.
        how: Such log-probabilities are asked for, for people.
        fields: Servers that do not know one of these name it in their refusal.

    Raises:
        NoLikelihoodsError: The endpoint gives no log-probabilities of the prompt.
        ExamineeError: Any other failure, classified.
    """
    mute = (
        f"{endpoint.where} gives no log-probabilities of a prompt{how}, so options cannot be "
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
        ValueError: The tokens are not those of the text that was sent, or one that counts has no
            log-probability.
    """
    seam, text = len(request.context), request.context + request.continuation
    counted = [tokens[at] for at in _holding(tokens, text, seam)]
    logprobs = [token.logprob for token in counted if token.logprob is not None]
    if len(logprobs) < len(counted):
        raise ValueError("gives no log-probability of some tokens of the option")
    return math.fsum(logprobs), len(counted)


def _holding(tokens: Sequence[PromptToken], text: str, seam: int) -> list[int]:
    """Which tokens hold a part of `text` from `seam` on; laid from its end, where that part is.

    Of parts of characters, which servers show as no text of their own, a whole run is laid at once.
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
                # One byte each: then it is known whose they are. Else all of the run counts.
                if parts == n_bytes:
                    first = at + 1 - len(text[seam:end].encode())
        found += range(first, at + 1)
        at = first - 1
    return found


def _is_part(text: str) -> bool:
    """Whether a token is shown as no text of its own: a part of a character, or nothing."""
    return not text or _REPLACEMENT in text or text.startswith(("bytes:", "<0x"))


def _laid(text: str, place: int, token: str) -> tuple[int, int]:
    """Where the token that ends at `place` begins and ends; servers may leave out blanks around it.

    Raises:
        ValueError: It does not stand there.
    """
    bare = place  # blanks behind it belong to the next token
    while bare > 0 and text[bare - 1].isspace():
        bare -= 1
    for shown in (token, token.translate(_MARKS), token.strip()):
        for end in (place, bare):
            if shown and text.endswith(shown, 0, end):
                return end - len(shown), end
    raise ValueError(f"shows a token {token[:40]!r} where the prompt has none such")


def _start_of_parts(tokens: Sequence[PromptToken], first: int, text: str, place: int) -> int:
    """Where a run of parts begins that ends at `place`: where the whole token before it ends."""
    start = place
    while start > 0 and not text[start - 1].isascii():
        start -= 1
    if first == 0:
        return start
    shown = tokens[first - 1].text.translate(_MARKS)
    found = text.rfind(shown, start, place)  # a token that is no ASCII, and whole
    return start if found < 0 else found + len(shown)


def most_tokens(request: LikelihoodRequest) -> int:
    """More tokens than this a prompt cannot have, special ones included: the rest is not read."""
    return len((request.context + request.continuation).encode()) + _SPECIAL_TOKENS


def of_completions(choice: Mapping[str, JsonValue], most: int) -> list[PromptToken] | None:
    """The first `most` tokens in a choice of OpenAI's completions, with `echo` and `logprobs`.

    Behind those of the prompt stand those that were written. None where it has none.
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
    """The same of vLLM's own `prompt_logprobs`: of each position its token stands first."""
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
        elif not tokens:  # the first token has nothing before it: null
            continue
        else:
            return None
    return tokens or None


def of_prefill(details: Mapping[str, JsonValue], most: int) -> list[PromptToken] | None:
    """The same of Text Generation Inference, asked for `decoder_input_details`."""
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
