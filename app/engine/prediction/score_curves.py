"""Curves of all items in a general ability and a few others, also beyond the calibrated range.

The expected score is p = sigmoid(<x, s> + intercept), with abilities x and slopes s of an item. The
other abilities have a standard normal prior. The general ability has standard deviation 1 among the
reference models and hardly any prior: nothing pulls a stronger examinee back to them. Scores in
[0, 1] enter by quasi-likelihood with variance k p (1 - p).

Sources: Wedderburn (1974), Biometrika 61, for the quasi-likelihood; Julier & Uhlmann (2004),
Proceedings of the IEEE 92, for the variance of a nonlinear function by points on it.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import expit

from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.targets import is_drawable
from app.errors import InvalidInputError

#: Prior of the general ability, in standard deviations of the reference models. A few answers
#: outweigh it; without it the ability of an examinee with all answers right would be infinite.
PRIOR_SD = 4.0
#: Prior of an examinee that need not follow the curves, standard deviations: of its own level
#: (logits), of how strongly it follows the difficulties (a factor; 0: as the curves do, -1: not at
#: all), of how far it bends with them (a factor), and of the departure of each item (logits).
_LEVEL_SD, _ALONG_SD, _BEND_SD, _DEPARTURE_SD = 1.0, 1.0, 0.5, 1.0
_LEAST_SPREAD = 1e-9  # of difficulties, where all items are alike
_SURE = 1e-3  # least predicted probability of an answer
_TOLERANCE = 1e-7  # gradient of the log-posterior, per unit of ability
_MAX_STEPS = 60
_LONGEST_STEP = 2.0  # logits by which one Newton step may move an item asked
_REMEMBERED = 256  # sets of answers: so many tests at once read no answer twice
_BLOCK = 2**13  # columns whose products stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Abilities of an examinee, given some answers.

    Attributes:
        mean: Posterior mode of x, shape (D,).
        covariance: Posterior covariance V, shape (D, D).
        log_likelihood: Log likelihood of the answers, each predicted from the ones before it.
    """

    mean: FloatArray
    covariance: FloatArray
    log_likelihood: float = 0.0

    @property
    def position(self) -> float:
        """General ability, in standard deviations of the reference models from their mean."""
        return float(self.mean[0])


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCurves:
    """How the score on each item depends on the abilities.

    Attributes:
        slopes: Slopes s, the general ability first, shape (D, n_items).
        intercept: Logits of an average examinee, shape (n_items,).
        dispersion: Factor k on the variance, in (0, 1].
        prior_sd: Prior of the general ability, in standard deviations of the reference models.
        free_sds: Prior standard deviations of the last abilities, where these are not 1.
        precision: Precision of the prior, shape (D,).

    Raises:
        InvalidInputError: Shapes that do not fit, or a number that is not finite.
    """

    slopes: FloatArray
    intercept: FloatArray
    dispersion: float = 1.0
    prior_sd: float = PRIOR_SD
    free_sds: tuple[float, ...] = ()
    precision: FloatArray = field(init=False, repr=False)
    _prior: FloatArray = field(init=False, repr=False)
    _located: dict[tuple[bytes, bytes], Located] = field(
        init=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        if self.slopes.ndim != 2 or self.slopes.shape[1:] != self.intercept.shape:
            raise InvalidInputError(
                f"Score curves need one column of slopes for each of {self.intercept.size} items, "
                f"got shape {self.slopes.shape}."
            )
        if not (np.isfinite(self.slopes).all() and np.isfinite(self.intercept).all()):
            raise InvalidInputError("Slopes and intercepts of score curves must be finite numbers.")
        if not 0.0 < self.dispersion <= 1.0:
            raise InvalidInputError(f"A dispersion lies in (0, 1], got {self.dispersion!r}.")
        object.__setattr__(self, "slopes", np.ascontiguousarray(self.slopes))
        precision = np.ones(len(self.slopes))
        precision[0] = self.prior_sd**-2
        if self.free_sds:
            precision[-len(self.free_sds) :] = np.array(self.free_sds) ** -2.0
        object.__setattr__(self, "precision", precision)
        object.__setattr__(self, "_prior", np.diag(precision))

    def towards(self, weights: FloatArray, askable: BoolArray | None) -> "ScoreCurves":
        """The same curves with the prior that fits a score and the items that may be asked.

        Where fewer than `LEAST_DRAWS` items of the score can be asked, answers to other items
        predict it only as among the reference models: the general ability has their distribution.
        Otherwise sampled questions show the examinee itself, however small a part of the score they
        are. That distribution would pull a stronger examinee back, with too narrow an interval.

        Args:
            weights: Weight of each item in the score, shape (n_items,).
            askable: Mask of the items that may be asked; None means all.
        """
        return self if is_drawable(weights, askable) else self.of_the_like()

    def of_the_like(self) -> "ScoreCurves":
        """The same curves with the distribution of the reference models as the prior."""
        return ScoreCurves(self.slopes, self.intercept, self.dispersion, 1.0)

    def with_level(
        self, own: BoolArray, sd: float, kept: IntArray, items: IntArray, scores: FloatArray
    ) -> "ScoreCurves":
        """Curves of some items with one more ability: the level that their own items share.

        They remember the abilities after the answers, for a call of `locate` with the same answers.
        The level changes the likelihood by the ratio of Laplace's approximations with and without
        it: the sum over the answers one by one would take as long as the whole test.

        Args:
            own: Mask of the items that share the level, shape (n_items,).
            sd: Prior standard deviation of the level, logits.
            kept: Positions of the items to keep, ascending; they include the answered ones.
            items: Positions of the answered items, shape (n,).
            scores: Scores on these items in [0, 1], shape (n,).
        """
        part = ScoreCurves(
            np.vstack([self.slopes[:, kept], own[kept]]),
            self.intercept[kept],
            self.dispersion,
            self.prior_sd,
            (*self.free_sds, sd),
        )
        without, at = self.locate(items, scores), np.searchsorted(kept, items)
        x, hessian = part._mode(np.append(without.mean, 0.0), at, scores)
        covariance = np.asarray(np.linalg.inv(hessian), dtype=np.float64)
        ratio = part._log_joint(x, at, scores) - self._log_joint(without.mean, items, scores)
        ratio += 0.5 * (_log_det(covariance) - _log_det(without.covariance)) - math.log(sd)
        located = Located(x, covariance, without.log_likelihood + ratio)
        part._located[at.tobytes(), scores.tobytes()] = located
        return part

    def expected(self, at: Located) -> FloatArray:
        """Expected score of every item, shape (n_items,)."""
        return _sigmoid(at.mean @ self.slopes + self.intercept)

    def locate(self, items: IntArray, scores: FloatArray) -> Located:
        """Posterior mode of the abilities, and their covariance by Laplace's approximation.

        The search starts from the mode before each new answer, so the same answers in the same
        order give the same bits. The latest results are remembered: tests grow by one answer.

        Args:
            items: Positions of the answered items, shape (n,).
            scores: Scores on these items in [0, 1], shape (n,).
        """
        # Start from the longest remembered prefix of the answers.
        count = items.size
        found: Located | None = None
        while found is None and count:
            known = items[:count].tobytes(), scores[:count].tobytes()
            if (found := self._located.pop(known, None)) is None:
                count -= 1
            else:
                self._located[known] = found
        if found is None:
            found = Located(np.zeros(len(self.slopes)), np.diag(1.0 / self.precision))
        for last in range(count + 1, items.size + 1):
            found = self._one_more(found, items[:last], scores[:last])
            self._located[items[:last].tobytes(), scores[:last].tobytes()] = found
        for oldest in list(self._located)[:-_REMEMBERED]:
            self._located.pop(oldest, None)
        return found

    def _one_more(self, before: Located, items: IntArray, scores: FloatArray) -> Located:
        """Posterior mode after all these answers, from the mode before the last one."""
        # Probability before the answer: the logistic's mean over the belief, by a probit's formula.
        last = self.slopes[:, items[-1]]
        logit = float(before.mean @ last + self.intercept[items[-1]])
        moved = before.covariance @ last
        doubt = float(last @ moved)
        foretold = float(expit(logit / math.sqrt(1.0 + math.pi / 8.0 * doubt)))
        foretold = min(max(foretold, _SURE), 1.0 - _SURE)
        score = float(scores[-1])
        likely = score * math.log(foretold) + (1.0 - score) * math.log1p(-foretold)
        # One step for the last answer alone is nearly the mode.
        middle = float(expit(logit))
        off = (score - middle) / (self.dispersion + middle * (1.0 - middle) * doubt)
        farthest = _LONGEST_STEP / max(doubt, 1e-12)
        x = before.mean + min(max(off, -farthest), farthest) * moved
        x, hessian = self._mode(x, items, scores)
        return Located(
            x,
            np.asarray(np.linalg.inv(hessian), dtype=np.float64),
            before.log_likelihood + likely / self.dispersion,
        )

    def _mode(
        self, x: FloatArray, items: IntArray, scores: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Posterior mode by Newton's method from x, and the Hessian there, negated."""
        across, intercept = self.slopes[:, items], self.intercept[items]
        hessian = np.empty((0, 0))
        for _ in range(_MAX_STEPS):
            expected = expit(x @ across + intercept)
            hessian = (across * (expected * (1.0 - expected) / self.dispersion)) @ across.T
            hessian += self._prior
            gradient = across @ ((scores - expected) / self.dispersion) - self.precision * x
            if max(map(abs, gradient.tolist())) < _TOLERANCE:
                break
            step = np.linalg.solve(hessian, gradient)
            longest = max(map(abs, (step @ across).tolist()))
            x = x + step * min(1.0, _LONGEST_STEP / max(longest, 1e-12))
        return x, hessian

    def _log_joint(self, x: FloatArray, items: IntArray, scores: FloatArray) -> float:
        """Log density of the answers and of the abilities x, up to a constant of the prior."""
        logits = x @ self.slopes[:, items] + self.intercept[items]
        likelihood = float(scores @ logits - np.logaddexp(0.0, logits).sum())
        return likelihood / self.dispersion - 0.5 * float(self.precision @ x**2)

    def doubt(self, at: Located, left: FloatArray, expected: FloatArray) -> float:
        """Variance of an expected score that the uncertainty of the abilities causes.

        The slopes at the mode understate it where curves are flat: after five right answers of five
        they leave hardly any chance of a wrong one. So the score is computed a standard deviation
        to either side of the mode, in the direction that moves it (the symmetric points of an
        unscented transform). Half of the difference is its standard deviation.

        Args:
            at: Abilities.
            left: Weights of the items that were not asked, 0 for the others, shape (n_items,).
            expected: Expected scores at the mode, see `expected`, shape (n_items,).
        """
        slopes = self.slopes @ (left * (expected * (1.0 - expected)))
        by_slopes = float(slopes @ at.covariance @ slopes)
        if by_slopes <= 0.0:
            return by_slopes
        step = at.covariance @ slopes / np.sqrt(by_slopes) @ self.slopes
        mode = at.mean @ self.slopes + self.intercept
        above = left @ _sigmoid(mode + step)
        return float(above - left @ _sigmoid(np.subtract(mode, step, out=step))) ** 2 / 4.0

    def variance(self, at: Located) -> FloatArray:
        """Variance p (1 - p) of a right or wrong answer to every item, shape (n_items,)."""
        odds = at.mean @ self.slopes
        odds += self.intercept
        np.abs(odds, out=odds)
        np.negative(odds, out=odds)
        np.exp(odds, out=odds)
        total = odds + 1.0
        total *= total
        odds /= total
        return odds

    def spread(self, covariance: FloatArray, with_: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Covariance of every item's logit with a sum of abilities, and its variance.

        Args:
            covariance: Posterior covariance V of the abilities, shape (D, D).
            with_: Slopes t of the sum, shape (D,).

        Returns:
            s' V t and s' V s, shape (n_items,) each.
        """
        root = np.linalg.cholesky(covariance).T
        turned_sum = root @ with_
        along, lengths = np.empty((2, self.slopes.shape[1]))
        for start in range(0, lengths.size, _BLOCK):
            turned = root @ self.slopes[:, start : start + _BLOCK]
            np.matmul(turned_sum, turned, out=along[start : start + _BLOCK])
            np.einsum("kj,kj->j", turned, turned, out=lengths[start : start + _BLOCK])
        return along, lengths


def _log_det(covariance: FloatArray) -> float:
    return float(np.linalg.slogdet(covariance)[1])


def _sigmoid(logits: FloatArray) -> FloatArray:
    """Logistic function in place, in a quarter of the time of SciPy's."""
    np.negative(logits, out=logits)
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is 0, as it should be
        np.exp(logits, out=logits)
    logits += 1.0
    return np.reciprocal(logits, out=logits)


@lru_cache(maxsize=16)
def freed(curves: ScoreCurves) -> ScoreCurves:
    """The same curves for an examinee that need not follow them.

    Three more abilities are free: the level on all items, how strongly the examinee follows their
    difficulties, and how far it bends with them. Each item also departs from its curve by a normal
    error of one logit, which flattens the curves (the mean of a probit).
    """
    along = curves.intercept - curves.intercept.mean()
    bend = along**2 / max(float(along.std()), _LEAST_SPREAD)
    flatter = 1.0 / np.sqrt(1.0 + np.pi / 8.0 * _DEPARTURE_SD**2)
    return ScoreCurves(
        flatter * np.vstack([curves.slopes, np.ones_like(along), along, bend - bend.mean()]),
        flatter * curves.intercept,
        curves.dispersion,
        curves.prior_sd,
        free_sds=(_LEVEL_SD, _ALONG_SD, _BEND_SD),
    )
