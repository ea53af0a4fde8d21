"""Tasks of a bank, named by the prefixes of its items' ids. Pure."""

import numpy as np

from app.engine.bank import FloatArray
from app.engine.prediction.targets import WHOLE_BANK, tags_in_ids

#: Tasks whose predicted scores get widths of their own.
_MOST_TASKS, _LEAST_ITEMS = 12, 5


def task_targets(items: tuple[str, ...]) -> dict[str, FloatArray]:
    """Weights of the whole bank, and of the tasks that the items' ids name, by name."""
    n = len(items)
    targets = {WHOLE_BANK: np.full(n, 1.0 / n)}
    tags = tags_in_ids(items)
    counted: dict[str, int] = {}
    for item in tags:
        for tag in item:
            counted[tag] = counted.get(tag, 0) + 1
    usual = sorted(
        (tag for tag, count in counted.items() if _LEAST_ITEMS <= count < n and tag != WHOLE_BANK),
        key=lambda tag: -counted[tag],
    )
    for tag in usual[:_MOST_TASKS]:
        weights = np.array([float(tag in item) for item in tags])
        targets[tag] = weights / weights.sum()
    return targets
