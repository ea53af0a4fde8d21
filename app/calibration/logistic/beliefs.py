"""Uncalibrated items: prior beliefs about their parameters, and expected response curves.

The probability of a right answer to an item with uncertain parameters is its expected response
curve: E[P(theta)] over the beliefs about its parameters. An examinee answers an item once, and the
beliefs about items are independent. So the likelihood of an examinee's answers, averaged over the
beliefs, is the product of these curves. The less is known of an item, the flatter its curve; theta
and its standard error in sessions with these items therefore include the items' uncertainty.

Source: Mislevy, Wingersky & Sheehan (1994), Dealing with Uncertainty about Item Parameters:
Expected Response Functions, ETS RR-94-28; Lewis (2001) in Essays on Item Response Theory, 165-171.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, logit, ndtri

from app.calibration.filters import DropReason, Filtered, dropped_for
from app.calibration.logistic.calibrate import Calibration, CalibrationSettings, finished
from app.calibration.logistic.curves import (
    GUESSING,
    INTERCEPT,
    N_COORDINATES,
    OFF,
    SLOPE,
    Curves,
    Family,
)
from app.calibration.logistic.em import EmSettings, Progress, maximise
from app.calibration.logistic.expectation import LatentDensity
from app.calibration.logistic.priors import USUAL_GUESSING_SD, Normal, Priors
from app.calibration.logistic.scale_linking import Linking
from app.calibration.matrix import MISSING, ScoreMatrix
from app.engine.bank import ItemBank
from app.engine.inference.orders import ranks
from app.engine.models.base import FloatArray, IntArray, ItemParameters
from app.engine.models.logistic import LOGISTIC
from app.errors import InvalidInputError

PROVISIONAL = "provisional"
"""Part of a bank version's knowledge."""
DIFFICULTY_SD = 1.3
"""Prior standard deviation of difficulties: somewhat wider than abilities, whose sd is 1."""
GUESS_CORRELATION = 0.5
"""Assumed correlation of guessed difficulties with the true ones: a modest half."""
_LOG_SLOPE = (0.4, 0.5)  # BILOG-MG's spread; items of language model benchmarks are steeper than 1
_NO_GUESSING = 0.003  # c of free answers in a 3PL, whose logit must be finite: as good as 0

_N_DRAWS = 128
_THETA = np.linspace(-4.0, 4.0, 33)
_THETA_SD = 1.5  # sd of the thetas at which a curve must fit: wide, as few examinees are known
_N_NODES = 121  # fine enough for tests of some hundred items


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class ItemBeliefs:
    """Beliefs about items before any answer: independent normals, arrays of shape (n_items,).

    Attributes:
        b: Expected difficulties, logits.
        se_b: Standard deviations of the difficulties, logits.
        c: Expected lower asymptotes; 0 where the answer cannot be guessed.
        given: The author's guesses of difficulty, None for items without one. Items added later
            are ranked among them. Empty if the author gave no guesses.

    Raises:
        InvalidInputError: Unequal lengths, b or se_b not finite, se_b <= 0, or c outside [0, 1).
    """

    keys: tuple[str, ...]
    b: FloatArray
    se_b: FloatArray
    c: FloatArray
    given: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        columns = (self.b, self.se_b, self.c)
        if not self.keys or any(column.shape != (len(self.keys),) for column in columns):
            raise InvalidInputError("Beliefs need one value of b, se_b and c for each item.")
        if self.given and len(self.given) != len(self.keys):
            raise InvalidInputError("Beliefs need one given guess for each item, or none at all.")
        sane = np.isfinite(self.b) & np.isfinite(self.se_b) & (self.se_b > 0)
        if not (sane & (self.c >= 0) & (self.c < 1)).all():
            raise InvalidInputError("Beliefs need finite b, se_b > 0 and 0 <= c < 1.")

    @classmethod
    def guessed(
        cls, keys: Sequence[str], n_choices: Sequence[int], guesses: Sequence[float | None]
    ) -> "ItemBeliefs":
        """Beliefs from an author's guesses of difficulty.

        Args:
            keys: Keys of the items.
            n_choices: Number of options of each item; 0 for free answers.
            guesses: Guessed difficulty of each item, higher for harder; None without a guess. Only
                the order of the guesses counts.
        """
        choices = np.array(n_choices, dtype=np.float64)
        z = _normal_scores(guesses)
        known = np.isfinite(z)
        rest = np.sqrt(1 - GUESS_CORRELATION**2)
        return cls(
            keys=tuple(keys),
            b=np.where(known, GUESS_CORRELATION * DIFFICULTY_SD * np.nan_to_num(z), 0.0),
            se_b=np.where(known, DIFFICULTY_SD * rest, DIFFICULTY_SD),
            c=np.where(choices > 1, 1 / np.maximum(choices, 1), 0.0),
        )

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> "ItemBeliefs":
        """Read what `to_dict` wrote."""
        columns = {name: np.array(value[name], dtype=np.float64) for name in ("b", "se_b", "c")}
        return cls(keys=tuple(value["keys"]), given=tuple(value.get("given", ())), **columns)

    def to_dict(self) -> dict[str, Any]:
        """Write as JSON."""
        columns = {name: getattr(self, name).tolist() for name in ("b", "se_b", "c")}
        return {"keys": list(self.keys), **columns, "given": list(self.given)}

    @property
    def family(self) -> Family:
        """The smallest family that can hold the items: 3PL if any c > 0, otherwise 2PL."""
        return Family.THREE_PL if (self.c > 0).any() else Family.TWO_PL

    def start(self) -> Curves:
        """Curves of the items at their expected parameters, where the estimation starts."""
        x = np.empty((len(self.keys), N_COORDINATES))
        x[:, SLOPE] = _LOG_SLOPE[0]
        x[:, INTERCEPT] = -np.exp(_LOG_SLOPE[0]) * self.b
        x[:, GUESSING] = self._logit_c() if self.family is Family.THREE_PL else -OFF
        x[:, N_COORDINATES - 1] = OFF
        return Curves(x, log_slope=True)

    def priors(self) -> Priors:
        """The beliefs as prior densities."""
        n = len(self.keys)
        guessing = Normal(self._logit_c(), USUAL_GUESSING_SD)
        return Priors(
            log_slope=Normal(np.full(n, _LOG_SLOPE[0]), _LOG_SLOPE[1]),
            difficulty=Normal(self.b, self.se_b),
            guessing=guessing if self.family is Family.THREE_PL else None,
        )

    def bank(self) -> ItemBank:
        """A bank of the items' expected response curves."""
        log_a, b, logit_c = _DRAWS.T[:, :, None]
        a = np.exp(_LOG_SLOPE[0] + _LOG_SLOPE[1] * log_a) * np.ones_like(self.b)
        c = expit(self._logit_c() + USUAL_GUESSING_SD * logit_c)
        c = np.where(self.c > 0, c, 0.0)
        curves = _expected(a, -a * (self.b + self.se_b * b), c)
        return _bank(curves, self.keys)

    def _logit_c(self) -> FloatArray:
        guessing: FloatArray = logit(np.maximum(self.c, _NO_GUESSING))
        return guessing


