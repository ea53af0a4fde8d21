"""Names of items' slopes on several abilities, in files.

In files, abilities are standard normal among the reference models, so that no population needs to
be stored. mirt numbers the slopes `a1, a2, ...`. Our own files name them by ability: `general`, if
there is one, then `dimension_1, dimension_2, ...`.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from app.engine.bank import DEFAULT_SCALE, FloatArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.errors import ItemBankError

GENERAL = "general"


def mirt_names(columns: Sequence[str]) -> tuple[str, ...]:
    """`a1` to `aK` among a file's columns, if there are several without a gap."""
    names = _counted("a", columns)
    return names if len(names) > 1 else ()


def own_names(columns: Sequence[str]) -> tuple[str, ...]:
    """The abilities that a file's columns name, in order; empty if there are none."""
    numbered = _counted("dimension_", columns)
    if not numbered:
        return ()
    return (GENERAL, *numbered) if GENERAL in columns else numbered


def bank_of_slopes(
    slopes: Mapping[str, Sequence[float] | FloatArray],
    intercept: Sequence[float] | FloatArray,
    item_ids: Sequence[str],
    *,
    scale: str = DEFAULT_SCALE,
) -> ItemBank:
    """Make the bank of a file; it is nested if the first slope is that of the general ability."""
    table = np.column_stack([np.asarray(values, np.float64) for values in slopes.values()])
    d = table.shape[1]
    items = Loadings.from_slopes(
        table, np.asarray(intercept, np.float64), nested=next(iter(slopes)) == GENERAL
    )
    population = Population(mean=np.zeros(d), covariance=np.eye(d))
    return ItemBank.from_abilities(MultidimensionalModel(items, population), item_ids, scale=scale)


def slopes_by_name(bank: ItemBank) -> dict[str, FloatArray]:
    """Slopes of a standardised bank, shape (n_items,) each; empty for a bank of one ability."""
    if bank.abilities is None:
        return {}
    items = bank.abilities.items
    return dict(zip(items.names, items.across, strict=True))


def bank_of_columns(
    columns: Mapping[str, FloatArray],
    slopes: Mapping[str, FloatArray],
    item_ids: Sequence[str],
    *,
    name: str,
    scale: str,
) -> ItemBank:
    """Make the bank of a file of columns.

    Args:
        columns: `a`, `intercept` or `b` (`intercept` wins if both exist), and maybe `c`, `d`, `k`.
        slopes: Slopes on several abilities; empty for one ability.
        item_ids: Item id of each row.
        name: Name of the file.
        scale: Name of the theta scale.

    Raises:
        ItemBankError: Invalid parameters, such as asymptotes beside several slopes.
    """
    shared = {column: columns.get(column) for column in ("c", "d", "k")}
    if slopes:
        bent = (columns.get("c", np.zeros(1)) != 0.0) | (columns.get("d", np.ones(1)) != 1.0)
        if bent.any():
            first = item_ids[int(np.flatnonzero(bent)[0])]
            raise ItemBankError(
                f"{name}: expected no asymptotes beside several slopes (lower 0, upper 1), got "
                f"some with {int(bent.sum())} items, the first is {first!r}."
            )
        return bank_of_slopes(slopes, columns["intercept"], item_ids, scale=scale)
    if "intercept" in columns:
        return ItemBank.from_intercepts(
            a=columns["a"], intercept=columns["intercept"], item_ids=item_ids, scale=scale, **shared
        )
    return ItemBank.from_difficulties(
        a=columns["a"], b=columns["b"], item_ids=item_ids, scale=scale, **shared
    )


def _counted(prefix: str, columns: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    while (following := f"{prefix}{len(names) + 1}") in columns:
        names.append(following)
    return tuple(names)
