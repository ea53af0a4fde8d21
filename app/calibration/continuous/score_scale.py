"""What the scores of a response table mean: their range and which end is the better one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.models.base import FloatArray
from app.errors import FieldProblem, InvalidInputError

_MAX_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreScale:
    """What scores mean.

    Attributes:
        lo: The lowest score there is.
        hi: The highest.
        lower_is_better: The best score is `lo`.

    Raises:
        InvalidInputError: Not lo < hi, both finite.
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
        """Scores from 0, the worst, to 1, the best; NaN stays missing.

        Args:
            scores: Shape (n_examinees, n_items).
            examinees: Names of the rows.
            items: Ids of the columns.

        Raises:
            InvalidInputError: A score off the scale; each is listed by row and column, up to a cap.
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
