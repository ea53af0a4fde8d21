"""What examinees whose answers are all known teach about short tests of others.

The same test is simulated on each of them and looked at after 5, 7, 10, 14, ... answers. Each time
it is known how many times its own half an interval would have had to be wide to reach the truth;
the 95 % quantile over examinees is the factor on later intervals (split conformal prediction). The
quantile k / (n + 1) is interpolated, so that few examinees do not make intervals too wide on
average. The power of the width that a factor follows is the one with the least quantile loss.

Held-out strongest and weakest ones, on banks calibrated without them, say by how much intervals
grow with the distance, to which side theta errs there, and how far it may be off where answers
leave open who an examinee is like. Other designs, at whose own ends 95 % are to hold, may be given.

Sources: Lei et al. (2018), Journal of the American Statistical Association 113, section 5.2, for
locally weighted conformal intervals; Koenker & Bassett (1978), Econometrica 46, for the loss.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.estimation.estimators import Z_95
from app.engine.prediction.correction import (
    KNOTS,
    WIDEST,
    ExtrapolationAdjustment,
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.prediction.model_error import Seen, bias_of, distance, model_error
from app.engine.prediction.placing import Place
from app.engine.simulation.simulate import take
from app.engine.state import CatState, Estimate
from app.errors import InvalidInputError

#: Examinees below which no 95 % conformal quantile exists.
LEAST_EXAMINEES = 20
_LEVEL = 0.95
_POWERS = np.arange(-0.5, 1.51, 0.25)
#: An interval as narrow as that has nothing left to be wrong about.
_NO_WIDTH = 1e-9
_LEAST_FACTOR, _MOST_FACTOR = 0.05, 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Glimpse:
    """A simulated test on the way, beside what is really true of its examinee.

    Attributes:
        row: The examinee.
        state: After some answers.
        estimate: Theta as the model alone has it.
        theta: Of the whole record.
        place: Where score curves put the examinee; None takes it for placed by theta.
    """

    row: int
    state: CatState
    estimate: Estimate
    theta: float
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shifted:
    """Tests of examinees unlike those that their bank was calibrated from.

    Attributes:
        seen: The tests.
        known: Thetas of those calibrated, on that bank, shape (n_known,).
    """

    seen: Sequence[Glimpse]
    known: FloatArray


def glimpses(
    test: AdaptiveTest,
    scores: FloatArray,
    references: FloatArray,
    rows: Sequence[int],
    *,
    seed: int,
    concurrency: int = 1,
) -> list[Glimpse]:
    """Simulate a test on some examinees and look at it at the knots and at its end.

    Args:
        test: Ends by its number of items alone; nothing learned is in it.
        scores: Records, shape (n_examinees, n_items), NaN where there is no answer.
        references: Their whole-bank thetas, shape (n_examinees,).
        rows: Whom to test.
        seed: Examinee `row` draws from `[seed, row, step]`.
        concurrency: Items kept in flight.
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
    seen: Sequence[Glimpse],
    *,
    known: FloatArray | None = None,
    shifted: Sequence[Shifted] = (),
) -> IntervalCorrection:
    """The correction that makes the intervals of these tests hold.

    Args:
        seen: Tests of at least 20 examinees.
        known: Thetas of those calibrated, whom the tested are like, shape (n_known,); by them it is
            told who is beyond. None has intervals grow for nobody.
        shifted: Tests of others, who are not like those calibrated. Without any nobody tells to
            which side estimates are biased there, and the growth keeps its margin.

    Raises:
        InvalidInputError: Fewer examinees, too few for a 95 % quantile.
    """
    n_examinees = len({one.row for one in seen})
    if n_examinees < LEAST_EXAMINEES:
        raise InvalidInputError(
            f"Learning intervals takes at least {LEAST_EXAMINEES} examinees, got {n_examinees}."
        )
    theta = _stretch(map(_theta, seen))
    if known is not None:
        groups = [known, *(group.known for group in shifted)]
        thetas = [list(map(_theta, group)) for group in (seen, *(one.seen for one in shifted))]
        # With the growth, 95 % of those like the calibrated ones hold as before, and not more.
        growing = _growing(theta, thetas, groups, is_biased=bool(shifted))
        theta = _reaching(_held(growing, thetas[0]), shifted)
    return IntervalCorrection(theta=theta, n_examinees=n_examinees)


