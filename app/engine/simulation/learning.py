"""Learn corrections of theta's intervals from examinees whose answers are all recorded.

The same test is simulated for each examinee. After 5, 7, 10, 14, ... answers the half-width that
would have reached the theta of the whole record is divided by the interval's own. The 95 % quantile
over the examinees is the factor on later intervals (split conformal prediction). It is interpolated
between levels k / (n + 1), so that few examinees do not make intervals too wide on average. The
factor follows a power of the width, chosen by the smallest quantile loss.

Sources: Lei et al. (2018), Journal of the American Statistical Association 113, section 5.2, for
locally weighted conformal intervals; Koenker & Bassett (1978), Econometrica 46, for the loss.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.prediction.correction import (
    KNOTS,
    WIDEST,
    IntervalCorrection,
    IntervalFactor,
    ReferenceThetas,
)
from app.engine.simulation.simulate import take
from app.engine.state import CatState, Estimate
from app.errors import InvalidInputError

#: Number of examinees that a 95 % conformal quantile asks for; 19 is the mathematical minimum.
LEAST_EXAMINEES = 20
_LEVEL = 0.95
_POWERS = np.arange(-0.5, 1.51, 0.25)
#: Half-width below which an interval counts as a point, where nothing is left to estimate.
_NO_WIDTH = 1e-9
_LEAST_FACTOR, _MOST_FACTOR = 0.05, 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """A simulated test after some answers, with the whole-bank theta of its examinee.

    Attributes:
        row: Row of the examinee in the records.
        state: State of the test after these answers.
        estimate: Estimate of theta by the model, without a correction.
        theta: Theta by the examinee's whole record, logits.
    """

    row: int
    state: CatState
    estimate: Estimate
    theta: float

    @property
    def answers(self) -> int:
        """Number of scored answers."""
        return self.state.n_scored

    @property
    def half(self) -> float:
        """Half-width of the interval, by the model."""
        return (self.estimate.hi - self.estimate.lo) / 2

    @property
    def has_width(self) -> bool:
        """Whether the interval has a finite width, so that something is left to estimate."""
        return _NO_WIDTH < self.half < math.inf

    @property
    def needed(self) -> float:
        """Distance of the whole-bank theta, as a multiple of the half-width on its side."""
        told = self.estimate
        gap = self.theta - told.theta
        half = told.hi - told.theta if gap > 0.0 else told.theta - told.lo
        return abs(gap) / max(half, 1e-12)


def glimpses(
    test: AdaptiveTest,
    scores: FloatArray,
    references: FloatArray,
    rows: Sequence[int],
    *,
    seed: int,
    concurrency: int = 1,
) -> list[Glimpse]:
    """Simulate a test on some examinees; record it at the knots and at its end.

    Args:
        test: Test that only its number of items ends, without any learned correction.
        scores: Recorded scores, shape (n_examinees, n_items), NaN where there is no answer.
        references: Whole-bank thetas of the examinees, shape (n_examinees,).
        rows: Rows of the examinees to test.
        seed: Random seed; examinee `row` draws from `[seed, row, step]`.
        concurrency: Number of items kept in flight.
    """
    seen = []
    for row in rows:
        passed: list[CatState] = []
        end, _ = take(
            test, scores[row], seed=[seed, row], concurrency=concurrency, watch=passed.append
        )
        seen += [
            Glimpse(
                row=row,
                state=state,
                estimate=state.belief.estimate(),
                theta=float(references[row]),
            )
            for state in passed
            if state.n_scored in KNOTS or state.n_scored == end.n_scored
        ]
    return seen


def learn_correction(
    seen: Sequence[Glimpse], *, known: FloatArray | None = None
) -> IntervalCorrection:
    """The correction with which 95 % of the intervals of these tests hold.

    Args:
        seen: Tests of at least 20 examinees, who are like the reference models.
        known: Thetas of the reference models, shape (n_known,); None lets no interval grow.

    Raises:
        InvalidInputError: There are too few examinees for a 95 % quantile.
    """
    n_examinees = len({one.row for one in seen})
    if n_examinees < LEAST_EXAMINEES:
        raise InvalidInputError(
            f"Learning intervals needs at least {LEAST_EXAMINEES} examinees, got {n_examinees}."
        )
    theta = _stretch(seen)
    if known is not None:
        # The growth must not raise the coverage of examinees like the reference models above 95 %.
        theta = _held(replace(theta, reference=ReferenceThetas.of(known)), seen)
    return IntervalCorrection(theta=theta, n_examinees=n_examinees)


def _held(stretch: IntervalFactor, seen: Sequence[Glimpse]) -> IntervalFactor:
    """The factor, rescaled so that 95 % of the intervals hold."""
    # If errors add in squares, the interval grows less than the factor: iterate.
    for _ in range(4 if stretch.reference is not None and stretch.power < 0.0 else 1):
        if len(ratios := np.log(_short(stretch, seen))) >= LEAST_EXAMINEES:
            times = float(np.exp(np.quantile(ratios, _LEVEL, method="weibull")))
            stretch = replace(stretch, factor=tuple(times * each for each in stretch.factor))
    return stretch


def _short(stretch: IntervalFactor, seen: Iterable[Glimpse]) -> list[float]:
    """How many times wider each corrected interval would have to be to reach the truth."""
    return [
        max(one.needed, _LEAST_FACTOR)
        / stretch.at(one.answers, one.half, one.estimate.theta, chosen=True)
        for one in seen
        if one.has_width
    ]


def _stretch(seen: Iterable[Glimpse]) -> IntervalFactor:
    """The factors with which the intervals would have held, at each knot with enough examinees."""
    checked = [one for one in seen if one.has_width]
    answers = np.array([one.answers for one in checked], dtype=np.intp)
    lengths, reached = np.unique(answers, return_counts=True)
    knots = lengths[reached >= LEAST_EXAMINEES]
    if not knots.size:  # every item was asked, and no interval has any width
        return IntervalFactor(answers=(1,), factor=(1.0,), usual=(1.0,), power=0.0)
    log_half = np.log([one.half for one in checked])
    log_needed = np.log([min(max(one.needed, _LEAST_FACTOR), _MOST_FACTOR) for one in checked])
    usual = np.array([np.median(log_half[answers == knot]) for knot in knots])
    on_knot = np.isin(answers, knots)
    position = np.searchsorted(knots, answers[on_knot])
    log_needed = log_needed[on_knot]
    beyond = np.clip(log_half[on_knot] - usual[position], -WIDEST, WIDEST)

    def follows(power: float) -> FloatArray:
        """What the interval's width adds to the logarithm of the factor, as in `IntervalFactor`."""
        added: FloatArray = np.where(beyond < 0.0, power, max(power, 0.0)) * beyond
        return added

    def factors(power: float) -> FloatArray:
        rest = log_needed - follows(power)
        return np.array(
            [np.quantile(rest[position == k], _LEVEL, method="weibull") for k in range(knots.size)]
        )

    def loss(power: float) -> float:
        short = log_needed - follows(power) - factors(power)[position]
        return float(np.maximum(_LEVEL * short, (_LEVEL - 1) * short).mean())

    power = float(min(_POWERS, key=loss))
    return IntervalFactor(
        answers=tuple(knots.tolist()),
        factor=tuple(np.exp(factors(power)).tolist()),
        usual=tuple(np.exp(usual).tolist()),
        power=power,
    )
