"""Targets of a score: the whole bank, or the items of some tags."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.base import BoolArray
from app.errors import FieldProblem, InvalidInputError

#: The tag that every item carries.
WHOLE_BANK = "all"
#: Least number of sampled questions whose spread can be estimated.
LEAST_DRAWS = 5
#: Least share of a score's weight that may be asked if sampled questions are to stand for it. If
#: one task of two was never asked, intervals from samples held for 81 to 89 of 100; from three
#: fifths on, samples do as well as the linear model.
_ASKABLE, _ROUNDING = 0.6, 1e-9


def target_weights(
    bank: ItemBank, shares: Mapping[str, float], tags: Sequence[Collection[str]] | None
) -> FloatArray:
    """Weights of the items in a target, summing to 1.

    Args:
        bank: The bank.
        shares: Share of each tag, above 0; the tag "all" is the whole bank. Within a tag all items
            count alike.
        tags: Tags of each item.

    Raises:
        InvalidInputError: A tag without items, or no tags at all.
    """
    weights = np.zeros(bank.n_items)
    total = sum(shares.values())
    for tag, share in shares.items():
        carries = np.ones(bank.n_items, dtype=np.bool_)
        if tag != WHOLE_BANK:
            carries = np.array([tag in item for item in tags or ()], dtype=np.bool_)
            if not carries.any():
                known = sorted({name for item in tags or () for name in item})
                raise InvalidInputError(
                    f"The target {tag!r} has no items; known tags: all"
                    + "".join(f", {name}" for name in known[:20])
                    + ".",
                    problems=[FieldProblem("/selection/target", f"no item has the tag {tag!r}")],
                )
        weights[carries] += share / total / np.count_nonzero(carries)
    return weights


def is_askable(weights: FloatArray, askable: BoolArray | None) -> bool:
    """Whether enough of a score may be asked for sampled questions to stand for it.

    Args:
        weights: Weight of each item in the score, shape (n_items,).
        askable: Mask of the items that may be asked; None means all.
    """
    if askable is None:
        return True
    return float(weights[askable].sum()) >= _ASKABLE * float(weights.sum()) - _ROUNDING


def is_drawable(weights: FloatArray, askable: BoolArray | None) -> bool:
    """Whether enough items of a score may be asked to estimate it by sampling; see `is_askable`."""
    return askable is None or int(np.count_nonzero(weights[askable] > 0.0)) >= LEAST_DRAWS


#: Separators between a task's name and the rest of an item's id.
_SEPARATORS = "/:|#._-"


def tags_in_ids(items: Sequence[str]) -> tuple[frozenset[str], ...]:
    """Tags from the prefixes of ids: `arc/17`, `arc:17` and `arc_easy_17` are tagged `arc`.

    The prefix before each separator is a tag, so `arc_easy_17` is tagged `arc_easy` too.
    """
    return tuple(
        frozenset(item[:end] for end, sign in enumerate(item) if end and sign in _SEPARATORS)
        for item in items
    )
