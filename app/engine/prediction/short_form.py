"""Fixed short forms: the items that predict a score best, for use without adaptive tests.

The predicted score of an examinee is the form's constant plus the sum of weight times score over
its items: the best linear prediction of `app.engine.prediction.score_model`.
"""

import math
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray
from app.engine.models.base import BoolArray
from app.engine.prediction.score_model import NORMAL_95, Target, short_form
from app.errors import FieldProblem, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortForm:
    """A form, and its precision.

    Attributes:
        items: Positions of its items, the most informative first.
        weights: Weights of the scores on the items.
        constant: Predicted score of an examinee with no right answer.
        half_width: Half width of the predicted score's 95 % interval, calibrated on held-out
            records.
        cost: Sum of the items' costs; None without costs.
    """

    items: tuple[int, ...]
    weights: tuple[float, ...]
    constant: float
    half_width: float
    cost: float | None

    @property
    def expected_error(self) -> float:
        """Mean absolute error of the predicted score, for normal errors."""
        return self.half_width / NORMAL_95 * math.sqrt(2.0 / math.pi)


def compose(
    target: Target,
    count: int,
    *,
    askable: BoolArray | None = None,
    costs: FloatArray | None = None,
) -> ShortForm:
    """The best form of `count` items.

    Args:
        target: Score that the form predicts.
        count: Number of its items.
        askable: Mask of the items that it may have, shape (n_items,); all by default.
        costs: Costs of the items, to choose by gain per cost, shape (n_items,).

    Raises:
        InvalidInputError: `count` is below 1 or above the number of items that may be asked.
    """
    usable = np.ones(target.weights.size, np.bool_) if askable is None else askable
    n_usable = int(np.count_nonzero(usable))
    if not 1 <= count <= n_usable:
        detail = f"expected 1 to {n_usable} items, as many as may be asked, got {count}"
        raise InvalidInputError(
            f"A form of {count} items cannot be built: {detail}.",
            problems=[FieldProblem("/items", detail)],
        )
    price = np.where(usable, 1.0 if costs is None else costs, np.inf)
    form = short_form(target, count, price)
    constant, sd = target.predict(form, np.zeros(count))
    alone, _ = target.predict(form, np.eye(count))
    return ShortForm(
        items=tuple(form),
        weights=tuple((alone - constant).tolist()),
        constant=float(constant),
        half_width=target.widths.at(count) * sd,
        cost=None if costs is None else float(costs[form].sum()),
    )
