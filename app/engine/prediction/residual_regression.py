"""A predictor of the whole-bank score that knows which items go together.

If an examinee does better than the model says on the items asked, those that go with them will be
better too. With the residuals of whole response records, R (examinees x items), and those of the
new examinee on the asked items S, r_S, the mean residual of the items not asked is predicted by
ridge regression: k' (R_S'R_S / n + ridge I)^-1 r_S, where k is the covariance of R_S with the mean
of the others. It is valid for examinees like those of the records.

Source: Hoerl & Kennard (1970), Technometrics 12.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.engine.bank import FloatArray, IntArray, ItemBank
from app.engine.index import BoolArray
from app.engine.prediction.p_irt import PIrt, Prediction
from app.engine.state import Belief, Response


@dataclass(frozen=True, slots=True, eq=False)
class ResidualRegression:
    """Predicts the whole-bank score: p-IRT plus what residuals of the asked items tell of the rest.

    Attributes:
        mean: Mean residual of each item, shape (n_items,).
        residuals: Residuals about that mean, 0 where there was no answer, shape
            (n_examinees, n_items).
        ridge: Shrinkage of the regression.
    """

    mean: FloatArray
    residuals: FloatArray
    ridge: float

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

    def shrunk_by(self, ridge: float) -> "ResidualRegression":
        """The same records with another ridge."""
        return replace(self, ridge=ridge)

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        answers = list(responses)
        plain = PIrt().predict(bank, answers, belief, exclude)
        return self.corrected(plain, bank, answers, belief, exclude)

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
        scores = np.array([answer.score for answer in answers])
        counted = np.ones(bank.n_items, dtype=np.bool_)
        counted[list(exclude)] = False
        n_counted, least = int(counted.sum()), float(scores[counted[asked]].sum())
        rest = counted.copy()
        rest[asked] = False
        n_rest = int(rest.sum())
        residual = scores - bank.expected_score(belief.theta, asked) - self.mean[asked]
        gain = float(self.mean[rest].sum() + self._sum_of(rest, asked) @ residual)
        total = min(max(plain.value * n_counted + gain, least), least + n_rest)
        value = total / n_counted
        return Prediction(
            value=value,
            lo=max(value - (plain.value - plain.lo), 0.0),
            hi=min(value + (plain.hi - plain.value), 1.0),
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
