"""Details of the Open LLM Leaderboard and of lighteval: Parquet, one row per question.

    details_{org}__{model}/{date}/details_{task}_{date}.parquet      the leaderboard's archive
    details/{org}/{model}/{date}/details_{task}_{date}.parquet       lighteval

| columns | written |
|---|---|
| `query`, `choices`, `gold`, `full_prompt`, `predictions`, `acc`, `acc_norm` | until August 2023 |
| the same with the text of the question in `example` | until October 2023 |
| the same with `metrics` as an object, `gold_index` | until 2025, and by lighteval |
| `__doc__`, `__model_response__`, `__metric__` | by lighteval since |

Each row becomes one of lm-eval's samples. Columns of tokens are not read.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from app.errors import FileFormatError
from app.exchange.files import check_ratio, shortened
from app.exchange.results.recorded import LeftOut, SourceFile, list_at, object_at
from app.exchange.table_batches import NOT_PARQUET, open_parquet
from app.items import JsonValue

_FLAT = (
    "query", "example", "question", "choices", "gold", "gold_index", "full_prompt", "predictions",
    "metrics",
)  # fmt: skip
_METRICS = ("acc_norm", "acc", "em", "qem", "exact_match", "f1", "mc1", "mc2")
_NESTED = (
    "__doc__.query", "__doc__.choices", "__doc__.gold_index", "__metric__",
    "__model_response__.input", "__model_response__.text", "__model_response__.logprobs",
)  # fmt: skip
#: Rows read at a time, few because their prompts hold many examples.
_BATCH_ROWS = 64
_FOLDER = re.compile(r"(?:datasets--.+--)?details_(.+)")


def is_details(file: SourceFile) -> bool:
    """Whether a Parquet file is a file of details.

    Raises:
        FileFormatError: Not Parquet.
    """
    with file.open() as stream:
        names = set(open_parquet(stream, file.name).schema_arrow.names)
    return {"full_prompt", "predictions"} <= names or {"__doc__", "__metric__"} <= names


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
    row = given = 0
    with file.open() as stream:
        size, opened = stream.seek(0, 2), open_parquet(stream, file.name)
        wanted = [*_FLAT, *_METRICS, *_NESTED]
        try:
            for batch in opened.iter_batches(_BATCH_ROWS, columns=wanted, use_threads=False):
                given += batch.nbytes
                check_ratio(size, given, file.name)
                for fields in batch.to_pylist():
                    row += 1
                    yield row, _sample(_flat(fields), row, file.path.name)
        except (*NOT_PARQUET, UnicodeDecodeError) as exc:
            raise FileFormatError(
                f"{file.name}:{row + 1}: expected Parquet, got {shortened(str(exc))}."
            ) from exc


def _flat(fields: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    doc, told = fields.get("__doc__"), object_at(fields, "__model_response__")
    if not isinstance(doc, dict):
        return fields
    return {
        **doc,
        "full_prompt": told.get("input"),
        "predictions": told.get("logprobs") or told.get("text"),
        "metrics": fields.get("__metric__"),
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
