"""The response matrix that a bank is calibrated from."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from app.engine.models.base import FloatArray, IntArray
from app.errors import CalibrationError, FieldProblem, InvalidInputError

ByteArray = NDArray[np.uint8]
BoolArray = NDArray[np.bool_]

MISSING = 255
"""Code of a missing answer; a missing answer does not count as wrong."""

_BLOCK_CELLS = 2_000_000  # cells converted to float64 at a time, 16 MB
_MAX_PROBLEMS = 20


@dataclass(frozen=True, eq=False)
class ScoreMatrix:
    """Right, wrong and missing answers of examinees (rows) to items (columns).

    Scores are bytes: as float64, a matrix of 3,467 x 5,600 answers would take 155 MB.

    Attributes:
        scores: 1 right, 0 wrong, `MISSING`; shape (n_examinees, n_items), read-only.
        examinees: Names of the rows.
        items: Ids of the columns.
    """

    scores: ByteArray
    examinees: tuple[str, ...]
    items: tuple[str, ...]

    @classmethod
    def of(
        cls,
        scores: ArrayLike,
        *,
        examinees: Sequence[str] | None = None,
        items: Sequence[str] | None = None,
    ) -> "ScoreMatrix":
        """Make a matrix from numbers: 1 right, 0 wrong, NaN missing (or bytes with `MISSING`).

        Raises:
            InvalidInputError: The input is no table of numbers, or has values other than 0, 1 and
                missing (places are listed, up to 20), or names repeat or do not fit the shape.
        """
        table = _table(scores)
        rows = _names("examinee", examinees, table.shape[0])
        columns = _names("item", items, table.shape[1])
        codes = _codes(table, rows, columns)
        codes.flags.writeable = False
        return cls(scores=codes, examinees=rows, items=columns)

    @property
    def n_examinees(self) -> int:
        """Number of rows."""
        return len(self.examinees)

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return len(self.items)

    def select(
        self,
        examinees: IntArray | BoolArray | None = None,
        items: IntArray | BoolArray | None = None,
    ) -> "ScoreMatrix":
        """Select rows and columns by position or mask."""
        rows = np.arange(self.n_examinees)[slice(None) if examinees is None else examinees]
        columns = np.arange(self.n_items)[slice(None) if items is None else items]
        part = self.scores[np.ix_(rows, columns)]
        part.flags.writeable = False
        return ScoreMatrix(
            scores=part,
            examinees=tuple(self.examinees[i] for i in rows),
            items=tuple(self.items[j] for j in columns),
        )

    def blocks(self) -> Iterator[tuple[slice, FloatArray, FloatArray | None]]:
        """Blocks of rows: their slice, right answers as 0/1, and given answers as 0/1.

        The given answers are None in a block without missing answers.
        """
        height = max(1, _BLOCK_CELLS // self.n_items)
        for start in range(0, self.n_examinees, height):
            rows = slice(start, min(start + height, self.n_examinees))
            block = self.scores[rows]
            missing = block == MISSING
            if missing.any():
                yield rows, (block == 1).astype(np.float64), (~missing).astype(np.float64)
            else:
                yield rows, block.astype(np.float64), None

    def answers(self, examinees: IntArray | slice = slice(None)) -> FloatArray:
        """Scores of the examinees at some positions as floats, NaN where there is no answer."""
        codes = self.scores[examinees]
        scores: FloatArray = np.where(codes == MISSING, np.nan, codes)
        return scores

    def answers_per_item(self) -> IntArray:
        """Number of given answers to each item, shape (n_items,)."""
        counts: IntArray = np.count_nonzero(self.scores != MISSING, axis=0)
        return counts

    def answers_per_examinee(self) -> IntArray:
        """Number of given answers of each examinee, shape (n_examinees,)."""
        counts: IntArray = np.count_nonzero(self.scores != MISSING, axis=1)
        return counts

    def item_means(self) -> FloatArray:
        """Share of right answers among the given ones, shape (n_items,); NaN without answers."""
        return _ratio(np.count_nonzero(self.scores == 1, axis=0), self.answers_per_item())

    def examinee_means(self) -> FloatArray:
        """Share of right answers among the given ones, shape (n_examinees,); NaN without any."""
        return _ratio(np.count_nonzero(self.scores == 1, axis=1), self.answers_per_examinee())

    def require_two_examinees(self) -> None:
        """Refuse a matrix with one row.

        Raises:
            CalibrationError: Fewer than two examinees.
        """
        if self.n_examinees < 2:
            raise CalibrationError(
                f"Calibration needs at least 2 examinees (rows), got {self.n_examinees}."
            )

    def require_calibratable(self) -> None:
        """Refuse a matrix from which no item parameter can be estimated.

        Raises:
            CalibrationError: Fewer than two examinees or items, an item without both a right and
                a wrong answer, or an examinee without answers.
        """
        self.require_two_examinees()
        if self.n_items < 2:
            raise CalibrationError(
                f"Calibration needs at least 2 items (columns), got {self.n_items}."
            )
        right = np.count_nonzero(self.scores == 1, axis=0)
        constant = np.flatnonzero((right == 0) | (right == self.answers_per_item()))
        if len(constant):
            raise CalibrationError(
                f"{len(constant)} of {self.n_items} items lack a right or a wrong answer and "
                f"cannot be calibrated, first {self.items[constant[0]]!r}; filter them out.",
                problems=[
                    FieldProblem(f"/items/{j}", f"item {self.items[j]!r} is constant")
                    for j in constant[:_MAX_PROBLEMS]
                ],
            )
        silent = np.flatnonzero(self.answers_per_examinee() == 0)
        if len(silent):
            raise CalibrationError(
                f"{len(silent)} of {self.n_examinees} examinees have no answers, first "
                f"{self.examinees[silent[0]]!r}; filter them out."
            )


def _table(scores: ArrayLike) -> FloatArray | ByteArray:
    if isinstance(scores, np.ndarray) and scores.dtype == np.uint8:
        table: FloatArray | ByteArray = scores
    else:
        try:
            table = np.asarray(scores, dtype=np.float64)
        except (TypeError, ValueError) as exc:
            raise InvalidInputError(f"Expected a table of 0, 1 and missing scores: {exc}.") from exc
    if table.ndim != 2 or 0 in table.shape:
        raise InvalidInputError(
            f"Expected examinees x items with at least one of each, got shape {table.shape}."
        )
    return table


def _codes(
    table: FloatArray | ByteArray, rows: tuple[str, ...], columns: tuple[str, ...]
) -> ByteArray:
    missing = table == MISSING if table.dtype == np.uint8 else np.isnan(table)
    right = table == 1
    invalid = ~(missing | right | (table == 0))
    if invalid.any():
        places = np.argwhere(invalid)
        i, j = places[0]
        between = ((table[invalid] > 0.0) & (table[invalid] < 1.0)).all()
        hint = " The model 'continuous' takes scores in between." if between else ""
        raise InvalidInputError(
            f"Expected scores 0, 1 or missing, got {table[i, j]} for examinee {rows[i]!r}, item "
            f"{columns[j]!r} ({len(places)} such cells).{hint}",
            problems=[
                FieldProblem(f"/{rows[i]}/{columns[j]}", f"score {table[i, j]}")
                for i, j in places[:_MAX_PROBLEMS]
            ],
        )
    codes: ByteArray = right.astype(np.uint8)
    codes[missing] = MISSING
    return codes


def _names(kind: str, names: Sequence[str] | None, n: int) -> tuple[str, ...]:
    if names is None:
        return tuple(str(i + 1) for i in range(n))
    if len(names) != n:
        raise InvalidInputError(f"Expected {n} {kind} names, got {len(names)}.")
    if len(set(names)) < n:
        (twice, _), *_ = Counter(names).most_common(1)
        raise InvalidInputError(f"The {kind} {twice!r} occurs twice.")
    return tuple(names)


def _ratio(part: IntArray, whole: IntArray) -> FloatArray:
    shares: FloatArray = np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
    return shares