class Learned(NamedTuple):
    """Beliefs about items after answers.

    Attributes:
        calibration: The most probable parameters and their standard errors, on the scale on which
            these examinees have mean 0 and sd 1.
        bank: The items' expected response curves, on that scale.
    """

    calibration: Calibration
    bank: ItemBank


def calibrate_beliefs(
    matrix: ScoreMatrix,
    beliefs: ItemBeliefs,
    *,
    max_cycles: int = 2000,
    watch: Callable[[Progress], None] | None = None,
) -> Learned:
    """Update beliefs about items by answers, however few.

    The beliefs hold the scale while mean and sd of the examinees are estimated. An item without
    answers keeps its beliefs.

    Args:
        matrix: Answers to the items of `beliefs`, in the same order.
        beliefs: Beliefs before these answers.
        max_cycles: Most E-steps.
        watch: Called after each cycle; raising from it ends the calibration.

    Raises:
        CalibrationError: Fewer than two examinees.
    """
    matrix.require_two_examinees()
    settings = CalibrationSettings(family=beliefs.family, priors=beliefs.priors())
    problem = settings.problem()
    em = EmSettings(max_cycles=max_cycles, estimate_population=True)
    density = LatentDensity.normal(n_nodes=_N_NODES)
    result = maximise(
        matrix, problem, density, em, start=beliefs.start(), early_looks=False, watch=watch
    )
    found = finished(matrix, settings, problem, result)
    mean, sd = result.density.mean, result.density.sd
    linking = Linking(
        source=found.scale,
        target=f"{found.scale}/of-examinees",
        slope=1 / sd,
        intercept=-mean / sd,
    )
    moved = found.moved(linking)
    return Learned(moved, _after(moved, beliefs))


def widening(bank: ItemBank, items: ItemParameters) -> float:
    """Share by which the items' uncertainty widens theta's standard errors; 0 if all are known.

    `bank` has the items' expected response curves, `items` their most probable parameters.
    """
    weights = np.exp(-0.5 * _THETA**2)
    known = LOGISTIC.information(items, _THETA[:, None]).sum(axis=1)
    expected = bank.information(_THETA).sum(axis=1)
    return float(weights @ np.sqrt(known / expected) / weights.sum() - 1)


def without_answers(beliefs: ItemBeliefs, bank: ItemBank) -> dict[str, Any]:
    """The knowledge of a version without answers, whose items follow the first beliefs."""
    answers = np.zeros(len(beliefs.keys), dtype=np.intp)
    items = beliefs.start().natural()
    return after_answers(beliefs, bank, items, beliefs.se_b, answers, n_examinees=0)


