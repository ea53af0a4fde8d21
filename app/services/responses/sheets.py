"""Answer sheets: answers of one examinee to all items of a response set, one byte per item.

| code | meaning |
|---|---|
| 0, 1 | wrong, right |
| 2 | a score between 0 and 1, stored separately as float64 |
| 251-254 | truncated, error, refused, unparsed: an answer without a score |
| 255 | never asked |

So 3,467 examinees on 5,600 items take 19 MB. Bytes of 255 at the end are not stored, so items that
are added later do not change stored sheets.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from app.engine.bank import FloatArray
from app.engine.models.base import IntArray
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError
from app.exchange.files import MAX_CELLS
from app.items import Outcome
from app.records.response_sets import StoredSheet

WRONG, RIGHT, FRACTION = 0, 1, 2
NOT_RUN = 255
CODE_OF = {
    Outcome.TRUNCATED: 251,
    Outcome.ERROR: 252,
    Outcome.REFUSED: 253,
    Outcome.UNPARSED: 254,
}
#: Lowest code of an answer without a score.
_UNSCORED = min(CODE_OF.values())
FRACTION_BYTES = 8


@dataclass(slots=True, eq=False)
class Sheet:
    """Answers of one examinee in one trial; grows to the last item that was answered."""

    codes: bytearray = field(default_factory=bytearray)
    fractions: "array[float] | None" = None  # quoted: subscripted at run time from 3.12 only

    @classmethod
    def of_scores(cls, scores: FloatArray) -> "Sheet":
        """A sheet of scores; NaN marks items without a score."""
        codes = np.full(scores.shape, FRACTION, np.uint8)
        codes[scores == 0] = WRONG
        codes[scores == 1] = RIGHT
        codes[np.isnan(scores)] = NOT_RUN
        return cls.of_arrays(codes, scores if (codes == FRACTION).any() else None)

    @classmethod
    def of_arrays(cls, codes: NDArray[np.uint8], fractions: FloatArray | None) -> "Sheet":
        """A sheet of codes and, unless all scores are 0 and 1, of fractions at the same items."""
        made = None if fractions is None else array("d", fractions.tobytes())
        return cls(bytearray(codes.tobytes()), made)

    @classmethod
    def of_stored(cls, stored: StoredSheet) -> "Sheet":
        """A sheet from its stored form."""
        codes, fractions = np.frombuffer(stored.codes, np.uint8), None
        if stored.fractions is not None:
            fractions = np.zeros(len(codes))
            fractions[codes == FRACTION] = np.frombuffer(stored.fractions, "<f8")
        return cls.of_arrays(codes, fractions)

    def stored(self, examinee: str, trial: int) -> StoredSheet:
        """The stored form of the sheet."""
        codes = bytes(self.codes).rstrip(bytes([NOT_RUN]))
        if self.fractions is None:
            return StoredSheet(examinee, trial, codes)
        chosen = np.frombuffer(codes, np.uint8) == FRACTION
        fractions = self.all_fractions[: len(codes)][chosen].astype("<f8").tobytes()
        return StoredSheet(examinee, trial, codes, fractions or None)

    @property
    def all_fractions(self) -> FloatArray:
        """The fraction of each item, 0 where the score is none."""
        if self.fractions is None:
            return np.zeros(len(self.codes))
        return np.frombuffer(self.fractions)

    def grow(self, n_items: int) -> None:
        """Extend the sheet to at least `n_items` items."""
        more = n_items - len(self.codes)
        if more > 0:
            self.codes.extend(bytes([NOT_RUN]) * more)
            if self.fractions is not None:
                self.fractions.frombytes(bytes(FRACTION_BYTES * more))

    def put(self, column: int, code: int, score: float) -> int:
        """Write one answer, extending the sheet to `column`; return the bytes added."""
        self.codes[column] = code
        grown = 0
        if code == FRACTION:
            if self.fractions is None:
                grown = FRACTION_BYTES * len(self.codes)
                self.fractions = array("d", bytes(grown))
            self.fractions[column] = score
        return grown

    @property
    def n_bytes(self) -> int:
        """Size of the sheet in memory, bytes."""
        return len(self.codes) * self.width

    @property
    def width(self) -> int:
        """Size of one answer, bytes."""
        return 1 if self.fractions is None else 1 + FRACTION_BYTES

    def score(self, column: int) -> float | None:
        """The score of one answer, None where it has none."""
        code = self.codes[column]
        if code == FRACTION and self.fractions is not None:
            return self.fractions[column]
        return float(code) if code <= RIGHT else None

    def scores(self, n_items: int) -> FloatArray:
        """All scores, NaN where there is none, shape (n_items,)."""
        codes = np.frombuffer(self.codes, np.uint8)
        scores = np.full(n_items, np.nan)
        scores[: len(codes)][codes <= RIGHT] = codes[codes <= RIGHT]
        if self.fractions is not None:
            chosen = codes == FRACTION
            scores[: len(codes)][chosen] = self.all_fractions[chosen]
        return scores

    def counts(self) -> dict[str, int]:
        """Number of answers by outcome."""
        found = np.bincount(np.frombuffer(self.codes, np.uint8), minlength=NOT_RUN + 1)
        counts = {outcome.value: int(found[code]) for outcome, code in CODE_OF.items()}
        return {Outcome.SCORED.value: int(found[: FRACTION + 1].sum()), **counts}

    def moved(self, columns: IntArray) -> "Sheet":
        """The same answers with item j in column `columns[j]`."""
        into = columns[: len(self.codes)]
        codes = np.full(int(into.max(initial=-1)) + 1, NOT_RUN, np.uint8)
        codes[into] = np.frombuffer(self.codes, np.uint8)
        if self.fractions is None:
            return Sheet.of_arrays(codes, None)
        fractions = np.zeros(len(codes))
        fractions[into] = self.all_fractions
        return Sheet.of_arrays(codes, fractions)

    def picked(self, columns: IntArray) -> "Sheet":
        """The answers in some columns, in the order of `columns`."""
        grown = Sheet(self.codes[:], None if self.fractions is None else self.fractions[:])
        grown.grow(int(columns.max(initial=-1)) + 1)
        fractions = None if self.fractions is None else grown.all_fractions[columns]
        return Sheet.of_arrays(np.frombuffer(grown.codes, np.uint8)[columns], fractions)

    def merge(self, other: "Sheet") -> "Merged":
        """Add the answers of `other` that are new on this sheet.

        A scored answer replaces one without a score; otherwise the present answer stays.
        """
        self.grow(len(other.codes))
        other.grow(len(self.codes))
        n_items = len(self.codes)
        mine = np.frombuffer(self.codes, np.uint8)
        theirs = np.frombuffer(other.codes, np.uint8)
        given, held = theirs != NOT_RUN, mine != NOT_RUN
        scored, was_scored = theirs < _UNSCORED, mine < _UNSCORED
        taken = given & (~held | (scored & ~was_scored))
        left = given & ~taken
        differs = self.scores(n_items) != other.scores(n_items)
        conflicts = left & scored & was_scored & differs
        merged = Merged(
            taken=int(taken.sum()),
            replaced=int((taken & held).sum()),
            duplicates=int((left & ~conflicts).sum()),
            conflicts=int(conflicts.sum()),
        )
        if other.fractions is not None or self.fractions is not None:
            fractions = np.where(taken, other.all_fractions, self.all_fractions)
            self.fractions = array("d", fractions.tobytes())
        self.codes = bytearray(np.where(taken, theirs, mine).tobytes())
        return merged


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of answers that were merged into a sheet.

    Attributes:
        taken: Answers written, including those that replaced an answer without a score.
        replaced: Answers written that replaced an answer without a score.
        duplicates: Answers skipped because the sheet had the same answer, or one with a score.
        conflicts: Answers skipped because the sheet had another score.
    """

    taken: int
    replaced: int
    duplicates: int
    conflicts: int


