"""Curves of all items in a general ability and a few beside it: scores beyond the calibrated range.

The expected score is p = sigmoid(<x, s> + intercept), with abilities x and slopes s of an item. The
other abilities are standard normal; the general one, of sd 1 among those calibrated, is all but
free, so that who is better than all of them is not drawn back to them. Scores in [0, 1] enter by
quasi-likelihood with variance k p (1 - p).

Sources: Wedderburn (1974), Biometrika 61, for the quasi-likelihood; Julier & Uhlmann (2004),
Proceedings of the IEEE 92, for variances of what is no straight line, by points on it.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from scipy.special import expit

from app.engine.models.base import BoolArray, FloatArray, IntArray
from app.engine.prediction.targets import is_drawable
from app.errors import InvalidInputError

#: Prior of the general ability, in standard deviations of those calibrated: so weak that a handful
#: of answers outweighs it, and there, for without it all answers right would put no end to it.
PRIOR_SD = 4.0
#: Prior of an examinee that need not follow the curves: standard deviations of its own level, of
#: how strongly it follows the difficulties (0 is as the curves have it, -1 not at all), of how far
#: it bends with them, and of what each item departs by, logits.
_LEVEL_SD, _ALONG_SD, _BEND_SD, _DEPARTURE_SD = 1.0, 1.0, 0.5, 1.0
_LEAST_SPREAD = 1e-9  # of difficulties: items that are all alike
_SURE = 1e-3  # no answer is foretold to be less likely than that
_TOLERANCE = 1e-7  # gradient of the log-posterior, per unit of ability
_MAX_STEPS = 60
_LONGEST_STEP = 2.0  # logits by which one Newton step may move an item asked
_REMEMBERED = 256  # sets of answers: for so many tests at once none is read twice
_BLOCK = 2**13  # columns whose products stay in the processor's cache


@dataclass(frozen=True, slots=True, eq=False)
class Located:
    """Abilities of an examinee, given some answers.

    Attributes:
        mean: Posterior mode of x, shape (D,).
        covariance: V, shape (D, D).
        log_likelihood: Of the answers, each predicted from those before it.
    """

    mean: FloatArray
    covariance: FloatArray
    log_likelihood: float = 0.0

    @property
    def position(self) -> float:
        """Of the general ability, in standard deviations of those calibrated from their mean."""
        return float(self.mean[0])


@dataclass(frozen=True, slots=True, eq=False)
class ScoreCurves:
    """How the score on each item depends on the abilities.

    Attributes:
        slopes: Shape (D, n_items), the general ability first.
        intercept: Logits of an average examinee, shape (n_items,).
        dispersion: k, in (0, 1].
        prior_sd: Of the general ability, in standard deviations of those calibrated.
        free_sds: Standard deviations of the last abilities, where these are not 1.
        precision: Of the prior, shape (D,).

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

        Where none of the score can be asked, answers to other items tell of it only what they did
        among those calibrated: then the general ability has their distribution, too. Where a part
        can be, draws tell of the examinee itself, however small that part is: a prior of those
        calibrated would draw a stronger one back to them, and close the interval there.

        Args:
            weights: What each item counts in the score, shape (n_items,).
            askable: Mask of the items that may be asked; None means all.
        """
        return self if is_drawable(weights, askable) else self.of_the_like()

    def of_the_like(self) -> "ScoreCurves":
        """The same curves for examinees like those calibrated: their distribution is the prior."""
        return ScoreCurves(self.slopes, self.intercept, self.dispersion, 1.0)

    @classmethod
    def of_parameters(cls, slope: FloatArray, intercept: FloatArray) -> "ScoreCurves":
        """Curves of one ability, from an item bank's parameters.

        Args:
            slope: Of each item's logit in theta, shape (n_items,).
            intercept: Logit at theta 0, shape (n_items,).
        """
        return cls(slope[None, :], intercept)

    def expected(self, at: Located) -> FloatArray:
        """Expected score of every item, shape (n_items,)."""
        return _sigmoid(at.mean @ self.slopes + self.intercept)

    def locate(self, items: IntArray, scores: FloatArray) -> Located:
        """Posterior mode of the abilities, and their covariance (Laplace).

        Each answer is taken in from the mode before it, so that the same answers in the same order
        give the same bits. The results used last are remembered, for tests grow one answer at a
        time.

        Args:
            items: Positions of the items answered, shape (n,).
            scores: In [0, 1], shape (n,).
        """
        # The longest known beginning of the answers; from there on one answer at a time.
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
        """The mode by all these answers, found from the mode before the last of them."""
        across, intercept = self.slopes[:, items], self.intercept[items]
        # Foretold before it came: a probit's mean over the abilities' belief, about the logit's.
        last = across[:, -1]
        logit, moved = float(before.mean @ last + intercept[-1]), before.covariance @ last
        doubt = float(last @ moved)
        foretold = float(expit(logit / math.sqrt(1.0 + math.pi / 8.0 * doubt)))
        foretold = min(max(foretold, _SURE), 1.0 - _SURE)
        score = float(scores[-1])
        likely = score * math.log(foretold) + (1.0 - score) * math.log1p(-foretold)
        # One step for the last answer alone is nearly there.
        middle = float(expit(logit))
        off = (score - middle) / (self.dispersion + middle * (1.0 - middle) * doubt)
        farthest = _LONGEST_STEP / max(doubt, 1e-12)
        x = before.mean + min(max(off, -farthest), farthest) * moved
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
        return Located(
            x,
            np.asarray(np.linalg.inv(hessian), dtype=np.float64),
            before.log_likelihood + likely / self.dispersion,
        )

    def doubt(self, at: Located, left: FloatArray, expected: FloatArray) -> float:
        """Variance of an expected score, for what is not known of the abilities.

        The slopes at the mode tell little of it where curves are flat: of an examinee with five
        right answers of five they say that hardly any will ever be wrong. So the score is read a
        standard deviation to either side of the mode, along what moves it (the symmetric points of
        an unscented transform), and half the difference is its standard deviation.

        Args:
            at: Abilities.
            left: What each item counts in the score, shape (n_items,).
            expected: Scores at the mode, as `expected` gives them.
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
        """Of a 0/1 score on every item, p (1 - p), shape (n_items,)."""
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
        """Of every item's logit: its covariance with a sum, and its variance.

        Args:
            covariance: V, shape (D, D).
            with_: Slopes of the sum, t, shape (D,).

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


def _sigmoid(logits: FloatArray) -> FloatArray:
    """Of the logits of all items, in their place: a quarter of the time of SciPy's."""
    np.negative(logits, out=logits)
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is the 0 that is meant
        np.exp(logits, out=logits)
    logits += 1.0
    return np.reciprocal(logits, out=logits)


@lru_cache(maxsize=16)
def freed(curves: ScoreCurves) -> ScoreCurves:
    """The same curves for an examinee who need not follow them, shared by all who ask.

    Its level on all items is an ability of its own, and so are how strongly it follows their
    difficulties and how far it bends with them; each item departs from its curve by a normal of one
    logit, which flattens the curves as a probit's mean does.
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
