"""The scale of the scores in a response table: their range, and which end is better."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.models.base import FloatArray
from app.errors import FieldProblem, InvalidInputError

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """Range of scores, and which end is better.

    Attributes:
        lo: Lowest possible score.
        hi: Highest possible score.
        lower_is_better: Whether `lo` is the best score.

    Raises:
        InvalidInputError: `lo` is not below `hi`, or one of them is not finite.
    """

    lo: float = 0.0
    hi: float = 1.0
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        if not (np.isfinite([self.lo, self.hi]).all() and self.lo < self.hi):
            raise InvalidInputError(
                f"A scale of scores needs lo < hi, both finite, got {self.lo:g} and {self.hi:g}."
            )

    def unit(
        self, scores: FloatArray, examinees: Sequence[str], items: Sequence[str]
    ) -> FloatArray:
        """Scores rescaled to run from 0, the worst, to 1, the best; NaN stays NaN.

        Args:
            scores: Shape (n_examinees, n_items).
            examinees: Names of the rows.
            items: Ids of the columns.

        Raises:
            InvalidInputError: Scores off the scale; up to 20 are listed by row and column.
        """
        off = (scores < self.lo) | (scores > self.hi)
        if off.any():
            places = np.argwhere(off)
            i, j = places[0]
            more = f" ({len(places)} such scores)" if len(places) > 1 else ""
            raise InvalidInputError(
                f"Expected scores from {self.lo:g} to {self.hi:g}, got {scores[i, j]:g} for "
                f"examinee {examinees[i]!r} (row {i + 1}), item {items[j]!r} (column {j + 1})"
                f"{more}.",
                problems=[
                    FieldProblem(f"/{examinees[i]}/{items[j]}", f"score {scores[i, j]:g}")
                    for i, j in places[:_MAX_PROBLEMS]
                ],
            )
        share: FloatArray = (scores - self.lo) / (self.hi - self.lo)
        return 1 - share if self.lower_is_better else share
