"""The report card of a bank: how well short tests on it do for examinees it has not seen.

Examinees held out of the calibration, `app.calibration.fit.held_out`, are tested by designs.
What is reported is out of sample throughout: the corrected intervals of one half of the tested are
learned from the other half.

The truth is what an examinee's whole record gives on that bank: its weighted likelihood estimate of
theta and its mean score; see `app.engine.prediction.correction`. Of several abilities theta is the
main one, estimated by MAP; scores are predicted as the others' records taught, that of the whole
bank and that of each tag; and what is corrected is theta and p-IRT, for intervals of the score
model were learned from records left out already.
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

#: Tests on random items, so many, that the others are compared with.
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
#: Each half must teach the other.
FEWEST_EXAMINEES = 2 * LEAST_EXAMINEES


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """How the predicted score of one tag did.

    Attributes:
        n_examinees: With an answer to any of its items.
        mae: Mean absolute error.
        coverage95: Share of the 95 % intervals that hold the score of the whole record.
    """

    n_examinees: int
    mae: float
    coverage95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """How one design did.

    Attributes:
        design: Its name: one of `DESIGNS`, or of several abilities `score_8` and so on by number of
            answers, `ability`, `random`.
        se_target: The standard error that it stops at; None where it stops at none.
        summary: Errors, coverage, use of the bank.
        tasks: Of several abilities: the predicted score of each tag.
        theta_ies: Information efficiency score of theta (ATLAS, eq. 4): this design's MAE over that
            of 100 random items, times its items over 100. Lower is better, 1 no better than random
            items; None where the bank has no more than 100 items, all of which would be asked, and
            for the random items themselves.
        accuracy_ies: The same of the score.
    """

    design: str
    se_target: float | None
    summary: Summary
    theta_ies: float | None = None
    accuracy_ies: float | None = None
    tasks: Mapping[str, TaskFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCard:
    """How well short tests on a bank do.

    Attributes:
        n_examinees: Held out and tested.
        n_folds: Calibrations that they were held out of.
        reference: What theta was compared with.
        rows: One per design.
    """

    n_examinees: int
    n_folds: int
    reference: str
    rows: tuple[CardRow, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "n_examinees": self.n_examinees,
            "n_folds": self.n_folds,
            "reference": self.reference,
            "rows": [
                {
                    "design": row.design,
                    "se_target": row.se_target,
                    **asdict(row.summary),
                    "theta_ies": row.theta_ies,
                    "accuracy_ies": row.accuracy_ies,
                    "tasks": {tag: asdict(figures) for tag, figures in row.tasks.items()},
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """A design that is tried, and when its tests are looked at.

    Attributes:
        looks: Name of a row to number of answers; None is the end.
    """

    design: Design
    looks: Mapping[str, int | None]


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Tests by one design after some number of answers, beside what is true."""

    taken: list[Taken] = field(default_factory=list)
    thetas: list[float] = field(default_factory=list)
    tasks: dict[str, list[tuple[Prediction, float]]] = field(default_factory=dict)


def report_card(held: HeldOut, seed: int = 0) -> ReportCard:
    """How well tests did of examinees held out of the calibration.

    Args:
        held: The examinees.
        seed: Of all chance.

    Raises:
        InvalidInputError: Fewer than 40 examinees, too few for one half to teach the other.
    """
    if held.n_examinees < FEWEST_EXAMINEES:
        raise InvalidInputError(
            f"A report card takes at least {FEWEST_EXAMINEES} examinees, got {held.n_examinees}."
        )
    bank = held.folds[0].blind.bank
    of_others = [held.correction(half) for half in (0, 1)]
    rows: dict[str, CardRow] = {}
    for trial in _trials(bank):
        for name, look in _tested(trial, held.folds, of_others, seed).items():
            rows[name] = CardRow(
                design=name,
                se_target=trial.design.stopping.se if bank.abilities is None else None,
                summary=summarise(look.taken, look.thetas, trial.design.build(bank)),
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
            yield _Trial(design=design, looks={name: None})
        return
    lengths = lengths_on(bank)
    yield _Trial(design=FOR_SCORE.open_ended(lengths[-1]), looks={f"score_{n}": n for n in lengths})
    yield _Trial(design=FOR_ABILITY, looks={"ability": None})
    yield _Trial(design=DESIGNS["random"], looks={"random": None})


def _tested(
    trial: _Trial, folds: Sequence[Fold], corrections: list[IntervalCorrection], seed: int
) -> dict[str, _Look]:
    """Every examinee tested, each half with the correction given for it."""
    found = {name: _Look() for name in trial.looks}
    for fold in folds:
        for half, correction in enumerate(corrections):
            test = trial.design.build(
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
                for name, length in trial.looks.items():
                    at = next((state for state in passed if state.n_scored == length), end)
                    found[name].taken.append(judge(test, scores, at, stop))
                    found[name].thetas.append(float(fold.thetas[row]))
                    for tag, told in _task_predictions(test, fold.blind, at, scores):
                        found[name].tasks.setdefault(tag, []).append(told)
    return found


def _task_predictions(
    test: AdaptiveTest, blind: Blind, state: CatState, scores: FloatArray
) -> Iterator[tuple[str, tuple[Prediction, float]]]:
    """The predicted score of each tag, and what it really is, over the items with an answer."""
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
