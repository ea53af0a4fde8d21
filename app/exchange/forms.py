"""Fixed short forms as files: `item,weight`; the first row, without an item, is the constant."""

import csv
import io
from collections.abc import Sequence


def write_form(items: Sequence[str], weights: Sequence[float], constant: float) -> bytes:
    """A form as CSV.

    Args:
        items: Keys of its items.
        weights: Of their scores, one for each item.
        constant: What the weighted sum is added to.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["item", "weight"])
    # repr of a float is the shortest text that reads back as the same float.
    writer.writerow(["", repr(constant)])
    writer.writerows(zip(items, map(repr, weights), strict=True))
    return text.getvalue().encode()
