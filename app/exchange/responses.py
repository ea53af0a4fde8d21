"""Files of recorded scores: CSV, CSV.GZ or Parquet bytes in, a `ResponseTable` out.

| form | columns |
|---|---|
| wide | first column: names of examinees; every other column: one item |
| long | examinee, item, score, in any order; also `trial`, where examinees answer repeatedly |

A long file is recognised by its column names: `examinee`, `model`, `subject` or `subject_id`;
`item` or `item_id`; `score` or `response`. It may also have `trial`, and `benchmark_id` and
`test_condition`, which are not read. An empty cell, NA, NaN, null or None means no answer.
"""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.csv as pa_csv  # type: ignore[import-untyped]
import pyarrow.parquet as pa_parquet  # type: ignore[import-untyped]
from numpy.typing import NDArray

from app.engine.bank import FloatArray, IntArray
from app.engine.responses import ResponseTable
from app.errors import FieldProblem, FileFormatError
from app.exchange.files import (
    MAX_CELLS,
    MAX_PROBLEMS,
    SCORE_RANGE,
    as_text,
    raise_problems,
    read_bytes,
)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")

_PARQUET = b"PAR1"
_LONG_ROLES = (
    ("examinee", frozenset({"examinee", "model", "subject", "subject_id"})),
    ("item", frozenset({"item", "item_id"})),
    ("score", frozenset({"score", "response"})),
)
_TRIAL = "trial"
_LONG_COLUMNS = {role for role, _ in _LONG_ROLES} | {_TRIAL, "benchmark_id", "test_condition"}
_FIRST_TRIAL = 1
_MAX_TRIAL = 1_000_000


def read_responses(
    source: bytes | BinaryIO,
    *,
    name: str = "responses",
    score_range: tuple[float, float] | None = SCORE_RANGE,
) -> ResponseTable:
    """Read recorded scores; either the whole file is good or nothing is returned.

    Args:
        source: The bytes, or a binary stream; gzip and Parquet are recognised.
        name: How faults name the file.
        score_range: Lowest and highest legal score; None takes any number.

    Raises:
        FileFormatError: A cell that is no number or out of range, a repeated examinee, item or pair
            of both, a missing name, no answers. Faults are listed with file, row (the header
            is row 1) and column, up to a cap.
    """
    tables = read_trials(source, name=name, score_range=score_range)
    if len(tables) > 1:
        raise FileFormatError(
            f"{name}: expected one answer of each examinee to each item, got {len(tables)} trials."
        )
    (table,) = tables.values()
    return table


def read_trials(
    source: bytes | BinaryIO,
    *,
    name: str = "responses",
    score_range: tuple[float, float] | None = SCORE_RANGE,
) -> dict[int, ResponseTable]:
    """Read recorded scores of examinees who may have answered repeatedly: trial to its table.

    Arguments and faults are those of `read_responses`; a file without trials is trial 1.
    """
    content = read_bytes(source, name)
    is_parquet = content.startswith(_PARQUET)
    header = _parquet_header(content, name) if is_parquet else _csv_header(content, name)
    _check_header(header, name)
    roles = _long_roles(header)
    types = {0: pa.string()} if roles is None else _long_types(header, roles)
    table = (
        _parquet_table(content, header, types, name)
        if is_parquet
        else _csv_table(content, header, types, name)
    )
    del content  # of long files as large as all that follows
    if roles is None:
        return {_FIRST_TRIAL: _wide(table, header, name, score_range)}
    return _long(table, header, roles, name, score_range)


def _wide(
    table: Any, header: Sequence[str], name: str, score_range: tuple[float, float] | None
) -> ResponseTable:
    examinees = _names(table.column(0), header[0], name)
    problems = [
        FieldProblem(f"{name}:{row + 2}:{header[0]}", f"expected each examinee once, got {text!r}")
        for row, text in _repeated(examinees)
    ]
    raise_problems(name, problems)
    # Filled column by column, so in column order; rows are what is read later.
    scores = np.empty((len(examinees), len(header) - 1), order="F")
    for j in range(scores.shape[1]):
        scores[:, j] = _floats(table.column(j + 1))
    rows, columns = _outside(scores, score_range)
    raise_problems(
        name,
        [
            _outside_problem(name, row + 2, header[column + 1], scores[row, column], score_range)
            for row, column in zip(rows, columns, strict=True)
        ],
    )
    return _table(examinees, tuple(header[1:]), np.ascontiguousarray(scores), name)