def code_of(outcome: Outcome, score: float | None) -> int:
    """The code of one answer."""
    if score is None:
        return CODE_OF[outcome]
    return int(score) if score in {0.0, 1.0} else FRACTION


def table_of(items: Sequence[str], sheets: Iterable[StoredSheet]) -> ResponseTable:
    """The scores of a response set, the mean over repeated answers; NaN where there is no score.

    Args:
        items: Item keys in order of position.
        sheets: Stored sheets; the trials of one examinee are adjacent.

    Raises:
        InvalidInputError: More cells than fit into memory.
    """
    trials: dict[str, list[StoredSheet]] = {}
    for stored in sheets:
        trials.setdefault(stored.examinee, []).append(stored)
    if len(trials) * len(items) > MAX_CELLS:
        raise InvalidInputError(
            f"Expected at most {MAX_CELLS:,} cells, got {len(trials):,} examinees x "
            f"{len(items):,} items."
        )
    scores = np.empty((len(trials), len(items)))  # filled in place to save half the memory
    for row, stored_trials in zip(scores, trials.values(), strict=True):
        sheets_of_one = [Sheet.of_stored(trial).scores(len(items)) for trial in stored_trials]
        row[:] = sheets_of_one[0] if len(sheets_of_one) == 1 else _mean(sheets_of_one)
    return ResponseTable(tuple(trials), tuple(items), scores)


def _mean(trials: Sequence[FloatArray]) -> FloatArray:
    stacked = np.vstack(trials)
    given = np.count_nonzero(~np.isnan(stacked), axis=0)
    means: FloatArray = np.where(
        given > 0, np.nansum(stacked, axis=0) / np.maximum(given, 1), np.nan
    )
    return means
