"""What whole response records of other examinees teach about short tests.

A bank's model is never quite true. Two consequences show on examinees whose answers are all known,
once the same short test is simulated on them:

- 95 % intervals hold less often than they say. They are stretched by the factor that would have
  made 95 % of them hold (split conformal prediction).
- Items go together beyond what one theta explains. If an examinee does better than the model says
  on the items asked, those that go with them will be better too. With the residuals of the records,
  R (examinees x items), and those of the new examinee on the asked items S, r_S, the mean residual
  of the items not asked is predicted by ridge regression: k' (R_S'R_S / n + ridge I)^-1 r_S, where
  k is the covariance of R_S with the mean of the others.

Both are valid for examinees like those that were learned from.

Sources: Lei et al. (2018), Journal of the American Statistical Association 113, section 5.2, for
intervals; Hoerl & Kennard (1970), Technometrics 12, for the regression.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.index import BoolArray
from app.engine.prediction import PIrt, Prediction
from app.engine.simulation import Taken
from app.engine.state import Belief, Estimate, Response
from app.errors import InvalidInputError

#: Examinees below which no 95 % conformal quantile exists.
LEAST_EXAMINEES = 20
_FOLDS = 5
#: Between hardly any shrinkage and nearly all, in units of a residual's variance (at most 1/4).
_RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)


@dataclass(frozen=True, slots=True, eq=False)
class ResidualRegression:
    """Predicts the whole-bank score: p-IRT plus what residuals of the asked items tell of the rest.

    Attributes:
        mean: Mean residual of each item, shape (n_items,).
        residuals: Residuals about that mean, 0 where there was no answer, shape
            (n_examinees, n_items).
        ridge: Shrinkage of the regression.
        stretch: Factor on both sides of p-IRT's interval.
    """

    mean: FloatArray
    residuals: FloatArray
    ridge: float
    stretch: float = 1.0

    @property
    def name(self) -> str:
        """Name in results."""
        return "residual-regression"

    @classmethod
    def fit(
        cls, bank: ItemBank, scores: FloatArray, thetas: FloatArray, ridge: float
    ) -> "ResidualRegression":
        """From records, shape (n_examinees, n_items) with NaN, and their whole-bank thetas."""
        residuals = scores - bank.expected_score(thetas)
        answered = ~np.isnan(residuals)
        total = np.where(answered, residuals, 0.0).sum(axis=0)
        mean = total / np.maximum(answered.sum(axis=0), 1)
        return cls(mean, np.where(answered, residuals - mean, 0.0), ridge)

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.Predictor`."""
        answers = list(responses)
        return self.corrected(
            PIrt().predict(bank, answers, belief, exclude), bank, answers, belief, exclude
        )

    def corrected(
        self,
        plain: Prediction,
        bank: ItemBank,
        answers: Sequence[Response],
        belief: Belief,
        exclude: Sequence[int],
    ) -> Prediction:
        """The prediction that p-IRT made from the same answers, moved by what was learned."""
        asked = np.array([answer.item for answer in answers], dtype=np.intp)
        counted = np.ones(bank.n_items, dtype=np.bool_)
        counted[list(exclude)] = False
        rest = counted.copy()
        rest[asked] = False
        scores = np.array([answer.score for answer in answers])
        residual = scores - bank.expected_score(belief.theta, asked) - self.mean[asked]
        gain = self.mean[rest].sum() + self._sum_of(rest, asked) @ residual
        value = min(max(plain.value + float(gain) / int(counted.sum()), 0.0), 1.0)
        return Prediction(
            value=value,
            lo=max(value - self.stretch * (plain.value - plain.lo), 0.0),
            hi=min(value + self.stretch * (plain.hi - plain.value), 1.0),
            method=self.name,
        )

    def _sum_of(self, rest: BoolArray, asked: IntArray) -> FloatArray:
        """Weights of the asked items' residuals in the sum of the others', shape (n_asked,)."""
        n = len(self.residuals)
        on_asked = self.residuals[:, asked]
        covariance = on_asked.T @ on_asked / n + self.ridge * np.eye(asked.size)
        weights: FloatArray = np.linalg.solve(
            covariance, on_asked.T @ self.residuals[:, rest].sum(axis=1) / n
        )
        return weights


@dataclass(frozen=True, slots=True)
class Learned:
    """What simulated tests of other examinees taught.

    Attributes:
        theta_stretch: Factor on both sides of the interval of theta.
        predictor: Of the whole-bank score.
    """

    theta_stretch: float
    predictor: ResidualRegression

    def stretched(self, estimate: Estimate) -> Estimate:
        """The same theta with a truer interval."""
        theta = estimate.theta
        return replace(
            estimate,
            lo=theta - self.theta_stretch * (theta - estimate.lo),
            hi=theta + self.theta_stretch * (estimate.hi - theta),
        )


def learn(
    bank: ItemBank, scores: FloatArray, references: FloatArray, taken: Mapping[int, Taken]
) -> Learned:
    """Learn from examinees whose answers are all known.

    The ridge and the stretch of the predictor come from cross-validation: each examinee is
    predicted by a regression that has not seen them.

    Args:
        bank: The bank.
        scores: Their records, shape (n_examinees, n_items), NaN where there is no answer.
        references: Their whole-bank thetas, shape (n_examinees,).
        taken: Tests of some of them by row, simulated by the design that the result will serve and
            judged by p-IRT.

    Raises:
        InvalidInputError: Fewer than 20 examinees, too few for a 95 % quantile.
    """
    if len(taken) < LEAST_EXAMINEES:
        raise InvalidInputError(
            f"Learning intervals takes at least {LEAST_EXAMINEES} examinees, got {len(taken)}."
        )
    theta_stretch = _conformal(
        _stretch_needed(one.estimate.theta, one.estimate.lo, one.estimate.hi, references[row])
        for row, one in taken.items()
    )
    unseen = {ridge: _cross_predicted(bank, scores, references, taken, ridge) for ridge in _RIDGES}

    def error(ridge: float) -> float:
        return sum(abs(unseen[ridge][row].value - one.accuracy) for row, one in taken.items())

    ridge = min(_RIDGES, key=error)
    stretch = _conformal(
        _stretch_needed(predicted.value, predicted.lo, predicted.hi, taken[row].accuracy)
        for row, predicted in unseen[ridge].items()
    )
    predictor = ResidualRegression.fit(bank, scores, references, ridge)
    return Learned(theta_stretch, replace(predictor, stretch=stretch))


def _cross_predicted(
    bank: ItemBank,
    scores: FloatArray,
    references: FloatArray,
    taken: Mapping[int, Taken],
    ridge: float,
) -> dict[int, Prediction]:
    """Each tested examinee's score predicted from the examinees of the other folds."""
    fold = np.arange(len(scores)) % _FOLDS
    predictors = [
        ResidualRegression.fit(bank, scores[fold != k], references[fold != k], ridge)
        for k in range(_FOLDS)
    ]
    return {
        row: predictors[row % _FOLDS].corrected(
            one.prediction,
            bank,
            one.state.responses,
            one.state.belief,
            np.flatnonzero(np.isnan(scores[row])).tolist(),
        )
        for row, one in taken.items()
    }


def _stretch_needed(value: float, lo: float, hi: float, true: float) -> float:
    """How many times the interval's own half it takes to reach the truth."""
    half = hi - value if true > value else value - lo
    return abs(true - value) / max(half, 1e-12)


def _conformal(needed: Iterable[float]) -> float:
    """The factor that holds for a new examinee with probability 95 %."""
    ordered = sorted(needed)
    return float(ordered[math.ceil(0.95 * (len(ordered) + 1)) - 1])
