"""The report card of a bank: how well short tests on it do for examinees it has not seen.

Examinees are held out of the calibration, fold by fold: the bank is calibrated from the others and
those held out are tested on it, answered from their own records, by several designs. What is
reported is out of sample throughout: the corrected intervals of one half of the tested are learned
from the other half, and the correction that goes with the bank version from all of them.

The truth is what an examinee's whole record gives on that bank: its weighted likelihood estimate of
theta and its mean score; see `app.engine.correction`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.batch import whole_bank_abilities
from app.engine.correction import IntervalCorrection, VersionLearning
from app.engine.design import Design
from app.engine.learning import (
    LEAST_EXAMINEES,
    LONGEST,
    Glimpse,
    glimpses,
    learn_correction,
)
from app.engine.simulation import Summary, Taken, simulate, summarise
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
#: A fifth is held out at a time, until so many are: small sets are held out in turn, of a large one
#: a part is enough.
FOLDS, MOST_EXAMINEES = 5, 300
#: Each half must teach the other.
FEWEST_EXAMINEES = 2 * LEAST_EXAMINEES


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """How one design did.

    Attributes:
        design: A name of `DESIGNS`.
        se_target: The standard error that it stops at; None for random items.
        summary: Errors, coverage, use of the bank.
        ies: Item efficiency: 100 random items times their theta MAE, divided by this design's items
            times its theta MAE. 1 is no better than random items; None where the bank has no more
            than 100 items, all of which would be asked, and for the random items themselves.
    """

    design: str
    se_target: float | None
    summary: Summary
    ies: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportCard:
    """How well short tests on a bank do, and what makes their intervals hold.

    Attributes:
        n_examinees: Held out and tested.
        n_folds: Calibrations that they were held out of.
        rows: One per design.
        correction: For the bank's version, learned from all of them.
    """

    n_examinees: int
    n_folds: int
    rows: tuple[CardRow, ...]
    correction: IntervalCorrection

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; the correction is left out, for it goes with the version."""
        return {
            "n_examinees": self.n_examinees,
            "n_folds": self.n_folds,
            "reference": "whole-bank wle",
            "rows": [
                {
                    "design": row.design,
                    "se_target": row.se_target,
                    **asdict(row.summary),
                    "ies": row.ies,
                }
                for row in self.rows
            ],
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Fold:
    """Examinees, and the bank that does not know them.

    Attributes:
        scores: Their records, shape (n_examinees, n_items).
        thetas: Of their whole records, shape (n_examinees,).
        half: 0 or 1 for each, shape (n_examinees,).
        seen: Their tests on the way, numbered through all folds.
    """

    bank: ItemBank
    scores: FloatArray
    thetas: FloatArray
    half: IntArray
    seen: tuple[Glimpse, ...]


def report_card(
    scores_of: Callable[[IntArray], FloatArray],
    bank_without: Callable[[IntArray], ItemBank],
    n_examinees: int,
    *,
    seed: int = 0,
) -> ReportCard:
    """Test examinees on banks that were calibrated without them.

    Args:
        scores_of: Records of some examinees by position, shape (n_rows, n_items), NaN where there
            is no answer, each with at least one answer.
        bank_without: The bank calibrated from all examinees but some, the items the same.
        n_examinees: How many there are.
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
    n_tested = 0
    for number in range(FOLDS):
        held_out = np.sort(order[number::FOLDS])
        tested = held_out[: MOST_EXAMINEES - n_tested]
        folds.append(_fold(bank_without(held_out), scores_of(tested), n_tested, seed))
        n_tested += len(tested)
        if n_tested >= MOST_EXAMINEES:
            break
    seen = [one for fold in folds for one in fold.seen]
    of_others = [learn_correction([one for one in seen if one.row % 2 != half]) for half in (0, 1)]
    summaries = {name: _tested(design, folds, of_others, seed) for name, design in DESIGNS.items()}
    return ReportCard(
        n_examinees=n_tested,
        n_folds=len(folds),
        rows=tuple(
            CardRow(
                design=name,
                se_target=DESIGNS[name].stopping.se,
                summary=summary,
                ies=_efficiency(summary, summaries["random"], folds[0].bank.n_items)
                if name != "random"
                else None,
            )
            for name, summary in summaries.items()
        ),
        correction=learn_correction(seen),
    )


def _fold(bank: ItemBank, scores: FloatArray, first: int, seed: int) -> _Fold:
    """The fold whose examinees have the numbers from `first` on; even and odd ones are halves."""
    thetas, _ = whole_bank_abilities(bank, scores)
    test = Design.from_dict({}).open_ended(LONGEST).build(bank)
    seen = glimpses(test, scores, thetas, range(len(scores)), seed=seed)
    return _Fold(
        bank=bank,
        scores=scores,
        thetas=thetas,
        half=np.arange(first, first + len(scores)) % 2,
        seen=tuple(replace(one, row=first + one.row) for one in seen),
    )


def _tested(
    design: Design, folds: list[_Fold], corrections: list[IntervalCorrection], seed: int
) -> Summary:
    """Every examinee tested, each half with the correction given for it."""
    taken: list[Taken] = []
    thetas: list[float] = []
    for fold in folds:
        for half, correction in enumerate(corrections):
            rows = fold.half == half
            test = design.build(fold.bank, learned=VersionLearning(interval_correction=correction))
            taken += simulate(test, fold.scores[rows], seed=seed)
            thetas += fold.thetas[rows].tolist()
    return summarise(taken, thetas, design.build(folds[0].bank))


def _efficiency(summary: Summary, random: Summary, n_items: int) -> float | None:
    if n_items <= RANDOM_ITEMS or not summary.theta_mae:
        return None
    spent = summary.items_mean * summary.theta_mae
    return random.items_mean * random.theta_mae / spent
