"""What a session shows: fit, position and profile; and when figures are told at all.

An estimate exists after any answer, and before the first: it is the prior then. Nobody asks for
that. Intervals that hold are learned from tests that are looked at after `MIN_MARKED` answers at
the earliest (`app.engine.prediction.correction`): after fewer, nobody has checked how often they
hold. Theta, its error and interval, the predicted score and the profile are null before, and the
reason is given. What was answered stays in the session, item by item.

Theta has one more condition. From fewer than 20 reference models nobody can learn how often its
intervals hold, and they hold far too seldom: theta is withheld, and the score stands.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from statistics import NormalDist
from typing import Any

import numpy as np

from app.engine import Response, inversions, person_fit
from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray
from app.engine.multidimensional.belief import ProfileBelief
from app.engine.prediction.correction import KNOTS
from app.engine.prediction.extrapolation import extrapolation
from app.engine.prediction.p_irt import allowing_for_nonresponse
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, prior_doubt
from app.engine.prediction.score_model import NORMAL_95
from app.engine.prediction.targets import WHOLE_BANK, target_weights
from app.engine.state import CatState
from app.records.fields import finite, interval
from app.services.banks.loaded import LoadedVersion

#: Marked answers from which on a result is told.
MIN_MARKED = KNOTS[0]
#: Parts of a session's figures that are a result.
_RESULTS = ("score", "profile")


def person_fit_of(
    version: LoadedVersion, responses: Sequence[Response], theta: float | FloatArray
) -> dict[str, Any]:
    """The fit of these answers at the final estimate, JSON-able."""
    fit = person_fit(version.bank, responses, theta)
    turned = inversions(version.bank, responses, theta)
    return {
        "lz": finite(fit.lz),
        "p_value": finite(fit.p_value),
        "flagged": fit.flagged,
        "inversions": {
            "observed": round(turned.observed, 3),
            "expected": round(turned.expected, 3),
        },
        "surprises": [
            {
                "item_id": version.key_at(surprise.item),
                "score": surprise.score,
                "expected": round(surprise.expected, 4),
            }
            for surprise in turned.surprises
        ],
    }


def position_of(
    version: LoadedVersion,
    test: AdaptiveTest,
    state: CatState,
    target: Mapping[str, float] | None = None,
) -> dict[str, Any] | None:
    """The extrapolation as JSON; None where the version has learned nothing to judge it by."""
    learned = version.curves
    if learned is None or (placing := learned.placing) is None:
        return None
    predictor = test.predictor
    if not isinstance(predictor, ScoreEstimator):
        # Whatever predicts the score: how far the examinee is from those calibrated is told.
        weights = target_weights(version.bank, target or {WHOLE_BANK: 1.0}, version.tags)
        curves = learned.curves.towards(weights, version.active)
        error = learned.error_of(WHOLE_BANK)
        explanations = Explanations(curves, prior_doubt(learned.n_reference))
        predictor = ScoreEstimator(explanations, weights, error, version.active)
    found = extrapolation(
        predictor.estimate(state.responses), placing.of(state.responses), learned.population
    )
    return {
        **asdict(found),
        "agrees": found.agrees,
        "detail": found.detail,
        "caution": found.caution,
    }


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
                "interval": interval(predicted.lo, predicted.hi),
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
                "interval": interval(lo, hi),
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


def no_result(marked: int) -> str | None:
    """Why there is no result after so many marked answers; None where there is one."""
    if marked >= MIN_MARKED:
        return None
    return f"Needs at least {MIN_MARKED} scored answers, has {marked}."


def right_in(scores: Sequence[float]) -> dict[str, float | int | None]:
    """How many answers are right, where all are right or wrong, and their mean score.

    Both are null without a scored answer, the number also where one has a score in between.
    """
    if not scores:
        return {"right": None, "mean": None}
    whole = all(score in (0.0, 1.0) for score in scores)
    return {"right": int(sum(scores)) if whole else None, "mean": sum(scores) / len(scores)}


def shown(figures: Mapping[str, Any], withheld: str | None = None) -> dict[str, Any]:
    """A session's figures as people may read them: without a result that has nothing under it."""
    estimate = figures["estimate"]
    reason = no_result(figures["progress"]["scored"])
    if reason is None and withheld is None:
        return {**figures, "estimate": {**estimate, "reason": None}}
    nothing: dict[str, Any] = {
        "theta": None,
        "se": None,
        "interval": None,
        "interval_raw": None,
        "at_bound": False,
        "reason": reason or withheld,
    }
    if reason is None:
        return {**figures, "estimate": {**estimate, **nothing}}
    nothing["extrapolation"] = None
    return {
        **figures,
        "estimate": {**estimate, **nothing},
        **{part: None for part in _RESULTS if part in figures},
    }


class SpareTime:
    """Time that may be spent now; what was spent grows back slowly.

    One worker runs many tests on one thread. With few of them there is always some left, and each
    step tells its own figures; with many, or a large bank, it is dealt to whoever comes first.

    Args:
        share: Of the time that goes by.
        most_s: Seconds that can be saved up.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        *,
        share: float = 0.1,
        most_s: float = 0.1,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._share, self._most_s, self._clock = share, most_s, clock
        self._left_s, self._as_of = most_s, clock()

    def is_left(self) -> bool:
        """Whether something may be worked out now, however long it takes."""
        now = self._clock()
        self._left_s = min(self._most_s, self._left_s + self._share * (now - self._as_of))
        self._as_of = now
        return self._left_s > 0

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Take what the block takes; more than there is has to grow back first."""
        began = self._clock()
        try:
            yield
        finally:
            self._left_s -= self._clock() - began
