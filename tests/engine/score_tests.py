"""Tests for a score, built of their parts, for any curves and weights."""

import numpy as np

from app.engine.adaptive import AdaptiveTest
from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation.estimators import GridEstimator
from app.engine.information_index import index_of
from app.engine.models.base import BoolArray
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator
from app.engine.selection.base import Pool
from app.engine.selection.sampled import CurveVariance, Sampled, WantedOrSampled
from app.engine.selection.selectors import Randomesque
from app.engine.stopping import AnyOf, MaxItems


def score_test(
    explanations: Explanations, weights: FloatArray, length: int, active: BoolArray
) -> AdaptiveTest:
    """Return the fixed-length test for a score that a bank with these curves gives."""
    curves = explanations.curves
    bank = ItemBank.from_intercepts(
        a=np.ones(weights.size), intercept=curves.intercept, item_ids=None
    )
    estimator = ScoreEstimator(explanations, weights, active)
    return AdaptiveTest(
        pool=Pool(index=index_of(bank), active=active),
        estimator=GridEstimator(),
        selector=WantedOrSampled(
            estimator=estimator,
            wanted=Randomesque(criterion=CurveVariance(curves=curves, weights=weights)),
            sampled=Sampled.of(curves, weights),
        ),
        stopping=AnyOf(goals=(), limits=(MaxItems(items=length),), min_items=0),
        predictor=estimator,
    )
