"""Answers of an ended session as the beginning of a new one."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.errors import InvalidInputError
from app.records.sessions import Administration
from app.services.banks.loaded import LoadedVersion


def renumbered(administrations: Sequence[Administration]) -> list[Administration]:
    """Steps and arrivals counted from 1 without gaps, their order kept."""
    arrivals = {
        item.step: nth
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.arrival or 0), 1)
    }
    return [
        replace(item, step=nth, arrival=arrivals[item.step])
        for nth, item in enumerate(sorted(administrations, key=lambda i: i.step), 1)
    ]


def as_asked(administrations: Sequence[Administration]) -> list[Administration]:
    """The same items, their answers awaited."""
    return [replace(item, arrival=None, answered_at=None, closing=None) for item in administrations]


def moved(
    administrations: Sequence[Administration], source: LoadedVersion, target: LoadedVersion
) -> list[Administration]:
    """The same answers at the positions that their items have in another version.

    Chances to be drawn are those among the items that could be asked: among others nobody knows
    them, and they are dropped.

    Raises:
        InvalidInputError: The other version has none of the items.
    """
    same = _askable(source) == _askable(target)
    moved = [
        replace(item, position=position, probability=item.probability if same else None)
        for item in administrations
        if (position := target.position_of(source.key_at(item.position))) is not None
    ]
    if not moved:
        raise InvalidInputError(
            f"None of the {len(administrations)} answered items is in version {target.number} of "
            f"bank {target.bank_name!r}."
        )
    return moved


def _askable(version: LoadedVersion) -> frozenset[str]:
    return frozenset(version.keys[at] for at in np.flatnonzero(version.active))
