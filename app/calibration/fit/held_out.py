"""Cross-validation: tests of held-out examinees, from which interval widths are learned.

For each fold the bank is calibrated from the other examinees. The held-out examinees are tested on
it, with answers from their records.

Twenty examinees are the fewest that have a 95 % quantile. With fewer, the model's own intervals
remain uncorrected.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.design.design import Design
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.score_model import Target
from app.engine.simulation.learning import (
    LEAST_EXAMINEES,
    Glimpse,
    glimpses,
    learn_correction,
)
from app.errors import InvalidInputError

#: The usual tests: for theta, from which intervals are learned, and for the score.
FOR_ABILITY, FOR_SCORE = (Design.from_dict({"preset": name}) for name in ("ability", "score"))
#: With several abilities, intervals are learned from the tests least informative about theta.
_TELLS_LEAST = Design.from_dict(
    {
        "preset": "ability",
        "selection": {"criterion": "v_optimal"},
        "prediction": {"method": "p-irt"},
    }
)
#: Answers after which a score test is evaluated, with several abilities.
LENGTHS = (8, 16, 32, 64)
#: A fifth of the examinees is held out at a time, until this many were held out. In a small
#: set everybody is held out in turn; a part of a large one is enough.
FOLDS, MOST_EXAMINEES = 5, 300
#: The same limit with several abilities, whose tests take about three times as long.
MOST_OF_SEVERAL = 150


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blind:
    """A calibration without the held-out examinees.

    Attributes:
        bank: Bank of the same items, calibrated from the other examinees.
        targets: Scores that the others' score model predicts, by tag, with several abilities.
        curves: Score curves learned from the other examinees; None if there are none.
    """

    bank: ItemBank
    targets: Mapping[str, Target] = field(default_factory=dict)
    curves: LearnedCurves | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Recorded answers of the examinees, with functions that calibrate from some of them.

    Attributes:
        scores_of: Returns the scores of the examinees at some positions, shape (n_rows, n_items),
            NaN for no answer; each examinee has at least one answer.
        taught_by: Calibrates from the examinees at some positions, perhaps without score curves.
        curves_by: Learns score curves from the examinees at some positions; returns None if these
            are too few.
    """

    scores_of: Callable[[IntArray], FloatArray]
    taught_by: Callable[[IntArray], Blind]
    curves_by: Callable[[IntArray], LearnedCurves | None]
    n_examinees: int

    def with_curves(self, known: IntArray) -> Blind:
        """Calibration and score curves from the examinees at these positions."""
        blind = self.taught_by(known)
        if blind.curves is not None:
            return blind
        return replace(blind, curves=self.curves_by(known))


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """Held-out examinees of one fold, and the calibration without them.

    Attributes:
        scores: Scores in their records, shape (n_examinees, n_items).
        thetas: Thetas estimated from the whole records, shape (n_examinees,).
        half: Half of the cross-validation, 0 or 1, of each examinee, shape (n_examinees,).
        seen: Their tests at several lengths; examinees are numbered across all folds.
    """

    blind: Blind
    scores: FloatArray
    thetas: FloatArray
    half: IntArray
    seen: tuple[Glimpse, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldOut:
    """All held-out examinees and their tests.

    Attributes:
        folds: Folds of randomly held-out examinees, who resemble the reference models.
        known: Thetas of these examinees, shape (n_known,); None with several abilities.
    """

    folds: tuple[Fold, ...]
    known: FloatArray | None = None

    @property
    def n_examinees(self) -> int:
        """Number of examinees tested in the folds."""
        return sum(len(fold.scores) for fold in self.folds)

    def correction(self, without_half: int | None = None) -> IntervalCorrection:
        """Correction of intervals, learned from all examinees or without one half of them.

        Raises:
            InvalidInputError: Fewer than 20 examinees.
        """
        seen = [one for fold in self.folds for one in fold.seen]
        if without_half is not None:
            seen = [one for one in seen if one.row % 2 != without_half]
        return learn_correction(seen, known=self.known)


def held_out(records: Records, *, seed: int = 0) -> HeldOut:
    """Test examinees on banks that were calibrated without them.

    Args:
        records: The examinees, and how to calibrate from some of them.
        seed: Random seed.

    Raises:
        InvalidInputError: Fewer than 20 examinees, too few for a 95 % quantile.
    """
    n = records.n_examinees
    if n < LEAST_EXAMINEES:
        raise InvalidInputError(
            f"Learning intervals needs at least {LEAST_EXAMINEES} examinees, got {n}."
        )
    order = np.random.default_rng(seed).permutation(n)
    folds: list[Fold] = []
    n_tested = 0
    for number in range(FOLDS):
        left_out = np.sort(order[number::FOLDS])
        blind = records.with_curves(np.setdiff1d(order, left_out))
        most = MOST_EXAMINEES if blind.bank.abilities is None else MOST_OF_SEVERAL
        tested = left_out[: most - n_tested]
        folds.append(_fold(blind, records.scores_of(tested), n_tested, seed))
        n_tested += len(tested)
        if n_tested >= most:
            break
    of_several = folds[0].blind.bank.abilities is not None
    known = None if of_several else np.concatenate([fold.thetas for fold in folds])
    return HeldOut(folds=tuple(folds), known=known)


def _fold(blind: Blind, scores: FloatArray, first: int, seed: int) -> Fold:
    """Make a fold; its examinees are numbered from `first`, and even and odd numbers are halves."""
    seen = tests_on_the_way(blind, scores, seed)
    return Fold(
        blind=blind,
        scores=scores,
        thetas=whole_bank_abilities(blind.bank, scores)[0],
        half=np.arange(first, first + len(scores)) % 2,
        seen=tuple(replace(one, row=first + one.row) for one in seen),
    )


def tests_on_the_way(blind: Blind, scores: FloatArray, seed: int) -> list[Glimpse]:
    """Tests at several lengths, from which interval widths are learned."""
    bank = blind.bank
    if bank.abilities is None:
        test = FOR_ABILITY.open_ended(LONGEST).build(bank)
    else:
        test = _TELLS_LEAST.open_ended(lengths_on(bank)[-1]).build(bank, targets=blind.targets)
    thetas, _ = whole_bank_abilities(bank, scores)
    return glimpses(test, scores, thetas, range(len(scores)), seed=seed)


def lengths_on(bank: ItemBank) -> list[int]:
    """Test lengths below the size of the bank, so that unanswered items are left to predict."""
    return [n for n in LENGTHS if n < bank.n_items] or [bank.n_items]
