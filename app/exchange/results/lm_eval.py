"""lm-evaluation-harness: one row for each document and filter, and Parquet files of its rows.

`samples_{task}_{date}.jsonl` is the harness's own file; the Open LLM Leaderboard's `.json` (one
list) is read as well. The key of an item is its task and `doc_hash`, because `doc_id` depends on
`--limit` and `--samples`. For older files without the hash, it is computed as lm-eval does.

Details of the Open LLM Leaderboard and of lighteval are Parquet, with one row per question:

    details_{org}__{model}/{date}/details_{task}_{date}.parquet      the leaderboard's archive
    details/{org}/{model}/{date}/details_{task}_{date}.parquet       lighteval

| columns | written |
|---|---|
| `query`, `choices`, `gold`, `full_prompt`, `predictions`, `acc`, `acc_norm` | until August 2023 |
| the same with the text of the question in `example` | until October 2023 |
| the same with `metrics` as an object, `gold_index` | until 2025, and by lighteval |
| `__doc__`, `__model_response__`, `__metric__` | by lighteval since |
| `doc`, `model_response`, `metric` | by lighteval 0.13 |

Each of these rows becomes one of lm-eval's samples. Columns of tokens are not read.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from app.exchange.files import check_ratio
from app.exchange.json_text import json_lines, small_json
from app.exchange.results.lm_eval_items import asked_by, config_of, written
from app.exchange.results.recorded import (
    FIRST_TRIAL,
    LOWER_IS_BETTER,
    OTHER_FILTER,
    Choices,
    LeftOut,
    Recorded,
    Seen,
    Source,
    SourceFile,
    answered,
    choice_error,
    choose,
    key_of,
    list_at,
    object_at,
    required_name,
    score_or_reason,
    text_of,
)
from app.items import JsonValue, Outcome

_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d[-:]\d\d[-:]\d\d(\.\d+)?")
#: The parts of a date; inspect's has an offset from UTC, with the task behind it.
_MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)T(\d\d)[-:](\d\d)[-:](\d\d(?:\.\d{1,6})?)\d*"
    r"(?:([+-]\d\d)[-:](\d\d)(?=_))?"
)
_NEVER = datetime.min.replace(tzinfo=UTC)
_FILE = re.compile(
    rf"(?:samples|details)_(?P<task>.+)_(?P<date>{_DATE.pattern})\.(?:jsonl?|parquet)"
)
#: The filter of tasks without a filter.
_NO_FILTER = "none"
#: Name of a filter that is known only by its place behind the first of a document's rows.
_PLACED = re.compile(r"filter [1-9]\d*")
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
    source: Source, choices: Choices, saw: Callable[[Seen], None]
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
        examinee = examinee or required_name(examinee_of(file), "model", file.name)
        rows = detail_samples(file)
    else:
        examinee = examinee or _model(file, _results(source))
        rows = json_lines(file)
    config = config_of(_results(source), task)
    filters = _Filters(choices.filters, config.filters, take_first=choices.take_first)
    for row, sample in rows:
        if isinstance(sample, LeftOut):
            yield sample
        elif not is_sample(sample):
            yield LeftOut(row, "unreadable", "expected doc_id and resps")
        elif filters.take(name := filters.next_name(sample)):
            place = f"{file.name}:{row}"
            offered = _metrics(sample)
            if not offered:
                yield LeftOut(row, "not_scored", "it has no metric with a score")
                continue
            usual = USUAL_METRICS if choices.take_first else None
            metric = choose("metric", offered, choices.metrics, place, usual)
            answers = list(_answers(sample, examinee, task, choices, metric, row))
            scores = [one.score if isinstance(one, Recorded) else None for one in answers]
            is_turned = choices.score_range[0] > choices.score_range[1]
            if (
                metric in config.lower_is_better
                and not is_turned
                and any(score is not None for score in scores)
            ):
                yield LeftOut(row, LOWER_IS_BETTER, f"the lowest {metric} is the best")
                continue
            saw(
                Seen(
                    tool="lm-eval",
                    source=source,
                    task=task,
                    item=item_of(task, sample),
                    examinee=examinee,
                    metric=metric,
                    offered=offered,
                    score=scores[0],
                    asked=partial(asked_by, sample, config.delimiter),
                    sent=partial(_sent, sample),
                    number=sample.get("doc_id"),
                    written=written(sample),
                    responses=sample.get("resps", sample.get("filtered_resps")),
                    filter=name,
                    shots=config.shots,
                    scorer=config.scorers.get(name) if metric == "exact_match" else None,
                    templated=config.templated,
                )
            )
            yield from answers
        else:
            yield LeftOut(row, OTHER_FILTER, name[:100])
    filters.require_one(file.name)


@dataclass(slots=True)
class _Filters:
    """The filters that were seen, and the filter that counts.

    Attributes:
        wanted: Filters that the user chose.
        configured: Filters of the task, in the order in which a document's rows come.
    """

    wanted: tuple[str, ...]
    configured: tuple[str, ...] = ()
    rows_of: Counter[tuple[str, str]] = field(default_factory=Counter)
    seen: dict[str, bool] = field(default_factory=dict)
    take_first: bool = False

    def next_name(self, sample: Mapping[str, JsonValue]) -> str:
        """The filter of the next row; older lm-eval names none, and writes a row for each."""
        if "filter" in sample:
            return str(sample["filter"])
        # Subtasks that were put into one file number their documents alike.
        document = str(sample["doc_id"]), _doc_hash(sample)
        before = self.rows_of[document]
        self.rows_of[document] += 1
        if before < len(self.configured):
            return self.configured[before]
        return f"filter {before + 1}" if before else _NO_FILTER

    def take(self, name: str) -> bool:
        # Rows without a filter go with any choice, but not with a later row of their document.
        is_later = any(map(_PLACED.fullmatch, self.wanted))
        fits = not self.wanted or name in self.wanted or (name == _NO_FILTER and not is_later)
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
    value = _valued(sample[metric])
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
        told = Outcome.ERROR if _is_null(response) else score_or_reason(mark, row, choices)
        yield answered(examinee, item, trial, told, row)


def _valued(value: JsonValue) -> JsonValue:
    """The value of a metric; lm-eval 0.4.8 writes NumPy's booleans as texts."""
    return value == "True" if value in ("True", "False") else value


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
        if name not in _ROW_FIELDS and isinstance(_valued(value), bool | int | float | list)
    ]


