"""Items of lm-eval's samples: what was sent, by a row's `arguments` and the task's results file.

A request is `(prompt, settings)` if the model wrote an answer. If likelihoods were compared, each
option has a request `(context, continuation)`. Chat models are sent a JSON text of turns.
"""

import ast
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast, get_args

from app.exchange.results.recorded import (
    AskedItem,
    UnusableRowError,
    common_space,
    list_at,
    temperature_of,
    text_of,
    token_limit,
    value_at,
)
from app.items import JsonValue, Message, Role, ScorerSpec

_ONE_TEXT = (
    "it asks how likely one text is, or for a continuation, not for one of several options or "
    "an answer in words"
)
#: Most characters of a list of accepted answers that is written as text.
_MAX_LIST_CHARS = 100_000
#: Normalisation of the options' likelihoods by each metric.
BY_METRIC = {"acc": "none", "acc_norm": "characters", "acc_bytes": "bytes"}
#: Filters without effect on what the scorer `extract` reads.
_PLAIN_FILTERS = frozenset({"take_first", "remove_whitespace"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskConfig:
    """Settings of a task in `results_*.json`.

    Attributes:
        shots: Number of examples before each question; None if unknown.
        filters: Names of the filters, in order.
        scorers: Name of each filter to the scorer of its answers.
        templated: The prompts were written by a model's own chat template.
        delimiter: Text between a question and each option; None if unknown.
        lower_is_better: Metrics whose lowest value is the best.
    """

    shots: int | None = None
    filters: tuple[str, ...] = ()
    scorers: Mapping[str, ScorerSpec] = field(default_factory=dict)
    templated: bool = False
    delimiter: str | None = None
    lower_is_better: frozenset[str] = frozenset()


def config_of(files: Iterable[JsonValue], task: str) -> TaskConfig:
    """Settings of a task, by the contents of the results files beside its samples."""
    for results in files:
        config = value_at(results, "configs", task)
        if isinstance(config, dict):
            shots = value_at(results, "n-shot", task)
            shots = config.get("num_fewshot") if shots is None else shots
            delimiter = config.get("target_delimiter")
            return TaskConfig(
                shots=shots if type(shots) is int and shots >= 0 else None,
                filters=tuple(str(one.get("name")) for one in _objects(config, "filter_list")),
                scorers=_scorers(config),
                templated=text_of(results, "chat_template") is not None,
                delimiter=delimiter if isinstance(delimiter, str) else None,
                lower_is_better=frozenset(
                    str(metric.get("metric"))
                    for metric in _objects(config, "metric_list")
                    if metric.get("higher_is_better") is False
                ),
            )
    return TaskConfig()


def _scorers(config: Mapping[str, JsonValue]) -> dict[str, ScorerSpec]:
    """`extract` scorers equivalent to `exact_match` after each filter, where there is one."""
    metrics = [m for m in _objects(config, "metric_list") if m.get("metric") == "exact_match"]
    if not metrics:
        return {}
    removed = metrics[0].get("regexes_to_ignore") or []
    compared = {
        name: True
        for name in ("ignore_case", "ignore_punctuation", "ignore_numbers")
        if metrics[0].get(name) is True
    }
    if not isinstance(removed, list) or not all(isinstance(each, str) for each in removed):
        return {}
    found = {}
    for named in _objects(config, "filter_list") or [{"name": "none", "filter": []}]:
        chain = [
            part for part in _objects(named, "filter") if isinstance(part.get("function"), str)
        ]
        regexes = [part for part in chain if part["function"] == "regex"]
        plain = all(part["function"] in _PLAIN_FILTERS for part in chain if part not in regexes)
        name = named.get("name")
        if not plain or len(regexes) > 1 or not isinstance(name, str):
            continue
        params: dict[str, JsonValue] = {"remove": removed, **compared}
        for regex in regexes:
            params["pattern"] = regex.get("regex_pattern", r"#### (\-?[0-9\.\,]+)")
            params["match"] = regex.get("group_select", 0)
        found[name] = ScorerSpec("extract", params)
    return found


def _objects(config: Mapping[str, JsonValue], name: str) -> list[dict[str, JsonValue]]:
    return [part for part in list_at(config, name) if isinstance(part, dict)]


def asked_by(row: Mapping[str, JsonValue], delimiter: str | None) -> AskedItem:
    """The item as it was sent, by its row.

    Raises:
        UnusableRowError: The row does not say what was sent, or it cannot be sent again.
    """
    requests = _requests(row)
    sent = [(prompt, settings) for prompt, settings in requests if isinstance(settings, dict)]
    is_written = len(sent) == len(requests)
    targets = _targets(row.get("target"), of_options=not is_written)
    if is_written:
        if len(sent) != 1:
            raise UnusableRowError("it was sent several prompts for one answer")
        prompt, settings = sent[0]
        text, turns = _prompt(prompt)
        return AskedItem(
            prompt=text,
            messages=turns,
            targets=targets,
            stop=_stops(settings.get("until")),
            max_tokens=token_limit(settings.get("max_gen_toks") or settings.get("max_tokens")),
            temperature=0.0
            if settings.get("do_sample") is False
            else temperature_of(settings.get("temperature")),
        )
    texts = [
        (prompt, option)
        for prompt, option in requests
        if isinstance(prompt, str) and isinstance(option, str)
    ]
    if len(texts) < len(requests) or len(texts) < 2:
        raise UnusableRowError(_ONE_TEXT)
    return _compared(_conditional(texts), targets, delimiter)


def _requests(row: Mapping[str, JsonValue]) -> list[tuple[JsonValue, JsonValue]]:
    arguments = row.get("arguments")
    if isinstance(arguments, Mapping):
        requests = [arguments[name] for name in sorted(arguments, key=_place)]
        pairs = [
            (request.get("arg_0"), request.get("arg_1"))
            for request in requests
            if isinstance(request, dict)
        ]
    elif isinstance(arguments, list):  # before version 0.4.3
        pairs = [(part[0], part[1]) for part in arguments if isinstance(part, list) and part[1:]]
    else:
        pairs = []
    if not pairs:
        raise UnusableRowError("it has no `arguments`, which say what was asked")
    return pairs


def _place(name: str) -> int:
    digits = name.rpartition("_")[2]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 0


def _prompt(value: object) -> tuple[str | None, tuple[Message, ...]]:
    """The text that was sent, or the turns that were sent to a chat model."""
    if isinstance(value, str):
        return value, ()
    turns: object = value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        try:
            turns = json.loads(value[0])
        except (ValueError, RecursionError) as exc:
            raise UnusableRowError("its prompt is neither a text nor turns of a chat") from exc
    return None, turns_of(turns)


def turns_of(value: object) -> tuple[Message, ...]:
    """Turns of a chat.

    Raises:
        UnusableRowError: The value holds no turns, or turns with other content than text.
    """
    roles = get_args(Role)
    if not isinstance(value, list) or not value:
        raise UnusableRowError("its prompt is neither a text nor turns of a chat")
    turns = []
    for turn in value:
        role, content = value_at(turn, "role"), value_at(turn, "content")
        if isinstance(content, list):
            parts = [p for p in content if isinstance(p, dict) and p.get("type") == "text"]
            if len(parts) == len(content):
                content = "\n".join(str(part.get("text", "")) for part in parts)
        if role not in roles or not isinstance(content, str):
            raise UnusableRowError("it was sent more than texts: pictures, files or tools")
        turns.append(Message(cast(Role, role), content))
    return tuple(turns)


def _conditional(texts: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Drop the second half if it holds the options without the question (`acc_mutual_info`)."""
    half = len(texts) // 2
    first, second = texts[:half], texts[half:]
    again = len(texts) % 2 == 0 and half > 1 and [o for _, o in first] == [o for _, o in second]
    if again and len({p for p, _ in first}) == 1 and len({p for p, _ in second}) == 1:
        return first
    return texts


def _compared(
    texts: list[tuple[str, str]], targets: tuple[str, ...], delimiter: str | None
) -> AskedItem:
    contexts, options = [text for text, _ in texts], [option for _, option in texts]
    if len(set(contexts)) == 1:
        known = delimiter is not None and all(option.startswith(delimiter) for option in options)
        gap = delimiter if known and delimiter is not None else common_space(options)
        return AskedItem(prompt=contexts[0], options=tuple(options), gap=gap, targets=targets)
    if len(set(options)) > 1:
        raise UnusableRowError("both the questions and what followed them differ by option")
    before = _common_start(contexts)
    inserted = tuple(context[len(before) :] for context in contexts)
    return AskedItem(prompt=before, options=inserted, after=options[0], targets=targets)


def _common_start(texts: Sequence[str]) -> str:
    """Common beginning of all texts, cut behind its last white space to keep words whole."""
    length = 0
    for characters in zip(*texts, strict=False):
        if len(set(characters)) > 1:
            break
        length += 1
    start = texts[0][:length]
    while start and not start[-1].isspace():
        start = start[:-1]
    return start


def _targets(value: object, *, of_options: bool) -> tuple[str, ...]:
    """Accepted answers; several are written as a Python list.

    A list of numbers names several right options, or is one answer if the model wrote the answer.
    """
    if isinstance(value, str) and value.startswith("["):
        value = _listed(value, of_options=of_options)
    parts = value if isinstance(value, list) else [value]
    return tuple(
        str(part) for part in parts if isinstance(part, str | int | float) and str(part).strip()
    )


def _listed(text: str, *, of_options: bool) -> object:
    """The list that a text holds in Python's notation, or the text itself."""
    if len(text) > _MAX_LIST_CHARS:
        return text
    try:
        found = ast.literal_eval(text)  # literals alone: it calls nothing and looks up no name
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    kinds = (str, int) if of_options else str
    good = isinstance(found, list) and all(isinstance(part, kinds) for part in found)
    return found if good else text


def _stops(value: object) -> tuple[str, ...]:
    marks = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(dict.fromkeys(mark for mark in marks if isinstance(mark, str) and mark))


def written(row: Mapping[str, JsonValue]) -> str | None:
    """The first answer of a row as the model wrote it."""
    answers = row.get("resps")
    while isinstance(answers, list) and answers:
        answers = answers[0]
    return answers if isinstance(answers, str) else None


def likelihoods(answers: JsonValue, n_options: int) -> list[float] | None:
    """Log-likelihoods of the options, by a row's responses; None unless all are there."""
    found = []
    for answer in answers[:n_options] if isinstance(answers, list) else ():
        while isinstance(answer, list) and answer and isinstance(answer[0], list):
            answer = answer[0]
        first = answer[0] if isinstance(answer, list) and answer else answer
        try:
            number = float(cast(str, first))
        except (TypeError, ValueError):
            return None
        if not math.isfinite(number):
            return None
        found.append(number)
    return found if len(found) == n_options else None


def lengths(options: Sequence[str], normalise: str) -> list[int]:
    """Divisors of the options' log-likelihoods."""
    match normalise:
        case "bytes":
            return [max(1, len(option.encode())) for option in options]
        case "characters":
            return [max(1, len(option)) for option in options]
        case _:
            return [1] * len(options)
