"""The interface of response models to calibration, and the result of a calibration. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logit
from typing_extensions import override

from app.calibration.filters import Filtered, filter_items
from app.calibration.fit.goodness import Goodness
from app.calibration.fit.held_out import Blind
from app.calibration.matrix import ScoreMatrix
from app.calibration.multidimensional.score_curves import learn_curves
from app.calibration.multidimensional.score_model import LEAST_ANSWERED
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.knowledge import CURVES, curves_to_dict
from app.engine.models.base import BoolArray, FloatArray, IntArray, ItemParameters
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids
from app.engine.responses import AnswerTable, ResponseTable

Report = Callable[[dict[str, Any]], None]
"""Callback with the progress: the phase and its figures."""
_HALF = 0.5  # half a right and half a wrong answer are added, as shares 0 and 1 have no logit
Columns = dict[str, FloatArray]
"""Figures of the items by name, each of shape (n_items,)."""
#: Columns of errors and of fit, which not every model has.
_OF_ESTIMATES = (
    *("se_a", "se_intercept", "se_b", "se_c", "se_d"),
    *("s_x2", "s_x2_df", "s_x2_p", "s_x2_rmsea"),
)
Matrix = TypeVar("Matrix", ScoreMatrix, ResponseTable)
#: Most tasks whose predicted scores get their own interval widths, and least items of such a task.
_MOST_TASKS, _LEAST_ITEMS = 12, 5


class ExamineeAbilities(NamedTuple):
    """Abilities of the examinees by all their answers, in the matrix's order."""

    theta: FloatArray
    """Weighted likelihood estimates, logits, shape (n_examinees,)."""
    se: FloatArray
    """Their standard errors, NaN where there is no information."""
    score: FloatArray
    """Mean scores over the answers given."""


class Fitted(NamedTuple):
    """The result of a calibration."""

    figures: dict[str, Any]
    """JSON without NaN."""
    columns: dict[str, FloatArray]
    """Parameters (a, intercept, c and d always), errors and fit of the items, NaN where unknown."""
    knowledge: dict[str, Any]
    """Knowledge of the bank version, as JSON."""
    abilities: ExamineeAbilities | None = None
    """Abilities of the examinees, if a report card was asked for."""

    def warned(self, warnings: Sequence[str]) -> "Fitted":
        """Add warnings before the result's own warnings."""
        if not warnings:
            return self
        told = [*warnings, *self.figures["warnings"]]
        return self._replace(figures={**self.figures, "warnings": told})


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

    def decided(self, matrix: Matrix, plan: CalibrationPlan) -> CalibrationPlan:
        """Decide by the answers what the plan leaves open."""
        del matrix
        return plan

    @abstractmethod
    def fit(self, matrix: Matrix, plan: CalibrationPlan, report: Report) -> Fitted:
        """Calibrate, and judge how well the model fits.

        Raises:
            CalibrationError: A matrix without information.
        """

    @abstractmethod
    def taught_by(
        self,
        matrix: Matrix,
        known: BoolArray,
        plan: CalibrationPlan,
        fitted: Fitted,
        bank: ItemBank,
    ) -> Blind:
        """Calibrate again from some examinees, so that the rest can be tested on the result.

        Args:
            matrix: Answers of all examinees.
            known: Which examinees are calibrated from, shape (n_examinees,).
            plan: Decided plan.
            fitted: The calibration from all examinees.
            bank: Its bank, from which come the items that `known` have no answers to.
        """

    def curves(self, matrix: Matrix, plan: CalibrationPlan) -> dict[str, Any]:
        """Knowledge that predicts scores; empty if no examinee has answered enough to learn it.

        With several abilities it is part of the fit, and this is empty.
        """
        found = self.learned_curves(matrix.answers(), plan)
        return {} if found is None else {CURVES: curves_to_dict(found, matrix.items)}

    def learned_curves(self, scores: FloatArray, plan: CalibrationPlan) -> LearnedCurves | None:
        """Score curves of some examinees; None if none has answered enough."""
        whole: FloatArray = scores[np.mean(~np.isnan(scores), axis=1) >= LEAST_ANSWERED]
        if not len(whole):
            return None
        return learn_curves(whole, np.random.default_rng(plan.seed))


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


def measuring(matrix: Matrix, plan: CalibrationPlan) -> BoolArray:
    """Which items say enough about ability to be calibrated; the others count in scores alone."""
    if not plan.filters.keep_for_score:  # the filters have removed the other items
        return np.ones(matrix.n_items, dtype=np.bool_)
    return filter_items(matrix, plan.filters)[0]


def measured(matrix: Matrix, plan: CalibrationPlan) -> Matrix:
    """Answers to the items of `measuring`, of the examinees who answered some of them."""
    items = measuring(matrix, plan)
    if items.all():
        return matrix
    part = matrix.select(items=items)
    return part.select(examinees=part.answers_per_examinee() > 0)


def replaced(bank: ItemBank, items: Sequence[str], found: ItemParameters) -> ItemBank:
    """Replace the parameters of the items `items`; the other items of the bank keep theirs."""
    at = [bank.index_of(item) for item in items]
    columns = {name: values.copy() for name, values in bank.columns.items()}
    for name, values in columns.items():
        values[at] = getattr(found, name)
    return ItemBank.from_columns(bank.item_ids, columns)


def flat_curves(table: AnswerTable, dispersion: float = 1.0) -> ItemParameters:
    """Curves of the items without a slope, at the mean score.

    These items say too little about ability to measure it, by a filter. An estimated slope would
    reflect chance or the prior. Many such items together would bias the theta of examinees unlike
    the reference models.

    Args:
        table: Answers to these items, at least one to each.
        dispersion: Dispersion k of continuous scores.

    Returns:
        Parameters in the same order, which are the same on any theta scale.
    """
    n_answers = table.answers_per_item()
    share = (table.item_means() * n_answers + _HALF) / (n_answers + 2 * _HALF)
    zeros, ones = np.zeros(share.size), np.ones(share.size)
    return ItemParameters(zeros, logit(share), zeros, ones, dispersion * ones)


def placed(columns: Mapping[str, FloatArray], at: BoolArray | IntArray, n_items: int) -> Columns:
    """Columns of all items by those of some, which are `at`; NaN for the others."""
    found = {name: np.full(n_items, np.nan) for name in columns}
    for name, values in columns.items():
        found[name][at] = values
    return found


def with_others(columns: Columns, inside: BoolArray, curves: ItemParameters) -> Columns:
    """Columns of all items; those `inside` are calibrated, the others have parameters alone."""
    found = placed(columns, inside, inside.size)
    for name in found.keys() & set(curves._fields):
        found[name][~inside] = getattr(curves, name)
    return found


def examined(columns: Mapping[str, FloatArray], n_items: int) -> Columns:
    """The columns, and behind them those of errors and fit that the model lacks, all NaN."""
    unknown = np.full(n_items, np.nan)
    return {**columns, **{name: unknown for name in _OF_ESTIMATES if name not in columns}}


def unexamined(m2_missing: str, **fit: object) -> dict[str, Any]:
    """Figures of a model that has no M2, no link and no comparison of families."""
    unknown = Goodness(m2=None, m2_missing=m2_missing).to_dict()
    return {
        "guessing_sd": None,
        "fit": {**unknown, "verdict": "unknown", **fit},
        "local_dependence": None,
        "comparison": [],
        "link": None,
    }
