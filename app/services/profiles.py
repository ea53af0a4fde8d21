"""What a session tells of several abilities: each with its error, and the score of each task."""

from statistics import NormalDist
from typing import Any

import numpy as np

from app.engine.abilities import ProfileBelief
from app.engine.score_model import NORMAL_95
from app.engine.selection.design import WHOLE_BANK
from app.engine.state import CatState
from app.services.loaded_version import LoadedVersion

#: Tasks whose scores are predicted; a page of more is read by no one.
_MOST_TASKS = 50


def profile_of(version: LoadedVersion, state: CatState) -> dict[str, Any] | None:
    """The profile as JSON; None where the version measures one ability."""
    belief, abilities = state.belief, version.bank.abilities
    if not isinstance(belief, ProfileBelief) or abilities is None:
        return None
    profile = belief.profile
    items = [response.item for response in state.responses]
    scores = np.array([response.score for response in state.responses])
    tasks = []
    for name, target in list(version.targets.items())[: _MOST_TASKS + 1]:
        if name == WHOLE_BANK:
            continue
        value, lo, hi = target.interval(items, scores)
        tasks.append(
            {
                "tag": name,
                "value": value,
                "lo": lo,
                "hi": hi,
                "n_items": int(np.count_nonzero(target.weights)),
                "n_asked": int(np.count_nonzero(target.weights[items])),
            }
        )
    return {
        "abilities": [
            {
                "name": name,
                "value": value,
                "se": se,
                "lo": value - NORMAL_95 * se,
                "hi": value + NORMAL_95 * se,
                "above": NormalDist(mean, spread).cdf(value),
            }
            for name, value, se, mean, spread in zip(
                abilities.items.names,
                profile.mean.tolist(),
                profile.se.tolist(),
                abilities.population.mean.tolist(),
                np.sqrt(np.diag(abilities.population.covariance)).tolist(),
                strict=True,
            )
        ],
        "tasks": tasks,
    }
