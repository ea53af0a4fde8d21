"""Files of recorded answers: detect which tool wrote one, read it in canonical form, write scores.

| format | files |
|---|---|
| `lm-eval` | `samples_{task}_{date}.jsonl` of lm-evaluation-harness; details of a leaderboard |
| `inspect` | `.json` and `.eval` logs of inspect |
| `helm` | `per_instance_stats.json` of a HELM run folder |
| `openai-evals` | JSON lines of output items of OpenAI Evals |
| `py-irt` | JSON lines of `subject_id` and `responses` |
| `table` | CSV, CSV.GZ or Parquet, wide or long |

Scores are written as wide CSV or Parquet (one row per examinee) or long CSV (one row per answer).
In CSV, names that a spreadsheet would run as formulas are quoted (`app.exchange.files`).
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from app.engine.bank import FloatArray
from app.engine.responses import ResponseTable
from app.errors import FileFormatError, UnknownNameError
from app.exchange.files import PARQUET, ZIP, lines, quoted
from app.exchange.json_text import json_lines
from app.exchange.py_irt import is_examinee, read_py_irt
from app.exchange.results.helm import read_helm
from app.exchange.results.lm_eval import date_of, is_details, is_sample, read_lm_eval
from app.exchange.results.openai_evals import is_output_item, read_openai_evals
from app.exchange.results.recorded import (
    Choices,
    LeftOut,
    Part,
    Seen,
    Source,
    SourceFile,
    TrialTable,
    open_text,
)
from app.items import JsonValue

_HEAD_BYTES = 1 << 20
#: Rows among which one that can be read tells the format.
_LOOKED_AT = 10
#: Companion files, which only name the model of other files.
COMPANIONS = ("results_*.json", "run_spec.json")
_TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet")
#: A file with such a name is no table, also where its first row is damaged.
_JSON_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_INSPECT = re.compile(rb'\s*\{\s*"(version|status|eval)"\s*:.*"task"\s*:', re.DOTALL)
_HELM = re.compile(rb'^\s*\[\s*\{.*"stats"\s*:\s*\[', re.DOTALL)


class ResponseFormat(StrEnum):
    """Who wrote a file."""

    LM_EVAL = "lm-eval"
    INSPECT = "inspect"
    HELM = "helm"
    OPENAI_EVALS = "openai-evals"
    PY_IRT = "py-irt"
    TABLE = "table"


def format_named(name: str) -> ResponseFormat:
    """The format of this name.

    Raises:
        UnknownNameError: There is no such format.
    """
    if name not in set(ResponseFormat):
        raise UnknownNameError("format", name, [known.value for known in ResponseFormat])
    return ResponseFormat(name)


def files_at(paths: Iterable[Path]) -> list[SourceFile]:
    """The files at some paths; folders are searched recursively.

    Companion files, which name the model of another file, are included with it.

    Raises:
        FileFormatError: A path does not exist, or a folder has no file.
    """
    found: dict[Path, SourceFile] = {}
    for path in paths:
        if path.is_dir():
            parts = [part for part in sorted(path.rglob("*")) if part.is_file()]
            if not parts:
                raise FileFormatError(f"{path}: there is no file in this folder.")
            for part in parts:
                found.setdefault(part.resolve(), _on_disk(part, asked_for=False))
        elif path.is_file():
            found[path.resolve()] = _on_disk(path, asked_for=True)
            for pattern in COMPANIONS:
                for part in sorted(path.parent.glob(pattern)):
                    found.setdefault(part.resolve(), _on_disk(part, asked_for=False))
        else:
            raise FileFormatError(f"{path}: cannot be read: No such file or directory.")
    return list(found.values())


def _on_disk(path: Path, *, asked_for: bool) -> SourceFile:
    folder = path.absolute().parent.name  # even a bare file's folder may name a model
    # A name that is not UTF-8 could not be stored with the imported answers.
    name, folder = (text.encode(errors="replace").decode() for text in (path.as_posix(), folder))
    return SourceFile(PurePosixPath(name), folder, path.absolute(), asked_for)


def sources_of(
    files: Sequence[SourceFile], file_format: ResponseFormat | None = None
) -> tuple[list[tuple[ResponseFormat, Source]], list[str]]:
    """The files that hold answers, with their formats, and the names of ignored files.

    `file_format` is that of every file that the user named; in folders, other files are ignored.

    Raises:
        FileFormatError: No file holds answers, or a file that the user named has no known format.
    """
    taken: list[tuple[ResponseFormat, Source]] = []
    passed_over: list[str] = []
    folders: dict[PurePosixPath, list[SourceFile]] = {}
    for file in files:
        folders.setdefault(file.path.parent, []).append(file)
    for file in files:
        folder = folders[file.path.parent]
        detected = detect(file)
        if file.asked_for and not any(fnmatchcase(file.path.name, one) for one in COMPANIONS):
            chosen = file_format or detected
            if chosen is None:
                raise FileFormatError(
                    f"{file.name}: holds no answers in a format that is known "
                    f"({', '.join(ResponseFormat)}){_first_fault(file)}."
                )
            taken.append((chosen, Source(file, folder)))
        elif detected is not None and file_format in {None, detected}:
            taken.append((detected, Source(file, folder)))
        else:
            passed_over.append(file.name)
    if not taken:
        only_means = any(fnmatchcase(file.path.name, COMPANIONS[0]) for file in files)
        advice = " With --log_samples lm-eval writes samples_*.jsonl." if only_means else ""
        raise FileFormatError(
            f"Expected a file of answers ({', '.join(ResponseFormat)}), found none among "
            f"{len(files)} files.{advice}"
        )
    # The newest run of a model comes first, so that older runs only add items that it lacks.
    return sorted(taken, key=lambda one: date_of(one[1].file), reverse=True), passed_over


def detect(file: SourceFile) -> ResponseFormat | None:
    """The format of a file by its content; None if it is unknown."""
    with file.open() as raw:
        mark = raw.read(4)
    if not mark and not file.asked_for:
        return None
    if mark == ZIP:
        return ResponseFormat.INSPECT
    if mark == PARQUET:
        return ResponseFormat.LM_EVAL if is_details(file) else ResponseFormat.TABLE
    with open_text(file) as stream:
        head = stream.read(_HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    name = file.name.lower()
    if head.lstrip()[:1] not in {b"{", b"["} and not name.endswith(_JSON_SUFFIXES):
        is_table = file.asked_for or name.endswith(_TABLE_SUFFIXES)
        return ResponseFormat.TABLE if is_table else None
    if _HELM.match(head) and b'"instance_id"' in head:
        return ResponseFormat.HELM
    row = _first_row(file)
    if row is not None and is_sample(row):
        return ResponseFormat.LM_EVAL
    if row is not None and is_output_item(row):
        return ResponseFormat.OPENAI_EVALS
    if row is not None and is_examinee(row):
        return ResponseFormat.PY_IRT
    if _INSPECT.match(head) and b'"eval"' in head:
        return ResponseFormat.INSPECT
    return None


def _first_row(file: SourceFile) -> dict[str, JsonValue] | None:
    """One of the first rows that can be read; a name that stands twice is told by who reads all."""
    rows = islice(json_lines(file, dict), _LOOKED_AT)
    try:
        return next((row for _, row in rows if isinstance(row, dict)), None)
    except FileFormatError:
        return None


def _first_fault(file: SourceFile) -> str:
    """What is wrong with the first row of a file that has no known format."""
    row, value = next(json_lines(file), (0, None))
    return f"; row {row}: {value.detail}" if isinstance(value, LeftOut) else ""


def read_answers(
    file_format: ResponseFormat, source: Source, choices: Choices, saw: Callable[[Seen], None]
) -> Iterator[Part]:
    """Iterate over the answers of one file; each row with its question is passed to `saw`.

    Raises:
        FileFormatError: The file as a whole cannot be read, or needs a choice of the user.
    """
    match file_format:
        case ResponseFormat.LM_EVAL:
            yield from read_lm_eval(source, choices, saw)
        case ResponseFormat.OPENAI_EVALS:
            yield from read_openai_evals(source, choices, saw)
        case ResponseFormat.HELM:
            yield from read_helm(source, choices)
        case ResponseFormat.PY_IRT:
            yield from read_py_irt(source, choices)
        case ResponseFormat.INSPECT:
            from app.exchange.results.inspect_logs import read_inspect

            yield from read_inspect(source, choices, saw)
        case ResponseFormat.TABLE:
            from app.exchange.responses import read_parts

            with source.file.open() as stream:
                for part in read_parts(stream, name=source.name, score_range=choices.score_range):
                    yield _scaled(part, choices.score_range)


def _scaled(part: TrialTable | LeftOut, score_range: tuple[float, float]) -> TrialTable | LeftOut:
    lo, hi = score_range
    if isinstance(part, LeftOut) or score_range == (0.0, 1.0):
        return part
    table = part.table
    scores = (table.scores - lo) / (hi - lo)
    return part._replace(table=ResponseTable(table.examinees, table.items, scores))


EXAMINEE_COLUMN = "examinee"


class Trial(NamedTuple):
    """Scores of one examinee in one trial, shape (n_items,), NaN for no answer."""

    examinee: str
    number: int
    scores: FloatArray


def write_csv(table: ResponseTable) -> Iterator[bytes]:
    """Lines of a wide CSV file, whose scores read back unchanged."""
    yield lines([[EXAMINEE_COLUMN, *map(quoted, table.items)]])
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        yield lines([[quoted(examinee), *map(_cell, scores.tolist())]])


def write_long(items: Sequence[str], trials: Iterable[Trial], *, repeated: bool) -> Iterator[bytes]:
    """Lines of a CSV file `examinee,item,score`, one per answer, grouped by trial.

    With `repeated`, when some examinees answered more than once, `trial` precedes the score.
    """
    yield lines([[EXAMINEE_COLUMN, "item", *(["trial"] if repeated else []), "score"]])
    items = [*map(quoted, items)]
    for trial in trials:
        examinee = quoted(trial.examinee)
        number = [trial.number] if repeated else []
        given = np.flatnonzero(~np.isnan(trial.scores))
        yield lines(
            [examinee, items[j], *number, _cell(score)]
            for j, score in zip(given.tolist(), trial.scores[given].tolist(), strict=True)
        )


def write_parquet(table: ResponseTable) -> bytes:
    """Write a Parquet file; columns of scores 0 and 1 become small integers."""
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    columns = [pa.array(table.examinees, pa.string()), *map(_column, table.scores.T)]
    # An item may have the name of the first column, so columns are joined by position.
    arrow = pa.Table.from_arrays(columns, names=[EXAMINEE_COLUMN, *table.items])
    target = io.BytesIO()
    pa_parquet.write_table(arrow, target, compression="zstd")
    return target.getvalue()


def _cell(score: float) -> str | float:
    if score != score:
        return ""
    return int(score) if score in {0.0, 1.0} else score


def _column(scores: FloatArray) -> Any:
    import pyarrow as pa

    missing = np.isnan(scores)
    if ((scores == 0) | (scores == 1) | missing).all():
        return pa.array(np.where(missing, 0, scores).astype(np.int8), mask=missing)
    return pa.array(scores, from_pandas=True)
