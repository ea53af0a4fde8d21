"""Output items of OpenAI Evals, each with item, sample and the graders' results.

A file holds JSON lines, a list, or pages as the API returns them.

    {"eval_id", "datasource_item_id", "datasource_item": {...} (or "item"), "status",
     "sample": {"model", "input": [turns], "output": [turns] (or "output_text"), "finish_reason",
                "error", "temperature", "max_completion_tokens"},
     "results": [{"name", "score", "passed"}]}

The key of an item is made of its own fields, as ids differ between data sources.

Source: OpenAI API reference, "Eval run output item", 2026.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import cast

from app.exchange.json_text import json_lines
from app.exchange.results.lm_eval_items import turns_of
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    AskedItem,
    Choices,
    LeftOut,
    Recorded,
    Seen,
    Source,
    UnusableRowError,
    answered,
    choose,
    digest_of,
    key_of,
    list_at,
    object_at,
    score_or_reason,
    temperature_of,
    text_of,
    token_limit,
    tokens_of,
    value_at,
)
from app.items import JsonValue, Outcome

_TASK = "openai-evals"
#: Finish reason of an answer to its outcome.
_ENDS = {"length": Outcome.TRUNCATED, "content_filter": Outcome.REFUSED}
_FAILED = frozenset({"error", "errored"})


def is_output_item(row: Mapping[str, JsonValue]) -> bool:
    """Whether a JSON object is a row of such a file."""
    return isinstance(row.get("sample"), dict) and isinstance(_item(row), dict)


def _item(row: Mapping[str, JsonValue]) -> JsonValue:
    """The fields of the item that was asked."""
    return row.get("datasource_item", row.get("item"))


def read_openai_evals(
    source: Source, choices: Choices, saw: Callable[[Seen], None]
) -> Iterator[Recorded | LeftOut]:
    """Answers of a file of output items; each row with a grader's result is passed to `saw`.

    The examinee is the chosen one, else the model that the sample names, else the file's name.

    Raises:
        FileFormatError: Several graders and none chosen, or a chosen one is not there.
    """
    for row, entry in json_lines(source.file):
        if isinstance(entry, LeftOut):
            yield entry
            continue
        if not is_output_item(entry):
            yield LeftOut(row, "unreadable", "expected sample, and item or datasource_item")
            continue
        task = text_of(entry, "eval_id") or _TASK
        if not choices.takes(task):
            continue
        results = _results(entry)
        sample = object_at(entry, "sample")
        examinee = choices.examinee or text_of(sample, "model") or source.file.path.stem
        item = key_of(task, digest_of(_item(entry)).hex()[:32])
        if (outcome := _failure(entry, sample)) is not None:
            yield answered(examinee, item, FIRST_TRIAL, outcome, row)
            continue
        if not results:
            yield LeftOut(row, "not_scored", "it has no results of a grader")
            continue
        wanted, usual = choices.metrics or choices.scorers, () if choices.take_first else None
        metric = choose("grader", results, wanted, f"{source.name}:{row}", usual)
        passed, given = results[metric].get("passed"), results[metric].get("score")
        score = score_or_reason(passed if given is None else given, row, choices)
        saw(
            Seen(
                tool="openai-evals",
                source=source,
                task=task,
                item=item,
                examinee=examinee,
                metric=metric,
                offered=list(results),
                score=None if isinstance(score, LeftOut) else score,
                asked=partial(asked_by, entry),
                sent=partial(_sent, entry),
                number=entry.get("datasource_item_id"),
                written=_written(sample),
                used=tokens_of(sample.get("usage"), "prompt_tokens", "completion_tokens"),
                filter=text_of(entry, "filter"),
            )
        )
        yield answered(examinee, item, FIRST_TRIAL, score, row)


def _results(entry: Mapping[str, JsonValue]) -> dict[str, dict[str, JsonValue]]:
    """Graders' results by name; a second grader of the same name gets another name."""
    found: dict[str, dict[str, JsonValue]] = {}
    for one in list_at(entry, "results"):
        if isinstance(one, dict):
            name = text_of(one, "name") or "result"
            found[name if name not in found else f"{name} ({len(found) + 1})"] = one
    return found


def _failure(entry: Mapping[str, JsonValue], sample: Mapping[str, JsonValue]) -> Outcome | None:
    """Outcome of an item without an answer that can be scored; None with such an answer."""
    error = sample.get("error")
    if any(error.values()) if isinstance(error, dict) else error:
        return Outcome.ERROR
    if str(entry.get("status")) in _FAILED:
        return Outcome.ERROR
    if (outcome := _ENDS.get(str(sample.get("finish_reason")))) is not None:
        return outcome
    output = sample.get("output")
    turn = output[-1] if isinstance(output, list) and output else None
    if isinstance(turn, dict):
        if turn.get("refusal"):
            return Outcome.REFUSED
        return None if turn.get("content") or turn.get("tool_calls") else Outcome.ERROR
    told = [sample[name] for name in ("output", "output_text") if name in sample]
    # If the graders scored stored answers, no model was asked: input, output and model are empty.
    is_asked = sample.get("input") or sample.get("model") or "output_text" in sample
    return Outcome.ERROR if told and not any(told) and is_asked else None


#: Fields of the item that hold the question, if the sample does not say what was sent.
_QUESTION = ("messages", "input", "prompt", "question")
#: Fields of the item that may hold the right answer; the first that exists counts.
_TARGET = (
    "ideal", "target", "answer", "expected", "expected_output", "reference", "ground_truth",
    "correct_answer", "correct_label", "label",
)  # fmt: skip


def asked_by(row: Mapping[str, JsonValue]) -> AskedItem:
    """The item as it was sent, by its row.

    Raises:
        UnusableRowError: The row does not say what was sent.
    """
    item, sample = _item(row), row["sample"]
    given = (value_at(item, name) for name in _TARGET)
    found = next((target for target in given if target not in (None, "")), [])
    asked = _sent(row)
    is_text = isinstance(asked, str) and asked.strip()
    if not is_text and not (isinstance(asked, list) and asked):
        raise UnusableRowError(
            f"neither its sample's input nor {' or '.join(_QUESTION)} says what was asked"
        )
    return AskedItem(
        prompt=asked if isinstance(asked, str) else None,
        messages=() if is_text else turns_of(asked),
        targets=tuple(map(str, found if isinstance(found, list) else [found])),
        max_tokens=token_limit(value_at(sample, "max_completion_tokens")),
        temperature=temperature_of(value_at(sample, "temperature")),
    )


def _sent(row: Mapping[str, JsonValue]) -> JsonValue:
    """The turns that were sent, with joined text parts, or the text of the question."""
    places = (value_at(row, "sample", "input"), *(value_at(_item(row), n) for n in _QUESTION))
    asked = next((place for place in places if place), None)
    return [_plain(turn) for turn in asked] if isinstance(asked, list) else asked


def _written(sample: Mapping[str, JsonValue]) -> str | None:
    """The answer as the model wrote it."""
    if isinstance(text := sample.get("output_text"), str):
        return text
    turns = list_at(sample, "output")
    return text_of(_plain(turns[-1]), "content") if turns else None


def _plain(turn: JsonValue) -> JsonValue:
    """A turn with its parts of text joined to one text."""
    if not isinstance(turn, dict):
        return turn
    content, role = turn.get("content"), turn.get("role")
    if isinstance(content, list):
        texts = [value_at(part, "text") for part in content]
        if all(isinstance(text, str) for text in texts):
            content = "".join(cast(list[str], texts))
    return {"role": "system" if role == "developer" else role, "content": content}
