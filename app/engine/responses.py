"""Scores of many examinees on many items, as plain values."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, eq=False)
class AnswerTable(ABC):
    """Answers of examinees (rows) to items (columns).

    Attributes:
        examinees: Names of the rows.
        items: Ids of the columns.
        scores: Scores, shape (n_examinees, n_items), read-only.
    """

    examinees: tuple[str, ...]
    items: tuple[str, ...]
    scores: NDArray[Any]

    @property
    @abstractmethod
    def answered(self) -> BoolArray:
        """Mask of the given answers, shape (n_examinees, n_items)."""

    @abstractmethod
    def answers(self, examinees: IntArray | slice = slice(None)) -> FloatArray:
        """Scores of the examinees at some positions as floats, NaN where there is no answer."""

    @abstractmethod
    def totals(self, axis: int) -> FloatArray | IntArray:
        """Sums of the given scores of each item (axis 0) or of each examinee (axis 1)."""

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
        """Number of given answers."""
        return int(np.count_nonzero(self.answered))

    def answers_per_item(self) -> IntArray:
        """Number of given answers to each item, shape (n_items,)."""
        counts: IntArray = np.count_nonzero(self.answered, axis=0)
        return counts

    def answers_per_examinee(self) -> IntArray:
        """Number of given answers of each examinee, shape (n_examinees,)."""
        counts: IntArray = np.count_nonzero(self.answered, axis=1)
        return counts

    def item_means(self) -> FloatArray:
        """Mean of the given scores of each item, shape (n_items,); NaN without answers."""
        return _ratio(self.totals(0), self.answers_per_item())

    def examinee_means(self) -> FloatArray:
        """Mean of the given scores of each examinee, shape (n_examinees,); NaN without any."""
        return _ratio(self.totals(1), self.answers_per_examinee())

    def select(
        self,
        examinees: IntArray | BoolArray | None = None,
        items: IntArray | BoolArray | None = None,
    ) -> Self:
        """Select rows and columns by position or mask."""
        rows = np.arange(self.n_examinees)[slice(None) if examinees is None else examinees]
        columns = np.arange(self.n_items)[slice(None) if items is None else items]
        part = self.scores[np.ix_(rows, columns)]
        part.flags.writeable = False
        return replace(
            self,
            examinees=tuple(self.examinees[i] for i in rows),
            items=tuple(self.items[j] for j in columns),
            scores=part,
        )


@dataclass(frozen=True, slots=True, eq=False)
class ResponseTable(AnswerTable):
    """Scores of examinees on items; NaN where there is no answer.

    Raises:
        InvalidInputError: The shape does not fit the names, or a name occurs twice.
    """

    scores: FloatArray

    def __post_init__(self) -> None:
        expected = (len(self.examinees), len(self.items))
        if self.scores.shape != expected:
            raise InvalidInputError(
                f"Scores need shape {expected} (examinees, items), got {self.scores.shape}."
            )
        require_unique("examinee", self.examinees)
        require_unique("item", self.items)
        self.scores.flags.writeable = False

    @property
    @override
    def answered(self) -> BoolArray:
        return ~np.isnan(self.scores)

    @override
    def answers(self, examinees: IntArray | slice = slice(None)) -> FloatArray:
        return self.scores[examinees]

    @override
    def totals(self, axis: int) -> FloatArray:
        total: FloatArray = np.where(self.answered, self.scores, 0.0).sum(axis=axis)
        return total


def require_unique(kind: str, names: Sequence[str]) -> None:
    """Refuse a name that occurs twice.

    Raises:
        InvalidInputError: There is one.
    """
    if len(set(names)) < len(names):
        (twice, _), *_ = Counter(names).most_common(1)
        raise InvalidInputError(f"The {kind} {twice!r} occurs twice.")


def _ratio(part: FloatArray | IntArray, whole: IntArray) -> FloatArray:
    means: FloatArray = np.where(whole > 0, part / np.maximum(whole, 1), np.nan)
    return means
