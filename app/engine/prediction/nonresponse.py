"""Answers without a mark are non-response: what the predicted score's interval owes them.

A share f of the asked items ended without a score. Their mean is taken to lie between 0 and the
prediction, and the same share of the other items to fail alike: the lower end of the interval
becomes (1 - f) times what it was. See docs/concepts.md, "Answers without a score".

Source: Manski (2003), Partial Identification of Probability Distributions, chapter 1.
"""

from dataclasses import replace

from app.engine.prediction.p_irt import Prediction
from app.engine.state import CatState


def allowing_for_nonresponse(prediction: Prediction, state: CatState) -> Prediction:
    """The same score with an interval that has room for the answers without a mark.

    Args:
        prediction: From the marked answers alone.
        state: The test, whose `unscored` are the others.
    """
    n_unscored = len(state.unscored)
    if not n_unscored:
        return prediction
    share = n_unscored / (n_unscored + state.n_scored)
    return replace(prediction, lo=(1 - share) * prediction.lo, nonresponse=share)
