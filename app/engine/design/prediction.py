"""Predictors of scores on a bank, as a design describes them."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.engine.design.parts import PredictionMethod
from app.engine.design.selection import (
    BankFacts,
    by_curves,
    doubt_of,
    missing,
    never_asked,
    predicted_target,
    weights_of,
)
from app.engine.multidimensional import ProfilePIrt
from app.engine.prediction.p_irt import PIrt, Predictor
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator
from app.engine.prediction.score_model import BlendedScore, ScorePredictor
from app.engine.prediction.targets import WHOLE_BANK


@dataclass(frozen=True, slots=True)
class Predictors:
    """Predictors of the scores on one bank.

    Attributes:
        facts: The bank and what was learned about it.
        method: Method of the design; None is `combined`.

    Raises:
        InvalidInputError: The method needs something that the bank lacks or was not learned.
    """

    facts: BankFacts
    method: PredictionMethod | None

    def __post_init__(self) -> None:
        if self.method is PredictionMethod.SCORE_MODEL and not self.facts.targets:
            raise missing(
                "/prediction/method",
                "a version that predicts scores, from the model nested or mirt and records of at "
                "least 20 examinees",
            )
        if self.method is PredictionMethod.P_IRT_C and self.facts.bank.abilities is not None:
            raise missing("/prediction/method", "a bank of one ability")

    def of_target(self, shares: Mapping[str, float] | None) -> Predictor:
        """Predictor of the score on a mix of tags; None is the whole bank.

        Raises:
            InvalidInputError: A tag has no items.
        """
        facts = self.facts
        if by_curves(self.method):
            return self._by_curves(shares)
        target = predicted_target(facts, shares)
        if target is not None and self.method is PredictionMethod.SCORE_MODEL:
            return ScorePredictor(target)
        if facts.bank.abilities is None:
            return PIrt(negative_slope="c" if self.method is PredictionMethod.P_IRT_C else "model")
        return ProfilePIrt(weights_of(facts, shares) if target is None else target.weights)

    def _by_curves(self, shares: Mapping[str, float] | None) -> Predictor:
        facts, tags = self.facts, shares or {WHOLE_BANK: 1.0}
        weights = weights_of(facts, shares)
        # No held-out errors exist for a mix of tags: those of the whole bank come nearest.
        name = next(iter(tags)) if len(tags) == 1 else WHOLE_BANK
        error = facts.curves.error_of(name)

        def by(curves: ScoreCurves) -> ScoreEstimator:
            explained = Explanations(curves, doubt_of(facts.curves, self.method))
            return ScoreEstimator(explained, weights, error, facts.active)

        curves = facts.curves.curves
        if target := never_asked(facts, shares, self.method):
            # The blend needs two estimators that differ by their prior, whatever may be asked.
            return BlendedScore((by(curves.of_the_like()), by(curves)), ScorePredictor(target))
        return by(curves.towards(weights, facts.active))

    def of_tags(self) -> dict[str, Predictor]:
        """Predictors of the whole bank ("all") and of each tag; none for a bank of one ability."""
        facts = self.facts
        if facts.bank.abilities is None:
            return {}
        names = facts.targets or dict.fromkeys(
            (WHOLE_BANK, *sorted({tag for item in facts.tags or () for tag in item} - {WHOLE_BANK}))
        )
        return {name: self.of_target({name: 1.0}) for name in names}
