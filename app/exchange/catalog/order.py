"""The order in which a harness asked the rows of a split, and so what a published index means.

The harness behind the Open LLM Leaderboard (version 1) shuffled each split before it asked: items
that were numbered by its records are numbered in that order.
"""

import random  # noqa: TID251  the published order is that of Python's own generator
import re
from collections.abc import Mapping, Sequence

from app.errors import InvalidInputError
from app.exchange.catalog.entry import Join


def order_of(join: Join, n_rows: int) -> list[int]:
    """Row of the split at each place, both from 0."""
    rows = list(range(n_rows))
    if join.seed is not None:
        random.Random(join.seed).shuffle(rows)  # noqa: S311  an order that others made, no secret
    return rows


def rows_of_parameters(join: Join, names: Sequence[str], n_rows: int) -> Mapping[str, int]:
    """The row of the split, from 0, that each parameter belongs to, by its name.

    Raises:
        InvalidInputError: A name of another form, beyond the split, or twice the same row.
    """
    before, _, after = join.name.partition("{place}")
    form = re.compile(f"{re.escape(before)}([0-9]{{1,9}}){re.escape(after)}")
    order = order_of(join, n_rows)
    found: dict[str, int] = {}
    for name in names:
        match = form.fullmatch(name)
        place = -1 if match is None else int(match[1]) - join.first
        if not 0 <= place < n_rows:
            last = n_rows - 1 + join.first
            raise InvalidInputError(
                f"Expected parameters named {join.name} with {join.first} to {last} for the place, "
                f"got {name!r}."
            )
        found[name] = order[place]
    if len(set(found.values())) < len(found):
        raise InvalidInputError("Two parameters belong to one row of the split.")
    return found
