"""Fixed short forms as files: `item,weight`; the first row, without an item, is the constant."""

from collections.abc import Sequence

from app.exchange.cells import lines, quoted


def write_form(items: Sequence[str], weights: Sequence[float], constant: float) -> bytes:
    """A form as CSV.

    Args:
        items: Keys of its items.
        weights: Of their scores, one for each item.
        constant: What the weighted sum is added to.
    """
    return lines(
        [("item", "weight"), ("", constant), *zip(map(quoted, items), weights, strict=True)]
    )