def _long(
    table: Any,
    header: Sequence[str],
    roles: dict[str, int],
    name: str,
    score_range: tuple[float, float] | None,
) -> dict[int, ResponseTable]:
    examinees, row_of = _encoded(table.column(roles["examinee"]), header[roles["examinee"]], name)
    items, column_of = _encoded(table.column(roles["item"]), header[roles["item"]], name)
    scores = _floats(table.column(roles["score"]))
    trials, trial_of = _trials(table, header, roles, name)
    shape = (len(trials), len(examinees), len(items))
    n_cells = math.prod(shape)
    if n_cells > MAX_CELLS:
        raise FileFormatError(
            f"{name}: expected at most {MAX_CELLS:,} cells, got {len(examinees):,} examinees x"
            f" {len(items):,} items x {len(trials):,} trials."
        )
    cell = row_of.astype(np.intp)
    cell *= len(items)
    cell += column_of
    cell += trial_of * (len(examinees) * len(items))
    (outside,) = _outside(scores, score_range)
    problems = [
        FieldProblem(
            f"{name}:{row + 2}",
            "expected one score for each examinee and item, got another for"
            f" {examinees[row_of[row]]!r}, {items[column_of[row]]!r}",
        )
        for row in _again(cell, n_cells)
    ]
    problems += [
        _outside_problem(name, row + 2, header[roles["score"]], scores[row], score_range)
        for row in outside
    ]
    raise_problems(name, problems)
    wide = np.full(n_cells, np.nan)
    wide[cell] = scores
    return {
        trial: _table(examinees, items, scores, name)
        for trial, scores in zip(trials, wide.reshape(shape), strict=True)
    }


def _again(cell: IntArray, n_cells: int) -> IntArray:
    """Rows whose cell an earlier row has."""
    seen = np.zeros(n_cells, bool)
    seen[cell] = True
    if np.count_nonzero(seen) == len(cell):
        return np.empty(0, np.intp)
    order = np.argsort(cell, kind="stable")
    again: IntArray = np.sort(order[1:][cell[order][1:] == cell[order][:-1]])
    return again


def _trials(
    table: Any, header: Sequence[str], roles: dict[str, int], name: str
) -> tuple[list[int], IntArray]:
    """Numbers of the trials, and the position of each row's trial (of all rows) among them."""
    if _TRIAL not in roles:
        return [_FIRST_TRIAL], np.zeros(1, np.intp)
    column = roles[_TRIAL]
    numbers = _floats(table.column(column))
    (wrong,) = np.nonzero((numbers != np.round(numbers)) | ~(np.abs(numbers) < _MAX_TRIAL))
    raise_problems(
        name,
        [
            FieldProblem(f"{name}:{row + 2}:{header[column]}", "expected a whole number")
            for row in wrong
        ],
    )
    trials, trial_of = np.unique(numbers, return_inverse=True)
    return [int(trial) for trial in trials], trial_of.astype(np.intp)


def _table(
    examinees: tuple[str, ...], items: tuple[str, ...], scores: FloatArray, name: str
) -> ResponseTable:
    table = ResponseTable(examinees, items, scores)
    if table.n_answers == 0:
        raise FileFormatError(f"{name}: expected at least one score, got none.")
    return table


def _header_end(content: bytes) -> int:
    """Where the first line ends, which goes on as long as a quote is open."""
    end = content.find(b"\n") + 1
    while end and content.count(b'"', 0, end) % 2:
        end = content.find(b"\n", end) + 1
    return end or len(content)


def _csv_header(content: bytes, name: str) -> list[str]:
    first = as_text(content[: _header_end(content)], name)
    try:
        return next(csv.reader(io.StringIO(first, newline=""), strict=True), [])
    except csv.Error as exc:
        raise FileFormatError(f"{name}:1: expected a CSV header, got {exc}.") from exc


def _csv_table(content: bytes, header: Sequence[str], text: Mapping[int, Any], name: str) -> Any:
    positions = [str(i) for i in range(len(header))]
    ragged: list[FieldProblem] = []
    start = _header_end(content)
    if start == len(content):
        raise FileFormatError(f"{name}: expected at least one score, got none.")
    rows = pa.py_buffer(content).slice(start)
    # Looking for line ends within quotes costs time, so only where there are quotes.
    quoted = content.find(b'"', start) >= 0

    def on_ragged(row: Any) -> str:
        detail = f"expected {row.expected_columns} cells, got {row.actual_columns}"
        ragged.append(FieldProblem(f"{name}:{row.number + 1}", detail))
        return "skip"

    def read(types: dict[str, Any]) -> Any:
        return pa_csv.read_csv(
            pa.BufferReader(rows),
            # One thread: only then are rows numbered. Blocks hold many rows of many columns.
            pa_csv.ReadOptions(use_threads=False, block_size=1 << 26, column_names=positions),
            pa_csv.ParseOptions(newlines_in_values=quoted, invalid_row_handler=on_ragged),
            pa_csv.ConvertOptions(
                column_types=types,
                null_values=list(MISSING),
                strings_can_be_null=False,
                check_utf8=True,
            ),
        )

    kinds = {p: text.get(int(p), pa.float64()) for p in positions}
    try:
        table = read(kinds)
    except pa.ArrowInvalid as exc:
        ragged.clear()
        try:
            as_strings = read(dict.fromkeys(positions, pa.string()))
        except pa.ArrowInvalid:
            raise FileFormatError(f"{name}: expected CSV, got {exc}.") from exc
        raise_problems(name, _text_problems(as_strings, header, text, name))
        raise FileFormatError(f"{name}: expected numbers, got {exc}.") from exc
    raise_problems(name, ragged)
    return table


