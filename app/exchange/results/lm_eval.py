"""lm-evaluation-harness `samples_{task}_{date}.jsonl`: one row for each document and filter.

The Open LLM Leaderboard's `.json` (one list) and `details_{task}_{date}.parquet` are read as well.

The key of an item is its task and `doc_hash`, because `doc_id` depends on `--limit` and
`--samples`. For older files without the hash, it is computed as lm-eval does.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from app.exchange.json_text import json_lines, small_json
from app.exchange.results.asked_item import Seen
from app.exchange.results.lm_eval_items import TaskConfig, asked_by, config_of, written
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    OTHER_FILTER,
    Choices,
    LeftOut,
    Recorded,
    Source,
    SourceFile,
    answered,
    choice_error,
    choose,
    required_name,
    score_or_reason,
    text_of,
)
from app.items import JsonValue, Outcome

_FILE = re.compile(
    r"(?:samples|details)_(?P<task>.+)_(?P<date>\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(\.\d+)?)"
    r"\.(?:jsonl?|parquet)"
)
#: The filter of tasks without a filter, and of old rows that lack the field.
_NO_FILTER = "none"
#: Metrics by which tasks are usually reported; the first that a row has is taken.
USUAL_METRICS = ("acc_norm", "acc", "exact_match")
_PRETRAINED = re.compile(r"(?:^|,)(?:pretrained|model)=([^,]+)")
_ROW_FIELDS = frozenset({
    "doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics",
    "doc_hash", "prompt_hash", "target_hash",
})  # fmt: skip


def is_sample(row: Mapping[str, JsonValue]) -> bool:
    """Whether a JSON object is a row of such a file."""
    return "doc_id" in row and ("resps" in row or "filtered_resps" in row)


def read_lm_eval(
    source: Source, choices: Choices, saw: Callable[[Seen], None] | None = None
) -> Iterator[Recorded | LeftOut]:
    """Answers of a sample file; each row that is taken is passed to `saw`.

    The examinee is the chosen one, else the model named by the `results_*.json` beside the file,
    else the model named by the folder. An empty response counts as an error: it is an API's null,
    which lm-eval replaced and scored as wrong.

    Raises:
        FileFormatError: Several filters or metrics and none chosen, or a chosen one is not there.
    """
    file = source.file
    task = task_of(file)
    if not choices.takes(task):
        return
    examinee = choices.examinee
    if file.path.suffix == ".parquet":
        from app.exchange.results.details import detail_samples, examinee_of

        examinee = examinee or required_name(examinee_of(file), "model", file.name)
        rows = detail_samples(file)
    else:
        examinee = examinee or _model(source)
        rows = json_lines(file)
    filters = _Filters(choices.filters, take_first=choices.take_first)
    config = TaskConfig() if saw is None else config_of(source, task)
    for row, sample in rows:
        if isinstance(sample, LeftOut):
            yield sample
        elif not is_sample(sample):
            yield LeftOut(row, "unreadable", "expected doc_id and resps")
        elif filters.take(str(sample.get("filter", _NO_FILTER))):
            place = f"{file.name}:{row}"
            offered = _metrics(sample)
            if not offered:
                yield LeftOut(row, "not_scored", "it has no metric with a score")
                continue
            usual = USUAL_METRICS if choices.take_first else None
            metric = choose("metric", offered, choices.metrics, place, usual)
            answers = list(_answers(sample, examinee, task, choices, metric, row))
            if saw is not None:
                first = answers[0]
                name = sample.get("filter", _NO_FILTER)
                scorer = config.scorers.get(str(name)) if metric == "exact_match" else None
                saw(
                    Seen(
                        tool="lm-eval",
                        source=source,
                        task=task,
                        item=item_of(task, sample),
                        examinee=examinee,
                        metric=metric,
                        offered=offered,
                        score=first.score if isinstance(first, Recorded) else None,
                        asked=partial(asked_by, sample, config.delimiter),
                        sent=partial(_sent, sample),
                        number=sample.get("doc_id"),
                        written=written(sample),
                        responses=sample.get("resps", sample.get("filtered_resps")),
                        filter=name if "filter" in sample and isinstance(name, str) else None,
                        shots=config.shots,
                        scorer=scorer,
                        templated=config.templated,
                    )
                )
            yield from answers
        else:
            yield LeftOut(row, OTHER_FILTER, str(sample.get("filter"))[:100])
    filters.require_one(file.name)


@dataclass(slots=True)
class _Filters:
    """The filters that were seen, and the filter that counts."""

    wanted: tuple[str, ...]
    seen: dict[str, bool] = field(default_factory=dict)
    take_first: bool = False

    def take(self, name: str) -> bool:
        fits = not self.wanted or name in self.wanted or name == _NO_FILTER
        if self.take_first and not self.wanted:
            fits = name == next(iter(self.seen), name)
        return self.seen.setdefault(name, fits)

    def require_one(self, place: str) -> None:
        """Refuse answers that would count twice, which is known after the last row."""
        taken = [name for name, fits in self.seen.items() if fits]
        if len(taken) > 1:
            raise choice_error("filter", taken, (), place)
        if self.seen and not taken:
            raise choice_error("filter", list(self.seen), self.wanted, place)


def _answers(
    sample: Mapping[str, JsonValue],
    examinee: str,
    task: str,
    choices: Choices,
    metric: str,
    row: int,
) -> Iterator[Recorded | LeftOut]:
    if metric not in sample:
        yield LeftOut(row, "not_scored", f"it has no {metric}")
        return
    item = item_of(task, sample)
    responses = sample.get("resps", sample.get("filtered_resps"))
    value = sample.get(metric)
    repeats = responses[0] if isinstance(responses, list) and responses else responses
    if (
        isinstance(value, list)
        and isinstance(repeats, list)
        and len(value) == len(repeats) > 1
        and not isinstance(repeats[0], list)
    ):
        marks = list(zip(value, repeats, strict=True))
    else:
        marks = [(value, repeats)]
    for trial, (mark, response) in enumerate(marks, start=FIRST_TRIAL):
        if _is_null(response):
            yield Recorded(examinee, item, trial, None, Outcome.ERROR, row)
        else:
            yield answered(examinee, item, trial, score_or_reason(mark, row, choices), row)


def _sent(sample: Mapping[str, JsonValue]) -> JsonValue:
    return [sample.get("arguments"), sample.get("target")]


def _doc_hash(sample: Mapping[str, JsonValue]) -> str:
    given = text_of(sample, "doc_hash")
    if given is not None:
        return given
    if "doc" not in sample:
        return str(sample["doc_id"])
    return hashlib.sha256(
        json.dumps(sample["doc"], indent=2, ensure_ascii=False).encode()
    ).hexdigest()


def _metrics(sample: Mapping[str, JsonValue]) -> list[str]:
    listed = sample.get("metrics")
    if isinstance(listed, list) and listed:
        return [str(name) for name in listed]
    return [
        name
        for name, value in sample.items()
        if name not in _ROW_FIELDS and isinstance(value, bool | int | float | list)
    ]


def _is_null(response: JsonValue) -> bool:
    """Whether a response is empty: an empty text, or a list of empty texts."""
    if isinstance(response, list):
        return all(_is_null(part) for part in response)
    return response is None or response == ""


def _model(source: Source) -> str:
    date = _named(source.file, "date") or "*"
    results = source.siblings(f"results_{date}.json") or source.siblings("results_*.json")
    for file in results:
        name = _named_in(file)
        if name is not None:
            return name
    org, _, model = source.file.folder.partition("__")
    return f"{org}/{model}" if org and model else source.file.folder or source.file.path.stem


def date_of(file: SourceFile) -> str:
    """End of a run by its file's name, with `-` for `:`; empty if the name has no date."""
    return (_named(file, "date") or "").replace(":", "-")


def task_of(file: SourceFile) -> str:
    """The task in a file's name, else the whole name."""
    return _named(file, "task") or file.path.stem


def item_of(task: str, sample: Mapping[str, JsonValue]) -> str:
    """Key of a sample's item."""
    return f"{task}/{_doc_hash(sample)}"


def _named(file: SourceFile, part: str) -> str | None:
    named = _FILE.fullmatch(file.path.name.removesuffix(".gz"))
    return named[part] if named else None


def _named_in(file: SourceFile) -> str | None:
    results = small_json(file)
    if results is None:
        return None
    arguments = text_of(results, "config", "model_args") or ""
    found = _PRETRAINED.search(arguments)
    return text_of(results, "model_name") or (found[1] if found else None)
