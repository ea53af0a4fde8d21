"""The response matrix that a bank is calibrated from, and splits of its examinees."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.responses import AnswerTable, require_unique
from app.errors import CalibrationError, FieldProblem, InvalidInputError

ByteArray = NDArray[np.uint8]

MISSING = 255
"""Code of a missing answer; a missing answer does not count as wrong."""

#: Cells converted to float64 at a time, 16 MB.
BLOCK_CELLS = 2_000_000
_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, eq=False)
class ScoreMatrix(AnswerTable):
    """Right, wrong and missing answers of examinees (rows) to items (columns).

    Scores are bytes: as float64, a matrix of 3,467 x 5,600 answers would take 155 MB.

    Attributes:
        scores: 1 right, 0 wrong, `MISSING`; shape (n_examinees, n_items), read-only.
    """

    scores: ByteArray

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
    @override
    def answered(self) -> BoolArray:
        return np.not_equal(self.scores, MISSING)

    @override
    def answers(self, examinees: IntArray | slice = slice(None)) -> FloatArray:
        codes = self.scores[examinees]
        scores: FloatArray = np.where(codes == MISSING, np.nan, codes)
        return scores

    @override
    def totals(self, axis: int) -> IntArray:
        right: IntArray = np.count_nonzero(self.scores == 1, axis=axis)
        return right

    def blocks(self) -> Iterator[tuple[slice, FloatArray, FloatArray | None]]:
        """Blocks of rows: their slice, right answers as 0/1, and given answers as 0/1.

        The given answers are None in a block without missing answers.
        """
        height = max(1, BLOCK_CELLS // self.n_items)
        for start in range(0, self.n_examinees, height):
            rows = slice(start, min(start + height, self.n_examinees))
            block = self.scores[rows]
            missing = block == MISSING
            if missing.any():
                yield rows, (block == 1).astype(np.float64), (~missing).astype(np.float64)
            else:
                yield rows, block.astype(np.float64), None

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
        right = self.totals(0)
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


@dataclass(frozen=True, slots=True)
class HoldOut:
    """A split into examinees that are learned from and examinees that are tested.

    Attributes:
        name: Kind of hold-out, or the family of the tested examinees.
        known: Row numbers of the examinees that are learned from.
        tested: Row numbers of the examinees that are tested.
    """

    name: str
    known: IntArray
    tested: IntArray


def split_by_strength(strongest_first: IntArray) -> tuple[HoldOut, HoldOut]:
    """Splits that test the strongest of these rows, given by falling ability."""
    order, n = strongest_first, strongest_first.size
    fifth, half, third = n - int(0.8 * n), n - n // 2, n - int(0.7 * n)
    return (
        HoldOut("strongest_fifth", order[fifth:], order[:fifth]),
        HoldOut("strongest_from_weakest", order[half:], order[:third]),
    )


def evenly(rows: IntArray, most: int) -> IntArray:
    """At most `most` of the rows, evenly spaced."""
    chosen: IntArray = rows[np.linspace(0, rows.size - 1, min(rows.size, most)).astype(np.intp)]
    return chosen


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
    require_unique(kind, names)
    return tuple(names)