def _parquet_header(content: bytes, name: str) -> list[str]:
    try:
        return list(pa_parquet.read_schema(pa.BufferReader(content)).names)
    except (pa.ArrowInvalid, OSError) as exc:
        raise FileFormatError(f"{name}: expected a Parquet file, got {exc}.") from exc


def _parquet_table(
    content: bytes, header: Sequence[str], text: Mapping[int, Any], name: str
) -> Any:
    try:
        table = pa_parquet.read_table(pa.BufferReader(content))
    except (pa.ArrowInvalid, OSError) as exc:
        raise FileFormatError(f"{name}: expected a Parquet file, got {exc}.") from exc
    columns = []
    problems = []
    for j, column in enumerate(table.columns):
        wanted = text.get(j, pa.float64())
        try:
            columns.append(pc.cast(column, wanted))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            detail = f"expected {wanted}, got a column of {column.type}"
            problems.append(FieldProblem(f"{name}:*:{header[j]}", detail))
    raise_problems(name, problems)
    return pa.table(columns, names=[str(j) for j in range(len(columns))])


def _text_problems(
    table: Any, header: Sequence[str], text: Mapping[int, Any], name: str
) -> list[FieldProblem]:
    problems = []
    for j, column in enumerate(table.columns):
        if j in text:
            continue
        for row, cell in enumerate(column.to_pylist()):
            if cell not in MISSING and not _is_number(cell):
                detail = f"expected a score, got {cell!r:.80}"
                problems.append(FieldProblem(f"{name}:{row + 2}:{header[j]}", detail))
        if len(problems) >= MAX_PROBLEMS:
            break
    return problems


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_header(header: Sequence[str], name: str) -> None:
    if len(header) < 2:
        raise FileFormatError(
            f"{name}: expected a first column of examinees and a column for each item, or"
            f" examinee,item,score; found {','.join(header)!r:.200}."
        )
    raise_problems(
        name,
        [
            FieldProblem(f"{name}:1:{text}", f"expected each column once, got {text!r} again")
            for _, text in _repeated(header)
        ]
        + [
            FieldProblem(f"{name}:1:{j + 1}", "expected an item id, got an empty name")
            for j, text in enumerate(header)
            if j > 0 and not text.strip()
        ],
    )


def _long_roles(header: Sequence[str]) -> dict[str, int] | None:
    """Column of each role, None in a wide file; a column without a role makes a file wide."""
    roles: dict[str, int] = {}
    for j, text in enumerate(header):
        title = text.strip().lower()
        role = next((role for role, names in _LONG_ROLES if title in names), title)
        if role in roles or (role == title and role not in _LONG_COLUMNS):
            return None
        roles[role] = j
    return roles if all(role in roles for role, _ in _LONG_ROLES) else None


def _long_types(header: Sequence[str], roles: Mapping[str, int]) -> dict[int, Any]:
    """Columns of a long file that are no numbers; names repeat, so each is kept once."""
    names = pa.dictionary(pa.int32(), pa.string())
    numbers = {roles["score"], roles.get(_TRIAL)}
    coded = {roles["examinee"], roles["item"]}
    return {j: names if j in coded else pa.string() for j in range(len(header)) if j not in numbers}


def _names(column: Any, title: str, name: str) -> tuple[str, ...]:
    names = tuple(column.to_pylist())
    problems = [
        FieldProblem(f"{name}:{row + 2}:{title}", "expected a name, got nothing")
        for row, text in enumerate(names)
        if not text or not text.strip()
    ]
    raise_problems(name, problems)
    return names


def _encoded(column: Any, title: str, name: str) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Distinct names in order of first appearance, and the position of each row's name."""
    encoded = column.unify_dictionaries().combine_chunks()
    names = encoded.dictionary.to_pylist()
    if encoded.null_count or any(not text.strip() for text in names):
        _names(column, title, name)
    return tuple(names), encoded.indices.to_numpy()


def _floats(column: Any) -> FloatArray:
    floats: FloatArray = column.to_numpy()
    return floats


def _repeated(names: Sequence[str]) -> list[tuple[int, str]]:
    first: dict[str, int] = {}
    return [(i, text) for i, text in enumerate(names) if first.setdefault(text, i) != i]


def _outside(scores: FloatArray, score_range: tuple[float, float] | None) -> tuple[IntArray, ...]:
    lo, hi = sorted(score_range or (-np.inf, np.inf))
    # NaN is neither: no answer. An infinite score is never legal.
    return np.nonzero((scores < lo) | (scores > hi) | np.isinf(scores))


def _outside_problem(
    name: str, row: int, column: str, score: float, score_range: tuple[float, float] | None
) -> FieldProblem:
    expected = "a number" if score_range is None else f"a score in {sorted(score_range)}"
    return FieldProblem(f"{name}:{row}:{column}", f"expected {expected}, got {score:g}")
