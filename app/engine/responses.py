"""Scores of many examinees on many items, as plain values."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, IntArray
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class ResponseTable:
    """Scores of examinees on items.

    Attributes:
        examinees: Name of each row's examinee.
        items: Id of each column's item.
        scores: Scores, shape (n_examinees, n_items), read-only; NaN where there is no answer.

    Raises:
        InvalidInputError: The shape does not fit the names, or a name occurs twice.
    """

    examinees: tuple[str, ...]
    items: tuple[str, ...]
    scores: FloatArray

    def __post_init__(self) -> None:
        expected = (len(self.examinees), len(self.items))
        if self.scores.shape != expected:
            raise InvalidInputError(
                f"Scores need shape {expected} (examinees, items), got {self.scores.shape}."
            )
        for what, names in (("examinee", self.examinees), ("item", self.items)):
            if len(set(names)) < len(names):
                (twice, _), *_ = Counter(names).most_common(1)
                raise InvalidInputError(f"The {what} {twice!r} occurs twice.")
        self.scores.flags.writeable = False

    @property
    def n_examinees(self) -> int:
        """Number of rows."""
        return len(self.examinees)

    @property
    def n_items(self) -> int:
        """Number of columns."""
        return len(self.items)

    @property
    def n_answers(self) -> int:
        """Number of scores that are not missing."""
        return int(np.count_nonzero(~np.isnan(self.scores)))

    def answers(self, examinees: IntArray | slice = slice(None)) -> FloatArray:
        """Scores of some examinees, by position."""
        return self.scores[examinees]
