"""What a sample of an inspect log was asked: the turns of its chat up to the answer."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.exchange.results.asked_item import (
    AskedItem,
    UnusableRowError,
    temperature_of,
    token_limit,
    tokens_of,
)
from app.exchange.results.lm_eval_items import turns_of
from app.items import ScorerSpec

#: Before the name of an attachment that holds a turn's text.
ATTACHED = "attachment://"
#: As inspect's `choice` and `answer` read an answer.
_ANSWER = {
    "letter": r"(?i)ANSWER\s*:\s*([A-Za-z])(?:[^\w]|\n|$)",
    "word": r"(?i)ANSWER\s*:\s*(\w+)(?:\W|$)",
    "line": r"(?i)ANSWER\s*:\s*([^\n]+)",
}
_CHOICE = r"(?i)ANSWER\s*:\s*([A-Za-z\d ,]*[A-Za-z\d])"


def asked_by(row: Mapping[str, Any], header: Mapping[str, Any]) -> AskedItem:
    """What a sample says was sent, and its log of the answers.

    Raises:
        UnusableRowError: It does not say, or nothing that can be sent again.
    """
    turns = row.get("messages")
    if not isinstance(turns, list) or not turns:
        raise UnusableRowError(
            "it has no `messages`, which say what was asked: as a run leaves it that was cut off"
        )
    before = _prompt_turns(turns)
    attached = row.get("attachments")
    if isinstance(attached, Mapping):
        before = [_resolved(turn, attached) for turn in before]
    return AskedItem(
        messages=turns_of(before),
        targets=_targets(row.get("target")),
        stop=_stops(header),
        **drawn(header),
    )


def drawn(header: Mapping[str, Any]) -> dict[str, Any]:
    """How long answers could be and at which temperature they were drawn, if a log says it."""
    config = _config(header)
    known = {
        "max_tokens": token_limit(config.get("max_tokens")),
        "temperature": temperature_of(config.get("temperature")),
    }
    return {name: value for name, value in known.items() if value is not None}


def _stops(header: Mapping[str, Any]) -> tuple[str, ...]:
    marks = _config(header).get("stop_seqs")
    return tuple(m for m in marks if isinstance(m, str) and m) if isinstance(marks, list) else ()


def with_plan(header: Mapping[str, Any], plan: object) -> Mapping[str, Any]:
    """The header of a log with the settings that its plan made of those of task and command."""
    config = plan.get("config") if isinstance(plan, Mapping) else None
    if not isinstance(config, Mapping):
        return header
    said = {name: value for name, value in config.items() if value is not None}
    return {**header, "model_generate_config": {**_config(header), **said}}


def _config(header: Mapping[str, Any]) -> Mapping[str, Any]:
    config = header.get("model_generate_config")
    return config if isinstance(config, Mapping) else {}


def _prompt_turns(turns: Sequence[Any]) -> list[Any]:
    written = [
        place
        for place, turn in enumerate(turns)
        if isinstance(turn, Mapping) and turn.get("role") == "assistant" and _is_written(turn)
    ]
    if len(written) > 1 or any(
        isinstance(turn, Mapping) and turn.get("role") == "tool" for turn in turns
    ):
        raise UnusableRowError("the model answered in several turns, or used tools")
    before = list(turns[: written[0]] if written else turns)
    if not before:
        raise UnusableRowError("nothing stands before its answer")
    return before


def _is_written(turn: Mapping[str, Any]) -> bool:
    """Whether the model wrote it; examples of a task are no answers."""
    return turn.get("source", "generate") == "generate" or "model" in turn


def _resolved(turn: Any, attached: Mapping[str, Any]) -> Any:
    """A turn with its text, where that stands elsewhere in the sample."""
    content = turn.get("content") if isinstance(turn, Mapping) else None
    if not isinstance(content, str) or not content.startswith(ATTACHED):
        return turn
    text = attached.get(content.removeprefix(ATTACHED))
    if not isinstance(text, str):
        raise UnusableRowError("its prompt is an attachment that is not there")
    return {**turn, "content": text}


def _targets(value: object) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else [value]
    return tuple(str(part) for part in parts if part is not None and str(part).strip())


def written(row: Mapping[str, Any]) -> str | None:
    """The answer as the model wrote it."""
    output = row.get("output")
    text = output.get("completion") if isinstance(output, Mapping) else None
    return text if isinstance(text, str) else None


def used(row: Mapping[str, Any]) -> tuple[int, int] | None:
    """Tokens of prompt and answer, if the sample says it."""
    output = row.get("output")
    usage = output.get("usage") if isinstance(output, Mapping) else None
    return tokens_of(usage, "input_tokens", "output_tokens")


def scorers_of(header: Mapping[str, Any]) -> dict[str, ScorerSpec]:
    """How a log's scorers mark, by name, as far as one of ours does the same."""
    found = {}
    scorers = header.get("scorers")
    for scorer in scorers if isinstance(scorers, list) else ():
        name = scorer.get("name") if isinstance(scorer, Mapping) else None
        options = scorer.get("options") if isinstance(scorer, Mapping) else None
        if isinstance(name, str):
            bare = name.rpartition("/")[2]
            spec = _spec(bare, options if isinstance(options, Mapping) else {})
            if spec is not None:
                found[bare] = spec
    return found


def _spec(name: str, options: Mapping[str, Any]) -> ScorerSpec | None:
    folded: dict[str, Any] = {"ignore_case": options.get("ignore_case", True) is True}
    match name:
        case "choice":
            return ScorerSpec("extract", {"pattern": _CHOICE, "ignore_case": True})
        case "answer" if options.get("pattern") in _ANSWER:
            return ScorerSpec("extract", {"pattern": _ANSWER[options["pattern"]], **folded})
        case "pattern" if isinstance(options.get("pattern"), str):
            pattern = (
                options["pattern"] if not folded["ignore_case"] else f"(?i){options['pattern']}"
            )
            return ScorerSpec("extract", {"pattern": pattern, **folded})
        case "includes":
            return ScorerSpec("includes", {"ignore_case": folded["ignore_case"]})
        case "match" if options.get("numeric") is True:
            return ScorerSpec("numeric")
        case "match" | "exact":
            return ScorerSpec("exact", {"ignore_case": folded["ignore_case"]})
        case _:
            return None
