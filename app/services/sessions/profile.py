"""What a session tells of several abilities: each with its error, and the score of each task."""

from collections import Counter
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.multidimensional.belief import ProfileBelief
from app.engine.prediction.nonresponse import allowing_for_nonresponse
from app.engine.prediction.score_model import NORMAL_95
from app.engine.prediction.targets import WHOLE_BANK
from app.engine.state import CatState
from app.services.banks.loaded import LoadedVersion

#: Tasks whose scores are predicted; a page of more is read by no one.
_MOST_TASKS = 50


def profile_of(
    version: LoadedVersion,
    test: AdaptiveTest,
    state: CatState,
    target: Mapping[str, float] | None = None,
) -> dict[str, Any] | None:
    """The profile as JSON; None where the version measures one ability.

    Args:
        version: What is asked.
        test: How.
        state: The test so far.
        target: The score that the test is about. Where that is not the whole bank, the whole bank
            is told among the tasks.
    """
    belief, abilities = state.belief, version.bank.abilities
    if not isinstance(belief, ProfileBelief) or abilities is None:
        return None
    profile = belief.profile
    asked = Counter(tag for response in state.responses for tag in version.tags[response.item])
    asked[WHOLE_BANK] = state.n_scored
    tasks = []
    for name, predictor in list(test.tasks.items())[: _MOST_TASKS + 1]:
        if name == WHOLE_BANK and (target is None or set(target) == {WHOLE_BANK}):
            continue
        predicted = allowing_for_nonresponse(
            predictor.predict(version.bank, state.responses, state.belief), state
        )
        tasks.append(
            {
                "tag": name,
                "value": predicted.value,
                "lo": predicted.lo,
                "hi": predicted.hi,
                "n_items": version.tag_counts[name],
                "n_asked": asked[name],
            }
        )
    half = NORMAL_95 * profile.se
    ends = np.stack([profile.mean - half, profile.mean + half], axis=1)
    if abilities.items.nested:
        told = test.estimate(state)  # of the general ability, with what others taught
        ends[0] = told.lo, told.hi
    return {
        "abilities": [
            {
                "name": name,
                "value": value,
                "se": se,
                "lo": lo,
                "hi": hi,
                "above": NormalDist(mean, spread).cdf(value),
            }
            for name, value, se, (lo, hi), mean, spread in zip(
                abilities.items.names,
                profile.mean.tolist(),
                profile.se.tolist(),
                ends.tolist(),
                abilities.population.mean.tolist(),
                np.sqrt(np.diag(abilities.population.covariance)).tolist(),
                strict=True,
            )
        ],
        "tasks": tasks,
    }
