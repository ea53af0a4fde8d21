"""Expected cost of asking an item."""

import numpy as np
from numpy.typing import ArrayLike

from app.engine.bank import FloatArray
from app.errors import InvalidInputError

#: Assumed price of a prompt token relative to a written token, if prices are unknown.
INPUT_SHARE = 0.5


def expected_costs(
    tokens_in: ArrayLike,
    tokens_out: ArrayLike,
    *,
    price_in: float | None = None,
    price_out: float | None = None,
) -> FloatArray:
    """Cost of each item: in written tokens, or in money where both prices are given.

    Args:
        tokens_in: Expected tokens of each prompt, shape (n_items,).
        tokens_out: Expected tokens of each answer, shape (n_items,).
        price_in: Price of a prompt token.
        price_out: Price of a written token.

    Raises:
        InvalidInputError: A cost that is not above 0, or only one of the prices.
    """
    read, written = np.asarray(tokens_in, np.float64), np.asarray(tokens_out, np.float64)
    if (price_in is None) != (price_out is None):
        raise InvalidInputError("Costs in money need the price of both prompt and written tokens.")
    if price_in is None or price_out is None:
        costs = INPUT_SHARE * read + written
    else:
        costs = price_in * read + price_out * written
    if not (np.isfinite(costs) & (costs > 0.0)).all():
        raise InvalidInputError("Expected costs of items must be finite and above 0.")
    return np.asarray(costs, dtype=np.float64)
