"""The predicted score of a test for theta that goes on by lot: draws tell a part, models the rest.

Where the items that tell most of theta leave open whom of those calibrated an examinee is like,
such a test goes on by lot, see `app.engine.selection.by_lot`. Until then its score is told by what
any of three models holds possible, `app.engine.prediction.envelope_score`; once five items were
drawn they say what no model knows, and the score has two parts.

What can be asked is told by score curves and draws combined, the examinee being anybody. Of items
in quarantine, which are part of the score and never asked, draws tell nothing, and what is true of
the others need not be true of them: where models differ by their leaning to one of two labels, half
of the items fall with theta. Of these the three models tell, as before.

| symbol | meaning |
|---|---|
| m, m' | the two, each the mean score of its items |
| s, 1 - s | what the two parts count |
| s m + (1 - s) m' | score |
| (s h)^2 + ((1 - s) h')^2 | square of a half of the interval, by those of the parts |
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import hypot

import numpy as np

from app.engine.bank import ItemBank
from app.engine.prediction.combined_score import CombinedScore
from app.engine.prediction.design_based import after_lead
from app.engine.prediction.envelope_score import EnvelopeScore
from app.engine.prediction.p_irt import COMBINED, Prediction
from app.engine.prediction.targets import LEAST_DRAWS
from app.engine.state import Belief, Response


@dataclass(frozen=True, slots=True, eq=False)
class PartsScore:
    """Predicts a score by its parts; see `app.engine.prediction.p_irt.Predictor`.

    Attributes:
        drawn: Of what can be drawn.
        rest: Of what cannot, and of all while too little was drawn.
    """

    drawn: CombinedScore
    rest: EnvelopeScore

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
        counted = self.drawn.weights > 0.0
        counted[list(exclude)] = False
        askable = counted if self.drawn.askable is None else counted & self.drawn.askable
        if sum(after_lead(one.draw) for one in answers) < LEAST_DRAWS or not askable.any():
            return self.rest.predict(bank, answers, belief, exclude)
        others = counted & ~askable
        if not others.any():
            return self.drawn.predict(bank, answers, belief, exclude)
        weights = self.drawn.weights
        share = float(weights[askable].sum() / weights[counted].sum())
        one = self.drawn.predict(bank, answers, belief, np.flatnonzero(~askable).tolist())
        other = self.rest.predict(bank, answers, belief, np.flatnonzero(~others).tolist())
        value = share * one.value + (1.0 - share) * other.value
        below = hypot(share * (one.value - one.lo), (1.0 - share) * (other.value - other.lo))
        above = hypot(share * (one.hi - one.value), (1.0 - share) * (other.hi - other.value))
        return Prediction(value=value, lo=value - below, hi=value + above, method=self.name)
