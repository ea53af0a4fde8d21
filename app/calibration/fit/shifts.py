"""Accuracy of short tests for examinees unlike those that the bank is calibrated from.

| hold-out | calibrated from | tested |
|---|---|---|
| strongest_fifth | all but the strongest fifth | the strongest fifth |
| strongest_from_weakest | the weakest half | the strongest 30 % |
| families | all but one family, for each of the largest in turn | that family |

Everything in a row is learned without the tested examinees: item parameters, score curves and their
errors, and the correction of intervals, which comes from a further hold-out among the others.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from app.calibration.fit.held_out import (
    FOR_ABILITY,
    FOR_SCORE,
    Records,
    tests_on_the_way,
)
from app.calibration.matrix import HoldOut, evenly, split_by_strength
from app.engine.bank import IntArray, ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.prediction.correction import IntervalCorrection
from app.engine.simulation.learning import LEAST_EXAMINEES, learn_correction
from app.engine.simulation.simulate import Summary, Taken, judge, summarise, take
from app.errors import CalibrationError, InvalidInputError

#: Least tested examinees of a meaningful row, and most examinees that a row tests.
LEAST_TESTED, MOST_TESTED = 10, 40
#: Name of the row that holds out families.
FAMILIES = "families"
#: Share, and largest number, of the examinees calibrated from that are held out to learn intervals.
_TEACHING, _MOST_TEACHING = 1 / 3, 40
#: Most families that are held out in turn, and least members of such a family.
MOST_FAMILIES, LEAST_MEMBERS = 3, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """One row of the module's table.

    Attributes:
        name: Name of the hold-out in that table.
        hold_outs: Splits of the examinees; empty if there is none.
        reason: Reason why there is no split, or None.
    """

    name: str
    hold_outs: tuple[HoldOut, ...] = ()
    reason: str | None = None


def tried(shift: Shift, records: Records, seed: int) -> dict[str, Any]:
    """Figures of the held-out examinees' tests as JSON; without any, with the reason.

    Of several splits, `n_learned` is the smallest number calibrated from.
    """
    rows: tuple[tuple[str, Summary], ...] = ()
    try:
        rows = _rows(shift.hold_outs, records, seed)
    except (CalibrationError, InvalidInputError) as error:
        shift = Shift(name=shift.name, reason=error.detail)
    names = [held.name for held in shift.hold_outs]
    return {
        "hold_out": shift.name,
        "n_learned": min((held.known.size for held in shift.hold_outs), default=0),
        "n_examinees": max((summary.n_examinees for _, summary in rows), default=0),
        "families": names if shift.name == FAMILIES else [],
        "rows": [{"design": name, **asdict(summary)} for name, summary in rows],
        "reason": shift.reason,
    }


def _rows(
    hold_outs: Sequence[HoldOut], records: Records, seed: int
) -> tuple[tuple[str, Summary], ...]:
    taken: dict[str, list[Taken]] = {}
    thetas: list[float] = []
    banks: list[ItemBank] = []
    for nth, held in enumerate(hold_outs):
        blind = records.with_curves(held.known)
        banks.append(blind.bank)
        scores = records.scores_of(evenly(held.tested, MOST_TESTED // len(hold_outs)))
        thetas += whole_bank_abilities(blind.bank, scores)[0].tolist()
        correction = _correction(records, held.known, seed)
        designs = {"ability": FOR_ABILITY}
        if blind.curves is not None or blind.bank.abilities is not None:  # scores can be predicted
            designs = {"score": FOR_SCORE, **designs}
        for name, design in designs.items():
            test = design.build(
                blind.bank, correction=correction, targets=blind.targets, curves=blind.curves
            )
            taken.setdefault(name, []).extend(
                judge(test, row, *take(test, row, seed=[seed, nth, i]))
                for i, row in enumerate(scores)
            )
    return tuple(
        # Any of the banks will do for the item usage in the summary: all have the same items.
        (name, summarise(ends, thetas, FOR_ABILITY.build(banks[0])))
        for name, ends in taken.items()
        if len(ends) == len(thetas)  # the score test may exist for some families only
    )


def _correction(records: Records, known: IntArray, seed: int) -> IntervalCorrection | None:
    """Correction of intervals, learned from the `known` examinees; None if they are too few."""
    n_teaching = min(max(round(known.size * _TEACHING), LEAST_EXAMINEES), _MOST_TEACHING)
    if known.size - n_teaching < LEAST_EXAMINEES:
        return None
    mixed = known[np.random.default_rng([seed, known.size]).permutation(known.size)]
    teaching, rest = np.sort(mixed[:n_teaching]), np.sort(mixed[n_teaching:])
    blind = records.taught_by(rest)
    seen = tests_on_the_way(blind, records.scores_of(teaching), seed)
    of_rest, _ = whole_bank_abilities(blind.bank, records.scores_of(rest))
    return learn_correction(seen, known=of_rest)


def by_strength(strongest_first: IntArray) -> list[Shift]:
    """The two rows that hold out the strongest of all examinees, given by falling ability."""
    splits = split_by_strength(strongest_first)
    return [_planned(held.name, [replace(held, known=np.sort(held.known))]) for held in splits]


def by_family(families: Sequence[str | None]) -> Shift:
    """The row that holds out the largest families in turn; None is an unknown family."""
    members: dict[str, list[int]] = {}
    for row, family in enumerate(families):
        if family is not None:
            members.setdefault(family, []).append(row)
    usable = {
        family: rows
        for family, rows in members.items()
        if len(rows) >= LEAST_MEMBERS and len(families) - len(rows) >= LEAST_EXAMINEES
    }
    if not usable:
        said = "No families are known" if not members else "No family can be held out"
        return Shift(
            name=FAMILIES,
            reason=f"{said}: expected a family of at least {LEAST_MEMBERS} examinees, and "
            f"{LEAST_EXAMINEES} others to learn from. A family is the part of a name before "
            "its first /, or is given beside the responses.",
        )
    largest = sorted(usable, key=lambda family: (-len(usable[family]), family))[:MOST_FAMILIES]
    everybody = np.arange(len(families))
    return _planned(
        FAMILIES,
        [
            HoldOut(
                family,
                known=np.setdiff1d(everybody, usable[family]),
                tested=np.array(usable[family], dtype=np.intp),
            )
            for family in largest
        ],
    )


def _planned(name: str, hold_outs: Sequence[HoldOut]) -> Shift:
    """A row of these splits, or with the reason why they cannot be used."""
    n_tested = sum(held.tested.size for held in hold_outs)
    n_known = min(held.known.size for held in hold_outs)
    if n_tested < LEAST_TESTED or n_known < LEAST_EXAMINEES:
        return Shift(
            name=name,
            reason=f"There are too few examinees: {n_known} to learn from (at least "
            f"{LEAST_EXAMINEES} needed) and {n_tested} to test (at least {LEAST_TESTED} "
            "needed).",
        )
    return Shift(name=name, hold_outs=tuple(hold_outs))
