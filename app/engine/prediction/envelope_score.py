"""The predicted score of a test that draws nothing by lot: what any of three models holds possible.

A test that asks what tells most of theta says little of the rest of the bank: its items are those
that are steepest to the models calibrated. Three models predict the score from such answers.

| model | what it takes the examinee for |
|---|---|
| the bank's own predictor, its interval corrected by tests of held-out examinees | theta alone |
| score curves, the general ability distributed as among those calibrated | like those calibrated |
| score curves, the general ability all but free | anybody |

Of examinees like those calibrated the three say much the same. Of stronger and weaker ones each was
found to be the best somewhere and far off elsewhere, and surest of itself where it was wrong, so
that to weigh them by their variances trusts the wrong one. No draw says which to trust. So the
score is the middle one of the three, which no single model can pull away, and the interval reaches
from the lowest to the highest end of theirs: it holds wherever the interval of any of them does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.engine.bank import ItemBank
from app.engine.prediction.combined_score import CombinedScore
from app.engine.prediction.p_irt import (
    COMBINED,
    Certain,
    Prediction,
    Predictor,
    answered,
    still_counted,
)
from app.engine.prediction.score_model import NORMAL_95
from app.engine.state import Belief, Response


@dataclass(frozen=True, slots=True, eq=False)
class EnvelopeScore:
    """Predicts a score by three models; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        alike: Score curves, the examinee like those calibrated.
        free: Score curves, the examinee anybody.
        own: By the bank's own curves, with intervals that hold for those like the calibrated.
    """

    alike: CombinedScore
    free: CombinedScore
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
        told = [(own.value, own.lo, own.hi)]
        for curves in (self.alike, self.free):
            value, variance, position = curves.alone(answers, exclude)
            half = NORMAL_95 * curves.error.at(position) * variance**0.5
            told.append((value, value - half, value + half))
        values, los, his = zip(*told, strict=True)
        certain = Certain.after(still_counted(self.free.weights, exclude), *answered(answers))
        value, lo, hi = certain.clip(sorted(values)[1], min(los), max(his))
        return Prediction(value=value, lo=lo, hi=hi, method=self.name)
