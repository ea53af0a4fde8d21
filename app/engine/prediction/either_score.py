"""The predicted score of a test for it of which most is never asked: whoever the examinee is.

Of items in quarantine no draw tells, and how they go with the others depends on whether the
examinee is like those calibrated. The score is that of an examinee who may be anybody; the interval
holds what is held possible of one who is like those calibrated, too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app.engine.bank import ItemBank
from app.engine.prediction.combined_score import CombinedScore
from app.engine.prediction.p_irt import COMBINED, Prediction
from app.engine.state import Belief, Response


@dataclass(frozen=True, slots=True, eq=False)
class EitherScore:
    """Predicts a score by two models; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        alike: Curves and draws, the examinee like those calibrated.
        free: The same, the examinee anybody.
    """

    alike: CombinedScore
    free: CombinedScore

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
        told, other = (
            one.predict(bank, answers, belief, exclude) for one in (self.free, self.alike)
        )
        lo, hi = min(told.lo, other.lo), max(told.hi, other.hi)
        return Prediction(value=told.value, lo=lo, hi=hi, method=self.name)
