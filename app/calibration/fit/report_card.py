"""The report card of a bank: how well short tests on it do for examinees it has not seen.

Examinees are held out of the calibration, fold by fold: the bank is calibrated from the others and
those held out are tested on it, answered from their own records, by several designs. What is
reported is out of sample throughout: the corrected intervals of one half of the tested are learned
from the other half, and the correction that goes with the bank version from all of them. By how
much intervals must grow beyond those calibrated is learned from tests of the strongest and of the
weakest, on banks calibrated without them.

The truth is what an examinee's whole record gives on that bank: its weighted likelihood estimate of
theta and its mean score; see `app.engine.prediction.correction`. Of several abilities theta is the
main one, estimated by MAP; scores are predicted as the others' records taught, that of the whole
bank and that of each tag; and what is corrected is theta and p-IRT, for intervals of the score
model were learned from records left out already.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.design.design import Design
from app.engine.design.parts import PredictionDesign, PredictionMethod
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.combined_score import LearnedCurves
from app.engine.prediction.correction import LONGEST, IntervalCorrection, VersionLearning
from app.engine.prediction.p_irt import Prediction
from app.engine.prediction.score_model import Target
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.simulation.learning import (
    LEAST_EXAMINEES,
    Glimpse,
    Shifted,
    glimpses,
    learn_correction,
)
from app.engine.simulation.simulate import Summary, Taken, coverage, judge, summarise, take
from app.engine.state import CatState
from app.errors import InvalidInputError

#: Tests on random items, so many, that the others are compared with.
RANDOM_ITEMS = 100
#: The designs of a card by name.
DESIGNS: Mapping[str, Design] = {
    **{
        f"se_{target:g}": Design.from_dict(
            {"stopping": {"se": target, "min_items": 5, "max_items": LONGEST}}
        )
        for target in (0.3, 0.2, 0.1)
    },
    "default": Design.from_dict({}),
    "random": Design.from_dict(
        {
            "selection": {"criterion": "random"},
            "stopping": {"se": None, "max_items": RANDOM_ITEMS},
        }
    ),
}
#: Of several abilities: a test for the whole bank's score is looked at after so many answers.
LENGTHS = (8, 16, 32, 64)
#: Of several abilities, and for the score of one.
FOR_SCORE = Design.from_dict({"selection": {"criterion": "v_optimal"}})
#: A fifth is held out at a time, until so many are: small sets are held out in turn, of a large one
#: a part is enough.
FOLDS, MOST_EXAMINEES = 5, 300
#: Of several abilities, whose tests take some three times as long.
MOST_OF_SEVERAL = 150
#: Of those held out to be unlike the others: tested, calibrated from at most, and of these located.
_MOST_SHIFTED, _MOST_KNOWN, _MOST_LOCATED = 20, 1000, 200
#: Each half must teach the other.
FEWEST_EXAMINEES = 2 * LEAST_EXAMINEES


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blind:
    """What is known without some examinees.

    Attributes:
        bank: Calibrated from the others, the items the same.
        targets: Scores that a score model of the others predicts, by tag; of several abilities.
        curves: What predicts scores by the others' records; None where nothing was learned.
    """

    bank: ItemBank
    targets: Mapping[str, Target] = field(default_factory=dict)
    curves: LearnedCurves | None = None


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
        design: Its name: one of `DESIGNS`, or of several abilities `default`, `v_optimal_8` and so
            on by number of answers, `random`.
        se_target: The standard error that it stops at; None where it stops at none.
        summary: Errors, coverage, use of the bank.
        tasks: Of several abilities: the predicted score of each tag.
        ies: Item efficiency: 100 random items times their theta MAE, divided by this design's items
            times its theta MAE. 1 is no better than random items; None where the bank has no more
            than 100 items, all of which would be asked, and for the random items themselves.
    """

    design: str
    se_target: float | None
    summary: Summary
    ies: float | None
    tasks: Mapping[str, TaskFigures] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCard:
    """How well short tests on a bank do, and what makes their intervals hold.

    Attributes:
        n_examinees: Held out and tested.
        n_folds: Calibrations that they were held out of.
        reference: What theta was compared with.
        rows: One per design.
        correction: For the bank's version, learned from all of them.
    """

    n_examinees: int
    n_folds: int
    reference: str
    rows: tuple[CardRow, ...]
    correction: IntervalCorrection

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the correction is left out, for it goes with the version."""
        return {
            "n_examinees": self.n_examinees,
            "n_folds": self.n_folds,
            "reference": self.reference,
            "rows": [
                {
                    "design": row.design,
                    "se_target": row.se_target,
                    **asdict(row.summary),
                    "ies": row.ies,
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
class _Fold:
    """Examinees, and what is known without them.

    Attributes:
        scores: Their records, shape (n_examinees, n_items).
        thetas: Of their whole records, shape (n_examinees,).
        half: 0 or 1 for each, shape (n_examinees,).
        seen: Their tests on the way, numbered through all folds.
    """

    blind: Blind
    scores: FloatArray
    thetas: FloatArray
    half: IntArray
    seen: tuple[Glimpse, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Look:
    """Tests by one design after some number of answers, beside what is true."""

    taken: list[Taken] = field(default_factory=list)
    thetas: list[float] = field(default_factory=list)
    tasks: dict[str, list[tuple[Prediction, float]]] = field(default_factory=dict)


def report_card(
    scores_of: Callable[[IntArray], FloatArray],
    without: Callable[[IntArray], Blind],
    n_examinees: int,
    *,
    curves_without: Callable[[IntArray], LearnedCurves | None] | None = None,
    shifted: Sequence[tuple[IntArray, IntArray]] = (),
    seed: int = 0,
) -> ReportCard:
    """Test examinees on banks that were calibrated without them.

    Args:
        scores_of: Records of some examinees by position, shape (n_rows, n_items), NaN where there
            is no answer, each with at least one answer.
        without: What all examinees but some teach.
        n_examinees: How many there are.
        curves_without: What predicts scores by the records of all examinees but some, where
            `without` does not bring it.
        shifted: Of one ability: those known to a bank, and others, unlike them, to test on it.
        seed: Deals the examinees to folds.

    Raises:
        InvalidInputError: Fewer than 40 examinees, too few for one half to teach the other.
    """
    if n_examinees < FEWEST_EXAMINEES:
        raise InvalidInputError(
            f"A report card takes at least {FEWEST_EXAMINEES} examinees, got {n_examinees}."
        )
    order = np.random.default_rng(seed).permutation(n_examinees)
    folds: list[_Fold] = []
    number_of: dict[int, int] = {}
    n_tested = 0
    for number in range(FOLDS):
        held_out = np.sort(order[number::FOLDS])
        blind = without(held_out)
        if blind.curves is None and curves_without is not None:
            blind = replace(blind, curves=curves_without(held_out))
        most = MOST_EXAMINEES if blind.bank.abilities is None else MOST_OF_SEVERAL
        tested = held_out[: most - n_tested]
        folds.append(_fold(blind, scores_of(tested), n_tested, seed))
        number_of |= {row: n_tested + i for i, row in enumerate(tested.tolist())}
        n_tested += len(tested)
        if n_tested >= most:
            break
    bank = folds[0].blind.bank
    seen = [one for fold in folds for one in fold.seen]
    beyond: list[Shifted] = []
    known: FloatArray | None = None
    if bank.abilities is None:
        known = np.concatenate([fold.thetas for fold in folds])
        everybody = np.arange(n_examinees)
        beyond = [
            _shifted(held, everybody, without, scores_of, number_of, seed) for held in shifted
        ]
    of_others = [_learned(seen, known, beyond, half) for half in (0, 1)]
    rows: dict[str, CardRow] = {}
    for trial in _trials(bank):
        for name, look in _tested(trial, folds, of_others, seed).items():
            rows[name] = CardRow(
                design=name,
                se_target=trial.design.stopping.se if bank.abilities is None else None,
                summary=summarise(look.taken, look.thetas, trial.design.build(bank)),
                ies=None,
                tasks={tag: _figures(told) for tag, told in look.tasks.items()},
            )
    random = rows["random"].summary
    return ReportCard(
        n_examinees=n_tested,
        n_folds=len(folds),
        reference="whole-bank wle" if bank.abilities is None else "whole-bank map",
        rows=tuple(
            row
            if name == "random"
            else replace(row, ies=_efficiency(row.summary, random, bank.n_items))
            for name, row in rows.items()
        ),
        correction=_learned(seen, known, beyond),
    )


def _learned(
    seen: Sequence[Glimpse],
    known: FloatArray | None,
    beyond: Sequence[Shifted],
    without_half: int | None = None,
) -> IntervalCorrection:
    """From all who were tested, or from one half."""

    def of(tests: Sequence[Glimpse]) -> list[Glimpse]:
        return [one for one in tests if without_half is None or one.row % 2 != without_half]

    return learn_correction(
        of(seen), known=known, shifted=[replace(one, seen=of(one.seen)) for one in beyond]
    )


def _shifted(
    held: tuple[IntArray, IntArray],
    everybody: IntArray,
    without: Callable[[IntArray], Blind],
    scores_of: Callable[[IntArray], FloatArray],
    number_of: Mapping[int, int],
    seed: int,
) -> Shifted:
    """Tests of some of those held out, numbered as in the folds."""
    known, tested = _evenly(held[0], _MOST_KNOWN), _evenly(held[1], _MOST_SHIFTED)
    bank = without(np.setdiff1d(everybody, known)).bank
    scores = scores_of(tested)
    thetas, _ = whole_bank_abilities(bank, scores)
    test = DESIGNS["default"].open_ended(LONGEST).build(bank)
    numbers = [number_of.get(row, row) for row in tested.tolist()]
    return Shifted(
        seen=[
            replace(one, row=numbers[one.row])
            for one in glimpses(test, scores, thetas, range(len(scores)), seed=seed)
        ],
        known=whole_bank_abilities(bank, scores_of(_evenly(known, _MOST_LOCATED)))[0],
    )


def _evenly(rows: IntArray, most: int) -> IntArray:
    chosen: IntArray = rows[np.linspace(0, rows.size - 1, min(rows.size, most)).astype(np.intp)]
    return np.sort(chosen)


def _trials(bank: ItemBank) -> Iterator[_Trial]:
    if bank.abilities is None:
        for name, design in DESIGNS.items():
            yield _Trial(design=design, looks={name: None})
        return
    lengths = _lengths(bank)
    yield _Trial(design=DESIGNS["default"], looks={"default": None})
    yield _Trial(
        design=FOR_SCORE.open_ended(lengths[-1]),
        looks={f"v_optimal_{n}": n for n in lengths},
    )
    yield _Trial(design=DESIGNS["random"], looks={"random": None})


def _lengths(bank: ItemBank) -> list[int]:
    """Those at which a part of the bank is left to predict."""
    return [n for n in LENGTHS if n < bank.n_items] or [bank.n_items]


def _fold(blind: Blind, scores: FloatArray, first: int, seed: int) -> _Fold:
    """The fold whose examinees have the numbers from `first` on; even and odd ones are halves."""
    seen = tests_on_the_way(blind, scores, seed)
    return _Fold(
        blind=blind,
        scores=scores,
        thetas=whole_bank_abilities(blind.bank, scores)[0],
        half=np.arange(first, first + len(scores)) % 2,
        seen=tuple(replace(one, row=first + one.row) for one in seen),
    )


def tests_on_the_way(blind: Blind, scores: FloatArray, seed: int) -> list[Glimpse]:
    """Tests that teach how wide intervals must be.

    Args:
        blind: What is known without the examinees.
        scores: Their records, shape (n_examinees, n_items).
        seed: Of all chance.
    """
    bank = blind.bank
    if bank.abilities is None:
        test = DESIGNS["default"].open_ended(LONGEST).build(bank)
    else:
        # Their intervals need be widest: of these tests the items tell least of theta.
        by_curves = replace(FOR_SCORE, prediction=PredictionDesign(method=PredictionMethod.P_IRT))
        test = by_curves.open_ended(_lengths(bank)[-1]).build(bank, targets=blind.targets)
    thetas, _ = whole_bank_abilities(bank, scores)
    return glimpses(test, scores, thetas, range(len(scores)), seed=seed)


def _tested(
    trial: _Trial, folds: list[_Fold], corrections: list[IntervalCorrection], seed: int
) -> dict[str, _Look]:
    """Every examinee tested, each half with the correction given for it."""
    found = {name: _Look() for name in trial.looks}
    for fold in folds:
        for half, correction in enumerate(corrections):
            test = trial.design.build(
                fold.blind.bank,
                learned=VersionLearning(interval_correction=correction),
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
                    for tag, told in _told(test, fold.blind, at, scores):
                        found[name].tasks.setdefault(tag, []).append(told)
    return found


def _told(
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


def _efficiency(summary: Summary, random: Summary, n_items: int) -> float | None:
    if n_items <= RANDOM_ITEMS or not summary.theta_mae:
        return None
    spent = summary.items_mean * summary.theta_mae
    return random.items_mean * random.theta_mae / spent
