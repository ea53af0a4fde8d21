"""Right and wrong answers for simulated examinees."""

import numpy as np

from app.items import ItemContent, ScorerSpec
from app.scorers.registry import default_registry


def reference_answers(
    item: ItemContent, spec: ScorerSpec, rng: np.random.Generator
) -> tuple[str, str]:
    """A right and a wrong answer to `item`, as its scorer marks them.

    Raises:
        InvalidInputError: The item has no accepted answer, or none that its scorer accepts.
        UnknownNameError: No scorer of that name is installed.
    """
    return default_registry().build(spec).examples(item, rng)
