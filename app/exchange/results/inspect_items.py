"""Items of inspect logs: the chat turns of a sample up to the answer."""

from collections.abc import Mapping, Sequence

from app.exchange.results.lm_eval_items import turns_of
from app.exchange.results.recorded import (
    AskedItem,
    Method,
    UnusableRowError,
    drawn,
    list_at,
    object_at,
    temperature_of,
    token_limit,
    tokens_of,
    value_at,
)
from app.items import JsonValue, ScorerSpec

#: Prefix of the name of an attachment that holds a turn's text.
ATTACHED = "attachment://"
#: Field of a log's header that holds the settings of the calls.
_CONFIG = "model_generate_config"
#: Patterns by which inspect's `choice` and `answer` parse an answer.
_ANSWER = {
    "letter": r"(?i)ANSWER\s*:\s*([A-Za-z])(?:[^\w]|\n|$)",
    "word": r"(?i)ANSWER\s*:\s*(\w+)(?:\W|$)",
    "line": r"(?i)ANSWER\s*:\s*([^\n]+)",
}
_CHOICE = r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]*[A-Za-z\d])"


def asked_by(row: Mapping[str, JsonValue], header: Mapping[str, JsonValue]) -> AskedItem:
    """The item as it was sent, by a sample and by the settings of its log's header.

    Raises:
        UnusableRowError: The sample does not say what was sent, or it cannot be sent again.
    """
    turns = list_at(row, "messages")
    if not turns:
        raise UnusableRowError(
            "it has no `messages`, which say what was asked: perhaps its run was cut off"
        )
    before = _prompt_turns(turns)
    if isinstance(attached := row.get("attachments"), dict):
        before = [_resolved(turn, attached) for turn in before]
    config = object_at(header, _CONFIG)
    return AskedItem(
        messages=turns_of(before),
        targets=_targets(row.get("target")),
        stop=tuple(m for m in list_at(config, "stop_seqs") if isinstance(m, str) and m),
        max_tokens=token_limit(config.get("max_tokens")),
        temperature=temperature_of(config.get("temperature")),
    )


def method_of(header: Mapping[str, JsonValue]) -> Method:
    """How answers were obtained, as far as the log says."""
    config = object_at(header, _CONFIG)
    limit, temperature = token_limit(config.get("max_tokens")), config.get("temperature")
    return {"mode": "generate", **drawn(limit, temperature_of(temperature))}


def with_plan(header: Mapping[str, JsonValue], plan: JsonValue) -> Mapping[str, JsonValue]:
    """The header with the plan's settings, which combine those of the task and of the command."""
    said = {name: value for name, value in object_at(plan, "config").items() if value is not None}
    return {**header, _CONFIG: {**object_at(header, _CONFIG), **said}}


def _prompt_turns(turns: Sequence[JsonValue]) -> list[JsonValue]:
    written = [place for place, turn in enumerate(turns) if _is_written(turn)]
    if len(written) > 1 or any(value_at(turn, "role") == "tool" for turn in turns):
        raise UnusableRowError("the model answered in several turns, or used tools")
    before = list(turns[: written[0]] if written else turns)
    if not before:
        raise UnusableRowError("its answer has no prompt before it")
    return before


def _is_written(turn: JsonValue) -> bool:
    """Whether the model wrote the turn; few-shot examples are not answers."""
    if not isinstance(turn, dict) or turn.get("role") != "assistant":
        return False
    return turn.get("source", "generate") == "generate" or "model" in turn


def _resolved(turn: JsonValue, attached: Mapping[str, JsonValue]) -> JsonValue:
    """A turn with its text, which may be an attachment of the sample."""
    content = value_at(turn, "content")
    if (
        not isinstance(turn, dict)
        or not isinstance(content, str)
        or not content.startswith(ATTACHED)
    ):
        return turn
    text = attached.get(content.removeprefix(ATTACHED))
    if not isinstance(text, str):
        raise UnusableRowError("its prompt is an attachment that the log does not hold")
    return {**turn, "content": text}


def _targets(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else [value]
    return tuple(str(part) for part in parts if part is not None and str(part).strip())


def sent(row: Mapping[str, JsonValue]) -> JsonValue:
    """The parts of a sample that differ between wordings of the same item."""
    turns = row.get("messages")
    if isinstance(turns, list):
        turns = [
            {name: turn.get(name) for name in ("role", "content")}
            for turn in turns
            if isinstance(turn, dict) and turn.get("role") != "assistant"
        ]
    return [turns, row.get("target")]


def used(row: Mapping[str, JsonValue]) -> tuple[int, int] | None:
    """Numbers of prompt and answer tokens, if the sample has them."""
    return tokens_of(value_at(row, "output", "usage"), "input_tokens", "output_tokens")


def scorers_of(header: Mapping[str, JsonValue]) -> dict[str, ScorerSpec]:
    """Name of each of the log's scorers to our equivalent scorer, if there is one."""
    found = {}
    for scorer in list_at(header, "scorers"):
        name = value_at(scorer, "name")
        if isinstance(name, str):
            bare = name.rpartition("/")[2]
            spec = _spec(bare, object_at(scorer, "options"))
            if spec is not None:
                found[bare] = spec
    return found


def _spec(name: str, options: Mapping[str, JsonValue]) -> ScorerSpec | None:
    pattern = options.get("pattern")
    folded = {"ignore_case": options.get("ignore_case", True) is True}
    match name, pattern:
        case "choice", _:
            return ScorerSpec("extract", {"pattern": _CHOICE, "ignore_case": True})
        case "answer", str() if pattern in _ANSWER:
            return ScorerSpec("extract", {"pattern": _ANSWER[pattern], **folded})
        case "pattern", str():
            flag = "(?i)" if folded["ignore_case"] else ""
            return ScorerSpec("extract", {"pattern": f"{flag}{pattern}", **folded})
        case "includes", _:
            return ScorerSpec("includes", folded)
        case "match", _ if options.get("numeric") is True:
            return ScorerSpec("numeric")
        case "match" | "exact", _:
            return ScorerSpec("exact", folded)
        case _:
            return None