def learn_intervals(
    seen: Sequence[Glimpse], ends: Sequence[Glimpse], references: FloatArray
) -> IntervalCorrection:
    """Intervals of theta that hold, also at the ends of one design's own tests.

    Args:
        seen: Tests.
        ends: Where one design's own stopping rules end those tests. All factors are scaled so that
            95 % of the intervals hold there: who is stopped when is no accident.
        references: Whole-bank thetas of those known, shape (n_examinees,).

    Raises:
        InvalidInputError: As for `learn_correction`.
    """
    correction = learn_correction(seen, known=references)
    theta = _held(correction.theta, map(_theta, ends))
    return replace(correction, theta=theta)


class _Interval(NamedTuple):
    """An interval that was told, and the truth."""

    answers: int
    value: float
    lo: float
    hi: float
    true: float
    place: Place | None

    @property
    def half(self) -> float:
        """Half of its width."""
        return (self.hi - self.lo) / 2

    def needed(self, bias: float = 0.0) -> float:
        """How many times its own half on that side it takes to reach the truth.

        Args:
            bias: By how much the value is taken to be too high.
        """
        gap = self.true - (self.value - bias)
        half = self.hi - self.value if gap > 0.0 else self.value - self.lo
        return abs(gap) / max(half, 1e-12)


def _theta(one: Glimpse) -> _Interval:
    told = one.estimate
    return _Interval(one.state.n_scored, told.theta, told.lo, told.hi, one.theta, one.place)


def _growing(
    stretch: IntervalFactor,
    groups: Sequence[Sequence[_Interval]],
    known: Sequence[FloatArray],
    *,
    is_biased: bool = False,
) -> IntervalFactor:
    """The stretch with what is more beyond those known.

    Args:
        stretch: What makes intervals of the first group hold, who are like those known.
        groups: Intervals that were told.
        known: Thetas of those known to each group.
        is_biased: Whether bias is estimated, too. Its standard error widens intervals, and a margin
            on their growth would count that twice.
    """
    beyond = [ExtrapolationAdjustment.of(thetas) for thetas in known]
    if is_biased:
        found, looks = _errors(stretch, groups, beyond)
        above, below = (bias_of(found, looks, above=side) for side in (True, False))
        beyond = [one.with_bias(above, below) for one in beyond]
    found, looks = _errors(stretch, groups, beyond)
    learned = model_error(found, looks, margin=0.0 if is_biased else 1.0)
    return replace(stretch, beyond=replace(beyond[0], above=learned.above, below=learned.below))


def _errors(
    stretch: IntervalFactor,
    groups: Sequence[Sequence[_Interval]],
    beyond: Sequence[ExtrapolationAdjustment],
) -> tuple[list[Seen], int]:
    """Errors about where intervals lie, in standard deviations of the known, and numbers of looks.

    Args:
        stretch: What makes intervals of those like the known hold.
        groups: Intervals that were told.
        beyond: Of the known to each group; nothing grows yet.
    """
    found: list[Seen] = []
    lengths: set[int] = set()
    for group, of_known in zip(groups, beyond, strict=True):
        told = replace(stretch, beyond=of_known)
        by_length: dict[int, list[_Interval]] = {}
        for one in group:
            if _NO_WIDTH < one.half < math.inf:
                by_length.setdefault(one.answers, []).append(one)
        lengths |= set(by_length)
        for rows in by_length.values():
            position = [of_known.position(one.value, one.place) for one in rows]
            error = [
                one.value - of_known.bias_at(at)[0] - one.true
                for one, at in zip(rows, position, strict=True)
            ]
            half = [one.half * told.at(one.answers, one.half, one.value, one.place) for one in rows]
            found.append(
                Seen(
                    error=np.array(error) / of_known.spread,
                    sd=np.array(half) / Z_95 / of_known.spread,
                    position=np.array(position),
                )
            )
    return found, max(len(lengths), 1)


