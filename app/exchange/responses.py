"""Read files of recorded scores: CSV, CSV.GZ or Parquet bytes in, a `ResponseTable` out.

| form | columns |
|---|---|
| wide | first column: names of examinees; every other column: one item |
| long | examinee, item, score, in any order; also `trial`, where examinees answer repeatedly |

A file with a column of items is long; `_NAMES_OF` lists the names of its columns. It may also have
`trial`, and `benchmark_id`, `test_condition` and a first column without a name, as of row numbers,
which are not read. Blanks around a name do not belong to it. An empty cell, NA, NaN, null or None
means no answer; the words true and false, in any case, are 1 and 0.
"""

import io
import math
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from app.engine.bank import FloatArray, IntArray
from app.engine.responses import ResponseTable
from app.errors import FileFormatError
from app.exchange.files import MAX_CELLS, SCORE_RANGE, Problems, comma_hint
from app.exchange.results.recorded import FIRST_TRIAL, LeftOut, TrialTable
from app.exchange.table_batches import NAMES, TEXT, TableFile, floats_of, names_of

_NAMES_OF = {
    "examinee": ("model", "model_name", "model_id", "examinee_id", "subject_id"),
    "item": ("item_id", "question", "question_id", "doc_id"),
    "score": ("response", "correct", "is_correct", "acc", "exact_match"),
}
_ROLE_OF = {name: role for role, names in _NAMES_OF.items() for name in names}
_TRIAL = "trial"
_LONG_COLUMNS = {*_NAMES_OF, _TRIAL, "benchmark_id", "test_condition", ""}
#: What is expected of a long file; faults of a wide file of few columns name it, too.
_EXPECTED = "the columns {}, each once, and perhaps trial, got".format(
    ", ".join(f"{role} (or {', '.join(names)})" for role, names in _NAMES_OF.items())
)
_TOPIC = " A subject may be a topic: if these are models, name the column model."
_FEW_COLUMNS = range(len(_NAMES_OF), 20)  # such a file may be a long one with other names
_MAX_TRIAL = 1_000_000
#: Most cells of each table into which a long file is split.
_BLOCK_CELLS = 2_000_000
#: Codes of cells; 0 and 1 are scores, and a fraction's score is stored in another array.
_FRACTION, _NO_SCORE, _NO_ROW = 2, 254, 255
_Codes = NDArray[np.int32]
#: Scores from 1 to this value are taken for percentages, and this advice is given.
_PERCENT = 100
_OF_PERCENT = " For scores from 0 to 100 give --score-range 0 100, or --scale 0 100 in the lab."


def read_responses(
    source: bytes | BinaryIO,
    *,
    name: str = "responses",
    score_range: tuple[float, float] | None = SCORE_RANGE,
) -> ResponseTable:
    """Read recorded scores; if the file has any fault, nothing is returned.

    A stream must be seekable; gzip and Parquet are recognised. `score_range` holds the lowest and
    highest legal score; None accepts any number.

    Raises:
        FileFormatError: A cell that is not a number or out of range; a repeated examinee, item, or
            pair of both; a missing name; or no answers. Faults are listed with file, row (the
            header is row 1) and column, up to a limit.
    """
    read = read_parts(source, name=name, score_range=score_range)
    parts = [part for part in read if isinstance(part, TrialTable)]
    if (n_trials := len({part.trial for part in parts})) > 1:
        raise FileFormatError(
            f"{name}: expected one answer of each examinee to each item, got {n_trials} trials."
        )
    tables = [part.table for part in parts]
    if len(tables) == 1:
        return tables[0]
    examinees = tuple(examinee for table in tables for examinee in table.examinees)
    scores = np.concatenate([table.scores for table in tables])
    return ResponseTable(examinees, tables[0].items, scores)


