"""Predicted score of a task that is never asked: an average of score curves and a linear model.

No sampled questions are of such a task. The linear model predicts m with variance s^2. The score
curves predict m_1 for an examinee like the reference models and m_2 for any other: together
(m_1 + m_2) / 2, with the mean of both variances plus (m_1 - m_2)^2 / 4. The two predictions are
weighted by their precisions, and their difference widens the interval.

Source: Hoeting, Madigan, Raftery & Volinsky (1999), Statistical Science 14, for averages of models.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.engine.bank import ItemBank
from app.engine.prediction.p_irt import (
    COMBINED,
    Certain,
    Prediction,
    Predictor,
    still_counted,
)
from app.engine.prediction.score_estimate import ScoreEstimator
from app.engine.prediction.score_model import NORMAL_95
from app.engine.state import Belief, Response, answered

_SURE = 1e-6  # least standard deviation of a prediction


@dataclass(frozen=True, slots=True, eq=False)
class BlendedScore:
    """Predicts a score by two models; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        curves: Score curves with each of two priors of the general ability.
        own: Linear model with calibrated intervals.
    """

    curves: tuple[ScoreEstimator, ScoreEstimator]
    own: Predictor

    @property
    def name(self) -> str:
        """Name in results."""
        return COMBINED

    def predict(
        self,
        bank: ItemBank,
        responses: Iterable[Response],
        belief: Belief,
        exclude: Sequence[int] = (),
    ) -> Prediction:
        """See `app.engine.prediction.p_irt.Predictor`."""
        answers = list(responses)
        own = self.own.predict(bank, answers, belief, exclude)
        # The longer half: the answers may have cut the other one off.
        half = max(own.hi - own.value, own.value - own.lo)
        variance = max(half / NORMAL_95, _SURE) ** 2
        by_curves, of_curves = self._by_curves(answers, exclude)
        share = variance / (variance + of_curves)
        apart = by_curves - own.value
        value = own.value + share * apart
        total = share * of_curves + (1.0 - share) * (variance + share * apart**2)
        half = NORMAL_95 * total**0.5
        weights = still_counted(self.curves[0].weights, exclude)
        certain = Certain.after(weights, *answered(answers))
        value, lo, hi = certain.clip(value, value - half, value + half)
        return Prediction(value=value, lo=lo, hi=hi, method=self.name)

    def _by_curves(
        self, answers: Sequence[Response], exclude: Sequence[int]
    ) -> tuple[float, float]:
        """Score by the score curves, and its variance."""
        readings = [curves.by_curves(answers, exclude) for curves in self.curves]
        within = [
            curves.error.at(position) ** 2 * variance
            for curves, (_, variance, position) in zip(self.curves, readings, strict=True)
        ]
        (one, _, _), (other, _, _) = readings
        spread = sum(within) / 2.0 + (one - other) ** 2 / 4.0
        return (one + other) / 2.0, max(spread, _SURE**2)
