"""Learn corrections of theta's intervals from examinees whose answers are all recorded.

The same test is simulated for each examinee. After 5, 7, 10, 14, ... answers the half-width that
would have reached the theta of the whole record is divided by the interval's own. The 95 % quantile
over the examinees is the factor on later intervals (split conformal prediction). It is interpolated
between levels k / (n + 1), so that few examinees do not make intervals too wide on average. The
factor follows a power of the width, chosen by the smallest quantile loss.

The strongest and weakest reference models, held out of the calibration, show how intervals must
grow with the distance, how theta is biased there, and how far off it may be if an examinee's place
is open. Factors may also be scaled to hold where another design's stopping rules end its tests.

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
    ExtrapolationAdjustment,
    IntervalCorrection,
    IntervalFactor,
)
from app.engine.prediction.learned_curves import Place
from app.engine.prediction.model_error import Seen, bias_of, distance, growth_of
from app.engine.simulation.simulate import take
from app.engine.state import Z_95, CatState, Estimate
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
        place: Place of the examinee by the score curves; None relies on theta.
    """

    row: int
    state: CatState
    estimate: Estimate
    theta: float
    place: Place | None = None

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

    def needed(self, bias: float = 0.0) -> float:
        """Distance of the whole-bank theta, as a multiple of the half-width on its side.

        An assumed bias above 0 means that the estimate is too high.
        """
        told = self.estimate
        gap = self.theta - (told.theta - bias)
        half = told.hi - told.theta if gap > 0.0 else told.theta - told.lo
        return abs(gap) / max(half, 1e-12)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shifted:
    """Tests of examinees who are unlike the calibration sample of their bank.

    Attributes:
        seen: The tests, after several numbers of answers.
        known: Thetas of the reference models on that bank, shape (n_known,).
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
    """Simulate a test on the examinees of some rows; record it at the knots and at its end.

    Only its number of items ends the test, and it has no learned correction. `references` are the
    whole-bank thetas, shape (n_examinees,). Examinee `row` draws from `[seed, row, step]`.
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
    """The correction with which 95 % of the intervals of these tests hold.

    The tests are those of at least 20 examinees like the reference models, whose thetas are
    `known`; None lets no interval grow. `shifted` are tests of examinees unlike them. Without these
    the bias far away remains unknown, and the growth of the intervals keeps its margin.

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
        groups = [Shifted(seen=seen, known=known), *shifted]
        # The growth must not raise the coverage of examinees like the reference models above 95 %.
        beyond = _growing(theta, groups, is_biased=bool(shifted))
        theta = _held(replace(theta, beyond=beyond), seen)
        # How far theta may be off where the examinee's place is open.
        missing = (_unplaced_error(theta, beyond, group) for group in shifted)
        theta = replace(theta, beyond=replace(beyond, max_bias=max(missing, default=0.0)))
    return IntervalCorrection(theta=theta, n_examinees=n_examinees)


def learn_intervals(
    seen: Sequence[Glimpse], ends: Sequence[Glimpse], references: FloatArray
) -> IntervalCorrection:
    """`learn_correction` from tests at the knots, for intervals that also hold at the ends.

    These are the same tests where a design's stopping rules end them. All factors are scaled so
    that 95 % of the intervals hold there, because the end depends on the answers.
    """
    correction = learn_correction(seen, known=references)
    theta = _held(correction.theta, ends)
    return replace(correction, theta=theta)


def _growing(
    stretch: IntervalFactor, groups: Sequence[Shifted], *, is_biased: bool
) -> ExtrapolationAdjustment:
    """Growth of intervals beyond the reference models, whom the first group resembles.

    The factor is that of this group. `is_biased` estimates the bias, too. Its standard error widens
    the intervals, and a margin on their growth would allow for that twice.
    """
    beyond = [ExtrapolationAdjustment.of(group.known) for group in groups]
    if is_biased:
        errors, looks = _errors(stretch, groups, beyond)
        above, below = (bias_of(errors, looks, above=side) for side in (True, False))
        bias = {
            "bias_above": above.value,
            "bias_below": below.value,
            "bias_se_above": above.sd,
            "bias_se_below": below.sd,
        }
        beyond = [replace(one, **bias) for one in beyond]
    errors, looks = _errors(stretch, groups, beyond)
    margin = 0.0 if is_biased else 1.0
    up, down = (one.value + margin * one.sd for one in growth_of(errors, looks))
    return replace(beyond[0], above=up, below=down)


def _errors(
    stretch: IntervalFactor,
    groups: Sequence[Shifted],
    beyond: Sequence[ExtrapolationAdjustment],
) -> tuple[list[Seen], int]:
    """Errors of theta less its bias, in sds of the reference models, and the number of lengths.

    `beyond` has the calibration sample of each group, without growth.
    """
    errors: list[Seen] = []
    lengths: set[int] = set()
    for group, sample in zip(groups, beyond, strict=True):
        told = replace(stretch, beyond=sample)
        by_length: dict[int, list[Glimpse]] = {}
        for one in group.seen:
            if one.has_width:
                by_length.setdefault(one.answers, []).append(one)
        lengths |= set(by_length)
        for rows in by_length.values():
            position = [sample.position(one.estimate.theta, one.place) for one in rows]
            error = [
                one.estimate.theta - sample.bias_at(at)[0] - one.theta
                for one, at in zip(rows, position, strict=True)
            ]
            half = [
                one.half
                * math.hypot(
                    *told.parts(one.answers, one.half, one.estimate.theta, one.place, chosen=True)
                )
                for one in rows
            ]
            errors.append(
                Seen(
                    error=np.array(error) / sample.spread,
                    sd=np.array(half) / Z_95 / sample.spread,
                    position=np.array(position),
                )
            )
    return errors, max(len(lengths), 1)


def _held(stretch: IntervalFactor, seen: Sequence[Glimpse]) -> IntervalFactor:
    """The factor, rescaled so that 95 % of the intervals hold."""
    # If errors add in squares, the interval grows less than the factor: iterate.
    for _ in range(4 if stretch.beyond is not None and stretch.power < 0.0 else 1):
        if len(ratios := np.log(_short(stretch, seen))) >= LEAST_EXAMINEES:
            times = float(np.exp(np.quantile(ratios, _LEVEL, method="weibull")))
            stretch = replace(stretch, factor=tuple(times * each for each in stretch.factor))
    return stretch


def _unplaced_error(
    stretch: IntervalFactor, beyond: ExtrapolationAdjustment, group: Shifted
) -> float:
    """95 % quantile of what intervals lack if the place is open, in sds of the reference models."""
    sample = ExtrapolationAdjustment.of(group.known)
    on_its_scale = replace(beyond, centre=sample.centre, spread=sample.spread)
    stretch = replace(stretch, beyond=on_its_scale)
    missing = []
    for one in group.seen:
        theta, is_open = one.estimate.theta, one.place is not None and one.place.is_open
        # Only within one sd of the mean, where neither growth nor bias widens the interval.
        amid = distance(sample.position(theta, one.place)) == 0.0
        if is_open and amid and one.has_width:
            factor, _ = stretch.parts(one.answers, one.half, theta, chosen=True)
            needed = one.needed(stretch.bias_at(theta))
            missing.append(one.half * max(needed**2 - factor**2, 0.0) ** 0.5)
    quantile = np.quantile(missing, _LEVEL, method="weibull") if missing else 0.0
    return float(quantile) / sample.spread


def _short(stretch: IntervalFactor, seen: Iterable[Glimpse]) -> list[float]:
    """How many times wider each corrected interval would have to be to reach the truth."""
    ratios = []
    for one in seen:
        if one.has_width:
            theta = one.estimate.theta
            factor, bias_se = stretch.parts(one.answers, one.half, theta, one.place, chosen=True)
            # A half-width has two parts; the factors do not scale the bias's standard error.
            needed = one.needed(stretch.bias_at(theta, one.place))
            needed = max(needed**2 - bias_se**2, 0.0) ** 0.5
            ratios.append(max(needed, _LEAST_FACTOR) / factor)
    return ratios


def _stretch(seen: Iterable[Glimpse]) -> IntervalFactor:
    """The factors with which the intervals would have held, at each knot with enough examinees."""
    checked = [one for one in seen if one.has_width]
    answers = np.array([one.answers for one in checked], dtype=np.intp)
    lengths, reached = np.unique(answers, return_counts=True)
    knots = lengths[reached >= LEAST_EXAMINEES]
    if not knots.size:  # every item was asked, and no interval has any width
        return IntervalFactor(answers=(1,), factor=(1.0,), usual=(1.0,), power=0.0)
    log_half = np.log([one.half for one in checked])
    log_needed = np.log([min(max(one.needed(), _LEAST_FACTOR), _MOST_FACTOR) for one in checked])
    usual = np.array([np.median(log_half[answers == knot]) for knot in knots])
    on_knot = np.isin(answers, knots)
    position = np.searchsorted(knots, answers[on_knot])
    log_needed = log_needed[on_knot]
    beyond = np.clip(log_half[on_knot] - usual[position], -WIDEST, WIDEST)

    def follows(power: float) -> FloatArray:
        """What the interval's width adds to the logarithm of the factor, as in `IntervalFactor`."""
        return np.where(beyond < 0.0, power, max(power, 0.0)) * beyond

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
