"""Where a session's examinee stands among the reference models, and whether their curves hold."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from app.engine.adaptive import AdaptiveTest
from app.engine.prediction.extrapolation import extrapolation
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, prior_doubt
from app.engine.prediction.targets import WHOLE_BANK, target_weights
from app.engine.state import CatState
from app.services.banks.loaded import LoadedVersion


def position_of(
    version: LoadedVersion,
    test: AdaptiveTest,
    state: CatState,
    target: Mapping[str, float] | None = None,
) -> dict[str, Any] | None:
    """The extrapolation as JSON; None where the version has learned nothing to judge it by.

    Args:
        version: What is asked.
        test: How.
        state: The test so far.
        target: The score that the test is about; None is that of the whole bank.
    """
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
