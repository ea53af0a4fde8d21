"""The report card of a bank: accuracy of short tests for examinees outside the calibration.

Held-out examinees (`app.calibration.fit.held_out`) are tested by several designs. All figures are
out of sample: the interval correction of one half of these examinees is learned from the other.

The truth comes from an examinee's whole record on the same bank: the weighted likelihood estimate
of theta, and the mean score (`app.engine.prediction.correction`). With several abilities, theta is
the main ability, estimated by MAP. The score model, learned from the other examinees, predicts the
scores of the whole bank and of each tag. Only intervals of theta and of p-IRT are corrected there,
as those of the score model are already learned from left-out records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from app.calibration.fit.held_out import FOR_ABILITY, FOR_SCORE, Blind, Fold, HeldOut, lengths_on
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.design.design import Design
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.p_irt import Prediction
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.simulation.learning import LEAST_EXAMINEES
from app.engine.simulation.simulate import Summary, Taken, coverage, judge, summarise, take
from app.engine.state import CatState
from app.errors import InvalidInputError

#: Number of items of the random tests with which the other designs are compared.
RANDOM_ITEMS = 100
#: The designs of a card by name.
DESIGNS: Mapping[str, Design] = {
    "score": FOR_SCORE,
    "ability": FOR_ABILITY,
    **{
        f"se_{target:g}": Design.from_dict(
            {"stopping": {"se": target, "min_items": 5, "max_items": LONGEST}}
        )
        for target in (0.3, 0.2, 0.1)
    },
    "random": Design.from_dict(
        {
            "preset": "ability",
            "selection": {"criterion": "random"},
            "stopping": {"se": None, "max_items": RANDOM_ITEMS},
        }
    ),
}
#: Each half must be large enough for the correction of the other half.
FEWEST_EXAMINEES = 2 * LEAST_EXAMINEES


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """Accuracy of the predicted score of one tag.

    Attributes:
        n_examinees: Number of examinees with an answer to any item of the tag.
        mae: Mean absolute error of the predicted score.
        coverage95: Share of the 95 % intervals that contain the score of the whole record.
    """

    n_examinees: int
    mae: float
    coverage95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """Accuracy of one design.

    Attributes:
        design: Name of the design: one of `DESIGNS`, or, with several abilities, `ability`,
            `random`, or `score_8` and so on by number of answers.
        se_target: Standard error at which the design stops; None if it does not stop at one.
        summary: Errors, coverage and use of the bank.
        tasks: Accuracy of each tag's predicted score, with several abilities.
        theta_ies: Information efficiency score of theta (ATLAS, eq. 4): (MAE / MAE of 100 random
            items) times (items / 100). Lower is better, and 1 is no better than random items. None
            if the bank has no more than 100 items, and for the random design itself.
        accuracy_ies: Information efficiency score of the predicted score.
    """

    design: str
    se_target: float | None
    summary: Summary
    theta_ies: float | None = None
    accuracy_ies: float | None = None
    tasks: Mapping[str, TaskFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCard:
    """Accuracy of short tests on a bank.

    Attributes:
        n_examinees: Number of held-out examinees that were tested.
        n_folds: Number of folds, each with a calibration of its own.
        reference: Name of the estimate of theta that is taken as the truth.
    """

    n_examinees: int
    n_folds: int
    reference: str
    rows: tuple[CardRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """Write as JSON; a row has the figures of its summary beside its own."""
        rows = [asdict(row) for row in self.rows]
        return {**asdict(self), "rows": [{**row.pop("summary"), **row} for row in rows]}


#: A design, and by name of a card's row the number of answers at which its tests are evaluated;
#: None is the end of the test.
_Trial = tuple[Design, Mapping[str, int | None]]


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Tests of one design after some number of answers, with the true values."""

    taken: list[Taken] = field(default_factory=list)
    thetas: list[float] = field(default_factory=list)
    tasks: dict[str, list[tuple[Prediction, float]]] = field(default_factory=dict)