def _is_null(response: JsonValue) -> bool:
    """Whether a response is empty: an empty text, or a list of empty texts."""
    if isinstance(response, list):
        return all(_is_null(part) for part in response)
    return response is None or response == ""


def _results(source: Source) -> Iterator[JsonValue]:
    """Contents of the results files of a run, or, where none has its date, of those beside it."""
    date = _named(source.file, "date") or "*"
    files = source.siblings(f"results_{date}.json") or source.siblings("results_*.json")
    return map(small_json, files)


def _model(file: SourceFile, results: Iterator[JsonValue]) -> str:
    for each in results:
        arguments = _PRETRAINED.search(text_of(each, "config", "model_args") or "")
        if name := text_of(each, "model_name") or (arguments and arguments[1]):
            return name
    org, _, model = file.folder.partition("__")
    return f"{org}/{model}" if org and model else file.folder or file.path.stem


def date_of(file: SourceFile) -> datetime:
    """Date of a run by its file's name, also inspect's; the earliest of all if it has none."""
    if (named := _MOMENT.search(file.path.name)) is None:
        return _NEVER
    day, hour, minute, second, *offset = named.groups()
    zone = ":".join(offset) if offset[0] else "+00:00"
    try:
        return datetime.fromisoformat(f"{day}T{hour}:{minute}:{second}{zone}")
    except ValueError:  # such as a thirteenth month
        return _NEVER


def task_of(file: SourceFile) -> str:
    """The task in a file's name, else the whole name."""
    return _named(file, "task") or file.path.stem


def item_of(task: str, sample: Mapping[str, JsonValue]) -> str:
    """Key of a sample's item."""
    return key_of(task, _doc_hash(sample))


def _named(file: SourceFile, part: str) -> str | None:
    named = _FILE.fullmatch(file.path.name.removesuffix(".gz"))
    return named[part] if named else None


_FLAT = (
    "query", "example", "question", "choices", "gold", "gold_index", "full_prompt", "predictions",
    "metrics",
)  # fmt: skip
_METRICS = ("acc_norm", "acc", "em", "qem", "exact_match", "f1", "mc1", "mc2")
_NESTED = (
    "doc.query", "doc.choices", "doc.gold_index", "metric", "model_response.input",
    "model_response.text", "model_response.logprobs",
)  # fmt: skip
_MARKED = [f"__{top}__{dot}{rest}" for top, dot, rest in (n.partition(".") for n in _NESTED)]
#: Rows read at a time, few because their prompts hold many examples.
_BATCH_ROWS = 64
_FOLDER = re.compile(r"(?:datasets--.+--)?details_(.+)")