def read_parts(
    source: bytes | BinaryIO,
    *,
    name: str = "responses",
    score_range: tuple[float, float] | None = SCORE_RANGE,
) -> Iterator[TrialTable | LeftOut]:
    """Read recorded scores in pieces: some examinees of a trial on all items.

    Rows of a long file that have no score are left out. Arguments and errors are those of
    `read_responses`; any piece may raise an error.
    """
    file = TableFile(io.BytesIO(source) if isinstance(source, bytes) else source, name)
    _check_header(file.header, name)
    roles = _long_roles(file.header, name)
    parts = (
        _wide(file, name, score_range)
        if roles is None
        else _Long(file.header, roles, name, score_range).parts(file)
    )
    n_answers = 0
    for part in parts:
        if isinstance(part, TrialTable):
            n_answers += part.table.n_answers
        yield part
    if not n_answers:
        raise FileFormatError(
            f"{name}: expected at least one score below the items' names, got empty cells alone."
        )


def _wide(
    file: TableFile, name: str, score_range: tuple[float, float] | None
) -> Iterator[TrialTable]:
    header, problems = file.header, Problems()
    if len(header) in _FEW_COLUMNS:
        remedy = " If each row is one answer, name its columns examinee, item and score."
        problems.remedy = file.remedy = remedy
    items = tuple(header[1:])
    known: set[str] = set()
    row = 2
    for batch in file.batches({0: TEXT}):
        examinees = [(text or "").strip() for text in batch.column(0).to_pylist()]
        for i, text in enumerate(examinees):
            if not text:
                problems.add(f"{name}:{row + i}:{header[0]}", "expected a name, got nothing")
            elif text in known:
                detail = f"expected each examinee once, got {text!r}"
                problems.add(f"{name}:{row + i}:{header[0]}", detail)
            else:
                known.add(text)
        scores = np.empty((len(examinees), len(items)))
        for j in range(len(items)):
            scores[:, j] = floats_of(batch.column(j + 1))
        _check_range(
            scores, score_range, problems, lambda i, j, first=row: f"{name}:{first + i}:{items[j]}"
        )
        row += len(examinees)
        if not problems.count:
            yield TrialTable(FIRST_TRIAL, ResponseTable(tuple(examinees), items, scores))
    problems.raise_any(name)


class _Names:
    """Names in order of first appearance."""

    def __init__(self) -> None:
        self.position_of: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.position_of)

    def code(self, column: Any) -> _Codes:
        """Positions of a column's names, after adding new names; -1 for a missing name."""
        names, rows = names_of(column)
        codes = np.full(len(names), -1, np.int32)
        for j, text in enumerate(names):
            if text and (stripped := text.strip()):
                codes[j] = self.position_of.setdefault(stripped, len(self.position_of))
        return codes[rows]

    def all(self) -> tuple[str, ...]:
        return tuple(self.position_of)


