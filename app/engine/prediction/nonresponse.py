"""Answers without a mark are non-response: what the predicted score's interval owes them.

A share f of the asked items ended without a score. The predictor leaves them out, as if those
answers were like the marked ones (missing at random). They may be worse: texts that cannot be read,
refusals and cut-off answers are commoner where items are hard. How much worse nobody knows, but a
mean below 0 is impossible, and unmarked answers that are better than marked ones are not what
failures look like. Their mean is therefore taken to lie between 0 and the prediction, here and
on the items that were not asked, of which the same share would fail. The score of all is then
between (1 - f) times the prediction and the prediction, and the lower end of its interval becomes
(1 - f) times what it was. Bounds without any assumption would reach up to lo (1 - f) and hi + f
(1 - hi): too wide to decide anything by.

Source: Manski (2003), Partial Identification of Probability Distributions, chapter 1, for bounds
under non-response and how assumptions narrow them.
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