def is_details(file: SourceFile) -> bool:
    """Whether a Parquet file is a file of details.

    Raises:
        FileFormatError: Not Parquet.
    """
    from app.exchange.table_batches import open_parquet

    with file.open() as stream:
        names = set(open_parquet(stream, file.name).schema_arrow.names)
    flat, nested = {"full_prompt", "predictions"}, {"doc", "metric", "model_response"}
    return flat <= names or nested <= names or {"__doc__", "__metric__"} <= names


def examinee_of(file: SourceFile) -> str | None:
    """The model named by the folders of a file; None if no folder names one."""
    parts = ("", *(file.content if isinstance(file.content, Path) else file.path).parts[:-1])
    for part in reversed(parts):
        if found := _FOLDER.fullmatch(part):
            return found[1].replace("__", "/", 1)
    _, found_folder, within = "/".join(parts[:-1]).rpartition("/details/")
    return within if found_folder and within else None


def detail_samples(file: SourceFile) -> Iterator[tuple[int, dict[str, JsonValue] | LeftOut]]:
    """Number (from 1) and sample of each row, or the reason why the row is no sample.

    Raises:
        FileFormatError: Not Parquet, or too many cells for such a file.
    """
    from app.exchange.table_batches import open_parquet, reading_parquet

    row = given = 0
    with file.open() as stream:
        size, opened = stream.seek(0, 2), open_parquet(stream, file.name)
        wanted = [*_FLAT, *_METRICS, *_NESTED, *_MARKED]
        with reading_parquet(file.name):
            for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
                given += batch.nbytes
                check_ratio(size, given, file.name)
                for fields in batch.to_pylist():
                    row += 1
                    yield row, _sample(_flat(fields), row, file.path.name)


def _flat(fields: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    fields = {name.strip("_"): value for name, value in fields.items()}
    doc, told = fields.get("doc"), object_at(fields, "model_response")
    if not isinstance(doc, dict):
        return fields
    return {
        **doc,
        "full_prompt": told.get("input"),
        "predictions": told.get("logprobs") or told.get("text"),
        "metrics": fields.get("metric"),
    }


def _sample(
    fields: Mapping[str, JsonValue], row: int, file_name: str
) -> dict[str, JsonValue] | LeftOut:
    given = (fields.get(name) for name in ("query", "example", "question"))
    text = next((value for value in given if isinstance(value, str)), None)
    if text is None:
        return LeftOut(row, "unreadable", "expected the question in query or example")
    options = [part for part in list_at(fields, "choices") if isinstance(part, str)]
    answers, prompt = list_at(fields, "predictions"), fields.get("full_prompt")
    is_compared = len(answers) == len(options) and all(isinstance(each, float) for each in answers)
    # Compared options leave likelihoods. Without any, the model was to write an answer.
    is_written = all(each is None or isinstance(each, str) for each in answers)
    requests: list[JsonValue] = []
    # WinoGrande's options stood in the question, and the rows do not say where.
    if prompt and is_written:
        requests = [[prompt, {"until": []}]]
    elif prompt and is_compared and "winogrande" not in file_name:
        # The harness put a space before each option, and lighteval sends it as it is.
        gap = " " if "harness|" in file_name else ""
        requests = [[prompt, part if part[:1].isspace() else gap + part] for part in options]
    named = fields.get("metrics")
    scores = named if isinstance(named, dict) else {name: fields.get(name) for name in _METRICS}
    scores = {name: value for name, value in scores.items() if value is not None}
    return {
        **scores,
        "doc_id": row - 1,
        "doc_hash": _hash(text, [] if is_written else options),
        "arguments": requests,
        "target": _target(fields, [] if is_compared else options),
        "resps": [[[each, False]] for each in answers] if is_compared else [answers],
        "metrics": list(scores),
    }


def _target(fields: Mapping[str, JsonValue], texts: Sequence[str]) -> list[JsonValue]:
    """Positions of the right options, or the accepted texts of a written answer."""
    gold = fields.get("gold")
    gold = fields.get("gold_index") if gold in (None, []) else gold
    found: list[JsonValue] = []
    for part in gold if isinstance(gold, list) and gold else [gold]:
        if isinstance(part, str):
            found.append(part)
        elif isinstance(part, int | float) and float(part).is_integer():
            place = int(part)
            found.append(texts[place] if 0 <= place < len(texts) else str(place))
    return found


def _hash(text: str, options: Sequence[str]) -> str:
    """Hash of the question, independent of the white space that harness versions put around it."""
    parts = [" ".join(part.split()) for part in (text, *options)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
