"""Banks on which the examinees that a bank was calibrated from can be tested. Pure.

Parameters fit the examinees from whose answers they are estimated better than any others. The items
that tests ask first, with the steepest slopes, are steep by the answers of these examinees. So
their tests err less, and intervals learned from them are too narrow for others: on simulated 2PL
banks by an eighth with 120 examinees, by a third with 30. They are therefore tested on banks that
are calibrated without them.

Source: Stone (1974), JRSS B 36, for cross-validation; van der Linden & Glas (2000), Applied
Measurement in Education 13, for adaptive tests that capitalise on errors of the parameters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from app.calibration.filters import FilterSettings
from app.calibration.fit.held_out import FOLDS
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.calibrator import Fitted
from app.calibration.pipeline.fit import CALIBRATORS, prepared
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, CalibrationPlan, LinkPlan
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.batch import whole_bank_abilities
from app.engine.models.continuous import CONTINUOUS
from app.engine.responses import ResponseTable
from app.engine.simulation.learning import Glimpse, glimpses

#: With more examinees, the answers of a few hardly move an item.
_MOST_EXAMINEES = 1000
#: Mean squared residual of items' sums of scores, in standard errors, below which a bank counts as
#: calibrated from these examinees. It is 0 if it was calibrated from them alone, the share of the
#: others if from them and others, and about 1 or more if from others alone.
_OWN = 0.5


def blind_banks(
    bank: ItemBank, table: ResponseTable, rows: Sequence[int], seed: int
) -> Iterator[tuple[Sequence[int], ItemBank]]:
    """Yield positions of examinees with the bank to test them on, until all have been tested.

    That is the bank itself if it was calibrated from others, which the answers tell. Otherwise it
    is as in `banks_without`, whose arguments these are.
    """
    if is_calibrated_from(bank, table.scores):
        yield from banks_without(bank, table, rows, seed)
    else:
        yield rows, bank


def banks_without(
    bank: ItemBank, table: ResponseTable, rows: Sequence[int], seed: int, *, moments: bool = False
) -> Iterator[tuple[Sequence[int], ItemBank]]:
    """Yield the same for a bank that was calibrated from these examinees.

    A fold of them is held out at a time, and the items are calibrated again on the bank's scale.
    With more than 1,000 examinees it is the bank itself: a few of them hardly move an item.

    Args:
        bank: Bank of one ability.
        table: Answers to the bank's items, in its order.
        rows: Positions of the examinees to test.
        seed: Random seed of the folds.
        moments: Whether the bank was calibrated by moments, as `CalibrationPlan` has it.
    """
    if table.n_examinees > _MOST_EXAMINEES:
        yield rows, bank
        return
    plan = replace(_plan_of(bank), moments=moments)
    matrix = prepared(table.select(items=bank.a != 0.0), plan).matrix
    order = np.random.default_rng(seed).permutation(np.asarray(rows, dtype=np.intp))
    for number in range(FOLDS):
        tested = np.sort(order[number::FOLDS])
        others = ~np.isin(matrix.examinees, [table.examinees[row] for row in tested])
        blind = CALIBRATORS[plan.model].taught_by(matrix, others, plan, Fitted({}, {}, {}), bank)
        yield tested.tolist(), blind.bank


def glimpses_on(
    banks: Iterable[tuple[Sequence[int], ItemBank]],
    scores: FloatArray,
    build: Callable[[ItemBank], AdaptiveTest],
    *,
    seed: int,
    concurrency: int = 1,
) -> list[Glimpse]:
    """Simulate a test of the examinees of each bank on it.

    Args:
        banks: Result of `blind_banks` or `banks_without`.
        scores: Scores on the bank's items, shape (n_examinees, n_items), NaN where there is none.
        build: Builds the test on a bank; see `glimpses`.
        seed: Random seed of the tests.
        concurrency: Number of items kept in flight.
    """
    seen: list[Glimpse] = []
    for tested, bank in banks:
        thetas, _ = whole_bank_abilities(bank, scores)
        seen += glimpses(build(bank), scores, thetas, tested, seed=seed, concurrency=concurrency)
    return seen


def is_calibrated_from(bank: ItemBank, scores: FloatArray) -> bool:
    """Whether these are most of the examinees that a bank was calibrated from.

    Maximum likelihood makes the sum of an item's scores what its curve expects of the examinees. A
    calibration by moments makes them only about equal, and may not be recognised.
    """
    answered, steep = ~np.isnan(scores), bank.a != 0.0
    of_model = bank.model is CONTINUOUS or bool(np.isin(scores[answered], (0.0, 1.0)).all())
    if not (of_model and steep.any()):
        return False
    thetas, _ = whole_bank_abilities(bank, scores)
    mean, variance = bank.model.score_moments(bank.parameters, thetas[:, None])
    residual = np.where(answered, scores - mean, 0.0).sum(axis=0)[steep]
    expected = np.where(answered, variance, 0.0).sum(axis=0)[steep]
    return bool(np.mean(residual**2 / np.maximum(expected, 1e-12)) < _OWN)


def _plan_of(bank: ItemBank) -> CalibrationPlan:
    """The plan of a calibration that gives such parameters, on the bank's scale."""
    every = FilterSettings.none()
    if bank.model is CONTINUOUS:
        return CalibrationPlan(model=CONTINUOUS_SCORES, filters=every)
    slopes = bank.a[bank.a != 0.0]
    family = Family.TWO_PL
    if (bank.d < 1.0).any():
        family = Family.FOUR_PL
    elif (bank.c > 0.0).any():
        family = Family.THREE_PL
    elif slopes[0] > 0.0 and np.allclose(slopes, slopes[0]):
        family = Family.RASCH
    return CalibrationPlan(
        model=family.value,
        filters=every,
        allow_few=True,
        negative_slopes=bool((slopes < 0.0).any()),
        link=LinkPlan(),
        target=bank,
    )
