"""The interface of response models to calibration: every step in which they differ. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from typing_extensions import override

from app.calibration.filters import Filtered
from app.calibration.fit.held_out import Blind
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.curve_errors import RANDOM, hold_outs, learn_curves
from app.calibration.multidimensional.score_intervals import LEAST_ANSWERED, LEAST_EXAMINEES
from app.calibration.pipeline.fitted import Fitted, Report
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.knowledge import CURVES, curves_to_dict
from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids
from app.engine.responses import ResponseTable

Matrix = TypeVar("Matrix", ScoreMatrix, ResponseTable)
#: Most tasks whose predicted scores get their own interval widths, and least items of such a task.
_MOST_TASKS, _LEAST_ITEMS = 12, 5


class Calibrator(ABC, Generic[Matrix]):
    """How banks of one response model are calibrated; it holds no data of any bank.

    `Matrix` is the type of the answers: a `ScoreMatrix` of right and wrong answers, or a
    `ResponseTable` of scores from 0 (worst) to 1 (best).
    """

    dtype: ClassVar[type[np.generic]]
    """NumPy type of the scores in the matrix."""

    @abstractmethod
    def matrix(
        self, scores: ArrayLike, *, examinees: Sequence[str], items: Sequence[str]
    ) -> Matrix:
        """The matrix of these scores, shape (n_examinees, n_items)."""

    @abstractmethod
    def prepared(self, table: ResponseTable, plan: CalibrationPlan) -> Filtered[Matrix]:
        """Filter the answers; the result also lists what was dropped.

        Raises:
            InvalidInputError: A score outside the model's values.
            CalibrationError: Answers from which nothing can be estimated.
        """

    @abstractmethod
    def decided(self, matrix: Matrix, plan: CalibrationPlan) -> CalibrationPlan:
        """Decide by the answers what the plan leaves open."""

    @abstractmethod
    def fit(self, matrix: Matrix, plan: CalibrationPlan, report: Report) -> Fitted:
        """Calibrate, and judge how well the model fits.

        Raises:
            CalibrationError: A matrix without information.
        """

    @abstractmethod
    def without(
        self,
        matrix: Matrix,
        others: BoolArray,
        plan: CalibrationPlan,
        fitted: Fitted,
        bank: ItemBank,
    ) -> Blind:
        """Calibrate again from some examinees, so that the rest can be tested on the result.

        Args:
            matrix: Answers of all examinees.
            others: Which examinees are calibrated from, shape (n_examinees,).
            plan: Decided plan.
            fitted: The calibration from all examinees.
            bank: Its bank, from which come the items that `others` have no answers to.
        """

    def curves(self, matrix: Matrix, plan: CalibrationPlan) -> dict[str, Any]:
        """Knowledge that predicts scores; empty if no examinee has answered enough to learn it.

        With several abilities it is part of the fit, and this is empty.
        """
        found = self.learned_curves(matrix.answers(), None, matrix, plan)
        return {} if found is None else {CURVES: curves_to_dict(found, matrix.items)}

    def learned_curves(
        self,
        scores: FloatArray,
        names: Sequence[str] | None,
        matrix: Matrix,
        plan: CalibrationPlan,
    ) -> LearnedCurves | None:
        """Score curves of some examinees for the scores `names`; None means all reported scores."""
        whole: FloatArray = scores[np.mean(~np.isnan(scores), axis=1) >= LEAST_ANSWERED]
        if not len(whole):
            return None
        targets = task_targets(matrix.items)
        wanted = {name: targets[name] for name in names or targets}
        return learn_curves(whole, wanted, np.random.default_rng(plan.seed))

    def shifted(self, matrix: Matrix, plan: CalibrationPlan) -> list[tuple[IntArray, IntArray]]:
        """The strongest and the weakest examinees, to be tested on banks calibrated without them.

        With several abilities there are none: `learn_curves` itself tests score curves on such
        hold-outs, and theta is not tested so.
        """
        if matrix.n_examinees < LEAST_EXAMINEES:
            return []
        found = hold_outs(matrix.answers(), np.random.default_rng(plan.seed))
        return [(held.known, held.tested) for held in found if held.name != RANDOM]


class BinaryCalibrator(Calibrator[ScoreMatrix]):
    """Base of the calibrators of right and wrong answers."""

    dtype = np.uint8

    @override
    def matrix(
        self, scores: ArrayLike, *, examinees: Sequence[str], items: Sequence[str]
    ) -> ScoreMatrix:
        return ScoreMatrix.of(scores, examinees=examinees, items=items)


def task_targets(items: tuple[str, ...]) -> dict[str, FloatArray]:
    """Item weights of the whole bank's score and of each task's score, tasks named by item ids."""
    n = len(items)
    targets = {WHOLE_BANK: np.full(n, 1.0 / n)}
    tags = tags_in_ids(items)
    counted: dict[str, int] = {}
    for item in tags:
        for tag in item:
            counted[tag] = counted.get(tag, 0) + 1
    usual = sorted(
        (tag for tag, count in counted.items() if _LEAST_ITEMS <= count < n and tag != WHOLE_BANK),
        key=lambda tag: -counted[tag],
    )
    for tag in usual[:_MOST_TASKS]:
        weights = np.array([float(tag in item) for item in tags])
        targets[tag] = weights / weights.sum()
    return targets