def after_answers(
    beliefs: ItemBeliefs,
    bank: ItemBank,
    items: ItemParameters,
    se_b: FloatArray,
    answers: IntArray,
    *,
    n_examinees: int,
) -> dict[str, Any]:
    """The knowledge of a version with answers, as JSON.

    Args:
        beliefs: Beliefs before any answer, from which later calibrations, too, start.
        bank: The items' expected response curves.
        items: The most probable parameters of the items.
        se_b: Standard errors of the difficulties, logits, shape (n_items,).
        answers: Number of answers to each item, shape (n_items,).
        n_examinees: Number of examinees who gave the answers.
    """
    known = se_b[np.isfinite(se_b)]
    return {
        "n_examinees": n_examinees,
        "n_answers": int(answers.sum()),
        "answers_per_item": float(np.median(answers)),
        "se_b": float(np.median(known)) if len(known) else None,
        "widening": widening(bank, items),
        "beliefs": beliefs.to_dict(),
    }


def prepared_for_beliefs(matrix: ScoreMatrix, beliefs: ItemBeliefs) -> Filtered[ScoreMatrix]:
    """Answers to the items of the beliefs, in the same order, including unanswered items."""
    place = {key: j for j, key in enumerate(matrix.items)}
    scores = np.full((matrix.n_examinees, len(beliefs.keys)), MISSING, dtype=np.uint8)
    for j, key in enumerate(beliefs.keys):
        if key in place:
            scores[:, j] = matrix.scores[:, place[key]]
    wide = ScoreMatrix.of(scores, examinees=matrix.examinees, items=beliefs.keys)
    silent = wide.answers_per_examinee() == 0
    unknown = ~np.isin(matrix.items, beliefs.keys)
    kept = wide.select(examinees=~silent) if not silent.all() else wide
    kept.require_two_examinees()
    return Filtered(
        matrix=kept,
        items=tuple(dropped_for(DropReason.NO_PRIOR, matrix.items, unknown)),
        examinees=tuple(dropped_for(DropReason.NO_ANSWERS, wide.examinees, silent)),
        constants={},
    )


def _after(calibration: Calibration, beliefs: ItemBeliefs) -> ItemBank:
    errors = calibration.known_errors
    used = slice(0, GUESSING + 1)
    values, vectors = np.linalg.eigh(errors.covariance[:, used, used])
    root = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    drawn = errors.curves.x[:, used] + np.einsum("jab,sb->sja", root, _DRAWS)
    a, intercept = np.exp(drawn[..., SLOPE]), drawn[..., INTERCEPT]
    c = np.where(beliefs.c > 0, expit(drawn[..., GUESSING]), 0.0)
    return _bank(_expected(a, intercept, c), calibration.item_ids)


def _bank(items: ItemParameters, keys: Sequence[str]) -> ItemBank:
    return ItemBank.from_intercepts(a=items.a, intercept=items.intercept, c=items.c, item_ids=keys)


def _expected(a: FloatArray, intercept: FloatArray, c: FloatArray) -> ItemParameters:
    """Logistic curves nearest to the mean of drawn curves; arguments have shape (n_draws, n_items).

    Least squares of the logit, weighted by information and by a wide normal density of theta.
    """
    floor = c.mean(axis=0)
    mean = np.zeros((a.shape[1], len(_THETA)))
    for k, theta in enumerate(_THETA):
        mean[:, k] = (c + (1 - c) * expit(a * theta + intercept)).mean(axis=0)
    above = np.clip((mean - floor[:, None]) / (1 - floor[:, None]), 1e-9, 1 - 1e-9)
    z = logit(above)
    weights = above * (1 - above) * np.exp(-0.5 * (_THETA / _THETA_SD) ** 2)
    weights /= weights.sum(axis=1, keepdims=True)
    from_theta = _THETA - (weights @ _THETA)[:, None]
    from_z = z - (weights * z).sum(axis=1, keepdims=True)
    slope = (weights * from_theta * from_z).sum(axis=1) / (weights * from_theta**2).sum(axis=1)
    at_zero = (weights * z).sum(axis=1) - slope * (weights @ _THETA)
    return ItemParameters(slope, at_zero, floor, np.ones_like(floor))


def _normal_scores(guesses: Sequence[float | None]) -> FloatArray:
    """Normal scores of mid-ranks; NaN without a guess, and for all items if all guesses agree."""
    values = np.array([np.nan if guess is None else guess for guess in guesses], dtype=np.float64)
    known = np.flatnonzero(np.isfinite(values))
    scores = np.full(len(values), np.nan)
    if len(np.unique(values[known])) > 1:  # one guess for all says nothing
        scores[known] = ndtri((ranks(values[known]) - 0.5) / len(known))
    return scores


def _draws(n: int) -> FloatArray:
    """Evenly spread normal vectors (Kronecker sequence) of mean 0 and sd 1, shape (n, 3)."""
    steps = np.array([0.8191725133961645, 0.6710436067037893, 0.5497004779019703])  # of R_3
    draws: FloatArray = ndtri((0.5 + np.arange(1, n + 1)[:, None] * steps) % 1.0)
    draws -= draws.mean(axis=0)
    draws /= draws.std(axis=0)
    return draws


_DRAWS = _draws(_N_DRAWS)