def _held(stretch: IntervalFactor, intervals: Iterable[_Interval]) -> IntervalFactor:
    """The stretch times what lets 95 % of the intervals hold."""
    told = list(intervals)
    # In squares an interval does not grow as the factor does.
    for _ in range(4 if stretch.adds_in_squares and stretch.power < 0.0 else 1):
        if len(short := np.log(_short(stretch, told))) >= LEAST_EXAMINEES:
            stretch = stretch.times(float(np.exp(np.quantile(short, _LEVEL, method="weibull"))))
    return stretch


def _reaching(stretch: IntervalFactor, shifted: Sequence[Shifted]) -> IntervalFactor:
    """The stretch with how far theta is off of examinees not known to be like the calibrated."""
    beyond = stretch.beyond
    if beyond is None:
        return stretch
    max_bias = max((_unplaced_error(stretch, beyond, group) for group in shifted), default=0.0)
    return replace(stretch, beyond=replace(beyond, max_bias=max_bias))


def _unplaced_error(
    stretch: IntervalFactor, beyond: ExtrapolationAdjustment, group: Shifted
) -> float:
    """What 95 % of those not placed, but left amid the known, lack; in sds of the known."""
    of_known = ExtrapolationAdjustment.of(group.known)
    on_its_scale = replace(beyond, centre=of_known.centre, spread=of_known.spread)
    stretch = replace(stretch, beyond=on_its_scale)
    missing = []
    for one in map(_theta, group.seen):
        is_open = one.place is not None and one.place.is_open
        amid = distance(of_known.position(one.value, one.place)) == 0.0
        if is_open and amid and _NO_WIDTH < one.half < math.inf:
            factor = stretch.at(one.answers, one.half, one.value)
            needed = one.needed(stretch.bias_at(one.value))
            missing.append(one.half * max(needed**2 - factor**2, 0.0) ** 0.5)
    found = np.quantile(missing, _LEVEL, method="weibull") if missing else 0.0
    return float(found) / of_known.spread


def _short(stretch: IntervalFactor, intervals: Iterable[_Interval]) -> list[float]:
    """How many times as wide each interval had to be."""
    short = []
    for one in intervals:
        if _NO_WIDTH < one.half < math.inf:
            factor, bias_se = stretch.parts(one.answers, one.half, one.value, one.place)
            # Of the two parts of a half width the factors scale one.
            needed = one.needed(stretch.bias_at(one.value, one.place))
            needed = max(needed**2 - bias_se**2, 0.0) ** 0.5
            short.append(max(needed, _LEAST_FACTOR) / factor)
    return short


def _stretch(intervals: Iterable[_Interval]) -> IntervalFactor:
    """The factors by which the intervals would have held, at each knot that enough reach."""
    told = [one for one in intervals if _NO_WIDTH < one.half < math.inf]
    answers = np.array([one.answers for one in told], dtype=np.intp)
    lengths, reached = np.unique(answers, return_counts=True)
    knots = lengths[reached >= LEAST_EXAMINEES]
    if not knots.size:  # all was asked, and nothing was left to be wrong about
        return IntervalFactor(answers=(1,), factor=(1.0,), usual=(1.0,), power=0.0)
    log_half = np.log([one.half for one in told])
    log_needed = np.log([min(max(one.needed(), _LEAST_FACTOR), _MOST_FACTOR) for one in told])
    usual = np.array([np.median(log_half[answers == knot]) for knot in knots])
    on_knot = np.isin(answers, knots)
    position = np.searchsorted(knots, answers[on_knot])
    log_needed = log_needed[on_knot]
    beyond = np.clip(log_half[on_knot] - usual[position], -WIDEST, WIDEST)

    def follows(power: float) -> FloatArray:
        """What the width adds, as `IntervalFactor.at` has it."""
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
