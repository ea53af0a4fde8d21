"""Output items of OpenAI Evals: JSON lines, each with item, sample and the graders' results.

    {"eval_id", "datasource_item_id", "datasource_item": {...} (or "item"), "status",
     "sample": {"model", "input": [turns], "output": [turns] (or "output_text"), "finish_reason",
                "error", "temperature", "max_completion_tokens"},
     "results": [{"name", "score", "passed"}]}

An item is known by its own fields, which are the same in every run; ids belong to a data source.

Source: OpenAI API reference, "Eval run output item", 2026.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from app.exchange.json_text import json_lines
from app.exchange.recorded import (
    FIRST_TRIAL,
    Choices,
    LeftOut,
    Recorded,
    Source,
    answered,
    choose,
    score_or_reason,
    text_of,
)
from app.exchange.results.asked_item import Seen
from app.items import Outcome

_TASK = "openai-evals"
#: What became of an answer that ended so.
_ENDS = {"length": Outcome.TRUNCATED, "content_filter": Outcome.REFUSED}


def is_output_item(row: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a row of such a file."""
    return isinstance(row.get("sample"), Mapping) and isinstance(item_in(row), Mapping)


def item_in(row: Mapping[str, Any]) -> Any:
    """The fields of the item that was asked."""
    return row.get("datasource_item", row.get("item"))


def read_openai_evals(
    source: Source, choices: Choices, saw: Callable[[Seen], None] | None = None
) -> Iterator[Recorded | LeftOut]:
    """Answers of a file of output items; `saw` is shown each row that has a grader's result.

    The examinee is the one chosen, else the model that the sample names, else the file's name.

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
        results = {
            str(one.get("name", "result")): one
            for one in entry.get("results") or ()
            if isinstance(one, Mapping)
        }
        sample = entry["sample"]
        examinee = choices.examinee or text_of(sample, "model") or source.file.path.stem
        item = f"{task}/{_digest(item_in(entry))}"
        outcome = _ENDS.get(str(sample.get("finish_reason")))
        if sample.get("error") or entry.get("status") == "error":
            outcome = Outcome.ERROR
        if outcome is None and not results:
            yield LeftOut(row, "not_scored", "it has no results of a grader")
            continue
        metric = "" if outcome else _metric(results, choices, f"{source.name}:{row}")
        answer: Recorded | LeftOut
        if outcome is not None:
            answer = Recorded(examinee, item, FIRST_TRIAL, None, outcome, row)
        else:
            score = score_or_reason(_score(results[metric]), row, choices)
            (answer,) = answered(examinee, item, FIRST_TRIAL, score, row)
        if saw is not None and metric:
            saw(
                Seen(
                    tool="openai-evals",
                    source=source,
                    task=task,
                    item=item,
                    examinee=examinee,
                    metric=metric,
                    offered=list(results),
                    score=answer.score if isinstance(answer, Recorded) else None,
                    row=entry,
                )
            )
        yield answer


def _metric(results: Mapping[str, Any], choices: Choices, place: str) -> str:
    wanted = choices.metrics or choices.scorers
    return choose("grader", results, wanted, place, () if choices.take_first else None)


def _score(result: Mapping[str, Any]) -> Any:
    """What a grader gave: its score, or whether the answer passed."""
    return result.get("passed") if result.get("score") is None else result["score"]


def _digest(item: Any) -> str:
    text = json.dumps(item, ensure_ascii=False, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