def report_card(held: HeldOut, seed: int = 0) -> ReportCard:
    """Test held-out examinees by all designs and summarise the accuracy.

    Raises:
        InvalidInputError: Fewer than 40 examinees, as each half needs 20 for the correction.
    """
    if held.n_examinees < FEWEST_EXAMINEES:
        raise InvalidInputError(
            f"A report card needs at least {FEWEST_EXAMINEES} examinees, got {held.n_examinees}."
        )
    bank = held.folds[0].blind.bank
    of_others = [held.correction(half) for half in (0, 1)]
    rows: dict[str, CardRow] = {}
    for design, looks in _trials(bank):
        for name, look in _tested(design, looks, held.folds, of_others, seed).items():
            rows[name] = CardRow(
                design=name,
                se_target=design.stopping.se if bank.abilities is None else None,
                summary=summarise(look.taken, look.thetas, design.build(bank)),
                tasks={tag: _figures(told) for tag, told in look.tasks.items()},
            )
    random = rows["random"].summary
    return ReportCard(
        n_examinees=held.n_examinees,
        n_folds=len(held.folds),
        reference="whole-bank wle" if bank.abilities is None else "whole-bank map",
        rows=tuple(
            row if name == "random" else _with_efficiency(row, random, bank.n_items)
            for name, row in rows.items()
        ),
    )


def _trials(bank: ItemBank) -> Iterator[_Trial]:
    if bank.abilities is None:
        for name, design in DESIGNS.items():
            yield design, {name: None}
        return
    lengths = lengths_on(bank)
    yield FOR_SCORE.open_ended(lengths[-1]), {f"score_{n}": n for n in lengths}
    yield FOR_ABILITY, {"ability": None}
    yield DESIGNS["random"], {"random": None}


def _tested(
    design: Design,
    looks: Mapping[str, int | None],
    folds: Sequence[Fold],
    corrections: list[IntervalCorrection],
    seed: int,
) -> dict[str, _Look]:
    """Test every examinee, with the correction for the examinee's half."""
    found = {name: _Look() for name in looks}
    for fold in folds:
        for half, correction in enumerate(corrections):
            test = design.build(
                fold.blind.bank,
                correction=correction,
                targets=fold.blind.targets,
                curves=fold.blind.curves,
            )
            rows = np.flatnonzero(fold.half == half)
            for i, row in enumerate(rows):
                scores = fold.scores[row]
                passed: list[CatState] = []
                end, stop = take(test, scores, seed=[seed, i], watch=passed.append)
                for name, length in looks.items():
                    at = next((state for state in passed if state.n_scored == length), end)
                    found[name].taken.append(judge(test, scores, at, stop))
                    found[name].thetas.append(float(fold.thetas[row]))
                    for tag, told in _task_predictions(test, fold.blind, at, scores):
                        found[name].tasks.setdefault(tag, []).append(told)
    return found


def _task_predictions(
    test: AdaptiveTest, blind: Blind, state: CatState, scores: FloatArray
) -> Iterator[tuple[str, tuple[Prediction, float]]]:
    """Predicted and true score of each tag, over the items with an answer."""
    unknown = np.isnan(scores)
    for tag, target in blind.targets.items():
        weights = np.where(unknown, 0.0, target.weights)
        if tag == WHOLE_BANK or not weights.any():
            continue
        told = test.tasks[tag].predict(
            test.bank, state.responses, state.belief, np.flatnonzero(unknown).tolist()
        )
        true = float(weights @ np.where(unknown, 0.0, scores) / weights.sum())
        yield tag, (told, true)


def _figures(told: list[tuple[Prediction, float]]) -> TaskFigures:
    return TaskFigures(
        n_examinees=len(told),
        mae=float(np.mean([abs(one.value - true) for one, true in told])),
        coverage95=coverage([(one.lo, one.hi) for one, _ in told], [true for _, true in told]),
    )


def _with_efficiency(row: CardRow, random: Summary, n_items: int) -> CardRow:
    if n_items <= RANDOM_ITEMS:
        return row
    asked = row.summary.items_mean / random.items_mean

    def efficiency(mae: float, of_random: float) -> float | None:
        return mae / of_random * asked if of_random > 0.0 else None

    return replace(
        row,
        theta_ies=efficiency(row.summary.theta_mae, random.theta_mae),
        accuracy_ies=efficiency(row.summary.accuracy_mae, random.accuracy_mae),
    )
