"""Examinees held out of a calibration, tested without it, and what they teach about intervals.

Fold by fold the bank is calibrated from the others, and those held out are tested on it, answered
from their own records. By how much intervals must grow beyond those calibrated is learned from
tests of the strongest and of the weakest, on banks calibrated without them.

Twenty examinees are the fewest of whom 95 % can hold: whoever was calibrated from fewer has no
interval but the model's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.placing import UNPLACED
from app.engine.prediction.score_model import Target
from app.engine.simulation.learning import (
    LEAST_EXAMINEES,
    Glimpse,
    Shifted,
    glimpses,
    learn_correction,
)
from app.errors import InvalidInputError

#: The two tests that people take: for theta, from which intervals are learned, and for the score.
FOR_ABILITY, FOR_SCORE = (Design.from_dict({"preset": name}) for name in ("ability", "score"))
#: Of several abilities intervals are learned from tests that tell least of theta.
_TELLS_LEAST = Design.from_dict(
    {
        "preset": "ability",
        "selection": {"criterion": "v_optimal"},
        "prediction": {"method": "p-irt"},
    }
)
#: Of several abilities: a test for the whole bank's score is looked at after so many answers.
LENGTHS = (8, 16, 32, 64)
#: A fifth is held out at a time, until so many are: small sets are held out in turn, of a large one
#: a part is enough.
FOLDS, MOST_EXAMINEES = 5, 300
#: Of several abilities, whose tests take some three times as long.
MOST_OF_SEVERAL = 150
#: Of those held out to be unlike the others: tested, calibrated from at most, and of these located.
_MOST_SHIFTED, _MOST_KNOWN, _MOST_LOCATED = 20, 1000, 200


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


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """All who were held out, and their tests.

    Attributes:
        folds: Of examinees like those calibrated.
        known: Thetas of those calibrated, shape (n_known,); None of several abilities.
        beyond: Tests of others, unlike those that they were tested without.
    """

    folds: tuple[Fold, ...]
    known: FloatArray | None = None
    beyond: tuple[Shifted, ...] = ()

    @property
    def n_examinees(self) -> int:
        """How many of those like the calibrated were tested."""
        return sum(len(fold.scores) for fold in self.folds)

    def correction(self, without_half: int | None = None) -> IntervalCorrection:
        """What they teach about intervals, all of them or one half.

        Raises:
            InvalidInputError: They are fewer than 20.
        """

        def of(tests: Sequence[Glimpse]) -> list[Glimpse]:
            return [one for one in tests if without_half is None or one.row % 2 != without_half]

        return learn_correction(
            of([one for fold in self.folds for one in fold.seen]),
            known=self.known,
            shifted=[replace(one, seen=of(one.seen)) for one in self.beyond],
        )


def held_out(
    scores_of: Callable[[IntArray], FloatArray],
    without: Callable[[IntArray], Blind],
    n_examinees: int,
    *,
    curves_without: Callable[[IntArray], LearnedCurves | None] | None = None,
    shifted: Sequence[tuple[IntArray, IntArray]] = (),
    seed: int = 0,
) -> HeldOut:
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
        InvalidInputError: Fewer than 20 examinees, too few for a 95 % quantile.
    """
    if n_examinees < LEAST_EXAMINEES:
        raise InvalidInputError(
            f"Learning intervals takes at least {LEAST_EXAMINEES} examinees, got {n_examinees}."
        )
    order = np.random.default_rng(seed).permutation(n_examinees)
    folds: list[Fold] = []
    number_of: dict[int, int] = {}
    n_tested = 0
    for number in range(FOLDS):
        left_out = np.sort(order[number::FOLDS])
        blind = without(left_out)
        if blind.curves is None and curves_without is not None:
            blind = replace(blind, curves=curves_without(left_out))
        most = MOST_EXAMINEES if blind.bank.abilities is None else MOST_OF_SEVERAL
        tested = left_out[: most - n_tested]
        folds.append(_fold(blind, scores_of(tested), n_tested, seed))
        number_of |= {row: n_tested + i for i, row in enumerate(tested.tolist())}
        n_tested += len(tested)
        if n_tested >= most:
            break
    if folds[0].blind.bank.abilities is not None:
        return HeldOut(folds=tuple(folds))
    everybody = np.arange(n_examinees)
    return HeldOut(
        folds=tuple(folds),
        known=np.concatenate([fold.thetas for fold in folds]),
        beyond=tuple(
            _shifted(held, everybody, without, curves_without, scores_of, number_of, seed)
            for held in shifted
        ),
    )


def _fold(blind: Blind, scores: FloatArray, first: int, seed: int) -> Fold:
    """The fold whose examinees have the numbers from `first` on; even and odd ones are halves."""
    seen = tests_on_the_way(blind, scores, seed)
    return Fold(
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
        test = FOR_ABILITY.open_ended(LONGEST).build(bank)
    else:
        test = _TELLS_LEAST.open_ended(lengths_on(bank)[-1]).build(bank, targets=blind.targets)
    thetas, _ = whole_bank_abilities(bank, scores)
    return glimpses(test, scores, thetas, range(len(scores)), seed=seed)


def _shifted(
    held: tuple[IntArray, IntArray],
    everybody: IntArray,
    without: Callable[[IntArray], Blind],
    curves_without: Callable[[IntArray], LearnedCurves | None] | None,
    scores_of: Callable[[IntArray], FloatArray],
    number_of: Mapping[int, int],
    seed: int,
) -> Shifted:
    """Tests of some of those held out, numbered as in the folds."""
    known, tested = _evenly(held[0], _MOST_KNOWN), _evenly(held[1], _MOST_SHIFTED)
    others = np.setdiff1d(everybody, known)
    bank = without(others).bank
    curves = None if curves_without is None else curves_without(others)
    placing = None if curves is None else curves.placing
    scores = scores_of(tested)
    thetas, _ = whole_bank_abilities(bank, scores)
    test = FOR_ABILITY.open_ended(LONGEST).build(bank)
    numbers = [number_of.get(row, row) for row in tested.tolist()]
    return Shifted(
        seen=[
            replace(
                one,
                row=numbers[one.row],
                place=UNPLACED if placing is None else placing.of(one.state.responses),
            )
            for one in glimpses(test, scores, thetas, range(len(scores)), seed=seed)
        ],
        known=whole_bank_abilities(bank, scores_of(_evenly(known, _MOST_LOCATED)))[0],
    )


def _evenly(rows: IntArray, most: int) -> IntArray:
    chosen: IntArray = rows[np.linspace(0, rows.size - 1, min(rows.size, most)).astype(np.intp)]
    return np.sort(chosen)


def lengths_on(bank: ItemBank) -> list[int]:
    """Numbers of answers at which a part of the bank is left to predict."""
    return [n for n in LENGTHS if n < bank.n_items] or [bank.n_items]