class _Long:
    """Rows of a long file as codes of names, and scores; 9 bytes per row if scores are 0 and 1."""

    def __init__(
        self,
        header: Sequence[str],
        roles: Mapping[str, int],
        name: str,
        score_range: tuple[float, float] | None,
    ) -> None:
        self._header = header
        self._roles = roles
        self._name = name
        self._range = score_range
        self._examinees, self._items = _Names(), _Names()
        self._trials: dict[int, int] = {}
        self._problems = Problems()
        self._are_placed = True
        self._rows: deque[tuple[_Codes, _Codes, _Codes, NDArray[Any]]] = deque()

    def parts(self, file: TableFile) -> Iterator[TrialTable | LeftOut]:
        """Read every row, and then return the tables."""
        row = 2
        for batch in file.batches(_long_types(self._header, self._roles)):
            for i in np.flatnonzero(np.isnan(self._take(batch, row))):
                yield LeftOut(row + int(i), "not_scored", "the score is empty")
            row += batch.num_rows
        if not self._rows:
            self._problems.raise_any(self._name)
            return
        shape = (len(self._trials), len(self._examinees), len(self._items))
        if math.prod(shape) > MAX_CELLS:
            raise FileFormatError(
                f"{self._name}: expected at most {MAX_CELLS:,} cells, got {shape[1]:,} examinees x"
                f" {shape[2]:,} items x {shape[0]:,} trials: import benchmarks that share no"
                " examinees one by one."
            )
        codes, fractions = self._cells(shape)
        self._problems.raise_any(self._name)
        yield from self._tables(shape, codes, fractions)

    def _take(self, batch: Any, first_row: int) -> FloatArray:
        """Keep the rows of a batch; return their scores."""
        coded = []
        for role, names in (("examinee", self._examinees), ("item", self._items)):
            coded.append(names.code(batch.column(self._roles[role])))
            without = first_row + np.flatnonzero(coded[-1] < 0)
            self._add(without, role, "expected a name, got nothing")
        scores = floats_of(batch.column(self._roles["score"]))
        _check_range(
            scores, self._range, self._problems, lambda i: self._place(first_row + i, "score")
        )
        trials = self._trial_codes(batch, first_row)
        if trials is None or any((codes < 0).any() for codes in coded):
            self._are_placed = False
            self._rows.clear()
        elif self._are_placed:
            self._rows.append((coded[0], coded[1], trials, _compact(scores)))
        return scores

    def _add(self, rows: IntArray, role: str, detail: str) -> None:
        self._problems.extend(len(rows), ((self._place(row, role), detail) for row in rows))

    def _place(self, row: int, role: str) -> str:
        return f"{self._name}:{row}:{self._header[self._roles[role]]}"

    def _trial_codes(self, batch: Any, first_row: int) -> _Codes | None:
        """Position of each row's trial, or of the only trial; None if a trial is not a number."""
        if _TRIAL not in self._roles:
            self._trials.setdefault(FIRST_TRIAL, 0)
            return np.zeros(1, np.int32)
        numbers = floats_of(batch.column(self._roles[_TRIAL]))
        wrong = np.flatnonzero((numbers != np.round(numbers)) | ~(np.abs(numbers) < _MAX_TRIAL))
        self._add(first_row + wrong, _TRIAL, "expected a whole number")
        if len(wrong):
            return None
        found, rows = np.unique(numbers, return_inverse=True)
        codes = [self._trials.setdefault(int(n), len(self._trials)) for n in found]
        return np.array(codes, np.int32)[rows]

    def _cells(self, shape: tuple[int, ...]) -> tuple[NDArray[np.uint8], FloatArray | None]:
        """Codes of all cells, and the scores of cells with fractions."""
        codes = np.full(math.prod(shape), _NO_ROW, np.uint8)
        fractions: FloatArray | None = None
        filled, row = 0, 2
        while self._rows:
            examinees, items, trials, scores = self._rows.popleft()
            cell = examinees.astype(np.intp)
            cell += trials.astype(np.intp) * shape[1]
            cell *= shape[2]
            cell += items
            again = codes[cell] != _NO_ROW
            if scores.dtype == np.uint8:
                codes[cell] = scores
            else:
                if fractions is None:
                    fractions = np.zeros(len(codes))
                fractions[cell] = scores
                codes[cell] = np.where(np.isnan(scores), _NO_SCORE, _FRACTION)
            before, filled = filled, int(np.count_nonzero(codes != _NO_ROW))
            if filled - before < len(cell):
                again |= _repeats(cell)
                places = np.flatnonzero(again)
                self._problems.extend(
                    len(places), self._repeated_cells(places, examinees, items, row)
                )
            row += len(cell)
        return codes, fractions

    def _repeated_cells(
        self, again: IntArray, examinees: _Codes, items: _Codes, row: int
    ) -> Iterator[tuple[str, str]]:
        who, what = self._examinees.all(), self._items.all()
        for i in again:
            yield (
                f"{self._name}:{row + i}",
                "expected one score for each examinee and item, got another for"
                f" {who[examinees[i]]!r}, {what[items[i]]!r}",
            )

    def _tables(
        self, shape: tuple[int, ...], codes: NDArray[np.uint8], fractions: FloatArray | None
    ) -> Iterator[TrialTable]:
        examinees, items = self._examinees.all(), self._items.all()
        height = max(1, _BLOCK_CELLS // len(items))
        cells = codes.reshape(shape)
        values = None if fractions is None else fractions.reshape(shape)
        for trial in sorted(self._trials):
            of_trial = self._trials[trial]
            for start in range(0, len(examinees), height):
                block = cells[of_trial, start : start + height]
                scores = np.where(block <= 1, block, np.nan)
                if values is not None:
                    chosen = block == _FRACTION
                    scores[chosen] = values[of_trial, start : start + height][chosen]
                table = ResponseTable(examinees[start : start + height], items, scores)
                yield TrialTable(trial, table)


def _compact(scores: FloatArray) -> NDArray[Any]:
    """Scores as bytes, if all are 0, 1 or missing."""
    missing = np.isnan(scores)
    if not (missing | (scores == 0) | (scores == 1)).all():
        return scores
    return np.where(missing, _NO_SCORE, scores == 1).astype(np.uint8)


def _repeats(cell: IntArray) -> NDArray[np.bool_]:
    """Which rows have the same cell as an earlier row."""
    order = np.argsort(cell, kind="stable")
    repeats = np.zeros(len(cell), bool)
    repeats[order[1:]] = cell[order[1:]] == cell[order[:-1]]
    return repeats


def _check_header(header: Sequence[str], name: str) -> None:
    if not any(header):
        raise FileFormatError(f"{name}: expected answers, got an empty file or line.")
    if len(header) < 2:
        raise FileFormatError(
            f"{name}: expected a first column of examinees and a column for each item, or"
            f" examinee,item,score; found {','.join(header)!r:.200}.{comma_hint(header)}"
        )
    problems, seen = Problems(), set[str]()
    for text in header:
        if text in seen:
            problems.add(f"{name}:1:{text}", f"expected each column once, got {text!r} again")
        seen.add(text)
    for j, text in enumerate(header):
        if j > 0 and not text:
            problems.add(f"{name}:1:{j + 1}", "expected an item id, got an empty name")
    problems.raise_any(name)


def _long_roles(header: Sequence[str], name: str) -> dict[str, int] | None:
    """Role to column of a long file; None for a wide file, which has no column of items.

    Raises:
        FileFormatError: A long file that lacks a column, or has one twice or of another role.
    """
    titles = [re.sub(r"[\s-]+", "_", text.lower()) for text in header]
    roles = {_ROLE_OF.get(title, title): j for j, title in enumerate(titles)}
    if "item" not in roles:
        return None
    if len(roles) < len(header) or not _NAMES_OF.keys() <= roles.keys() <= _LONG_COLUMNS:
        raise FileFormatError(
            f"{name}:1: a table with a column {header[roles['item']]!r:.80} holds one answer a "
            f"row: expected {_EXPECTED} {', '.join(header):.200}."
            + (_TOPIC if "subject" in titles else "")
        )
    return roles


def _long_types(header: Sequence[str], roles: Mapping[str, int]) -> dict[int, Any]:
    """Types of a long file's columns that are not numbers; names repeat, so each is stored once."""
    numbers = {roles["score"], roles.get(_TRIAL)}
    coded = {roles["examinee"], roles["item"]}
    return {j: NAMES if j in coded else TEXT for j in range(len(header)) if j not in numbers}


def _check_range(
    scores: FloatArray,
    score_range: tuple[float, float] | None,
    problems: Problems,
    place: Callable[..., str],
) -> None:
    """Add the scores out of range to the faults; `place` makes a pointer of a score's indices."""
    lo, hi = sorted(score_range or (-np.inf, np.inf))
    # NaN means no answer and is legal. An infinite score is never legal.
    found = np.nonzero((scores < lo) | (scores > hi) | np.isinf(scores))
    outside = scores[found]
    if score_range == SCORE_RANGE and ((outside > hi) & (outside <= _PERCENT)).any():
        problems.remedy = _OF_PERCENT + problems.remedy.removeprefix(_OF_PERCENT)
    expected = "a number" if score_range is None else f"a score in {[lo, hi]}"
    shown = (repr(float(score)).removesuffix(".0") for score in outside)  # 1.0000000001 is not 1
    told = (
        (place(*at), f"expected {expected}, got {got}")
        for at, got in zip(zip(*found, strict=True), shown, strict=True)
    )
    problems.extend(len(outside), told)
