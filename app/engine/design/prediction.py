"""How the tests of a design predict scores on a bank."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from app.engine.design.parts import PredictionMethod
from app.engine.design.selection import (
    BY_CURVES,
    BankFacts,
    by_curves,
    missing,
    never_asked,
    predicted_target,
)
from app.engine.multidimensional.prediction import ProfilePIrt
from app.engine.prediction.blended_score import BlendedScore
from app.engine.prediction.combined_score import CombinedScore, DesignScore
from app.engine.prediction.correction import VersionLearning
from app.engine.prediction.either_score import EitherScore
from app.engine.prediction.envelope_score import EnvelopeScore
from app.engine.prediction.p_irt import PIrt, Predictor
from app.engine.prediction.parts_score import PartsScore
from app.engine.prediction.score_model import ScorePredictor
from app.engine.prediction.targets import WHOLE_BANK, is_askable, target_weights


@dataclass(frozen=True, slots=True)
class Predictors:
    """Predictors of the scores on one bank.

    Attributes:
        facts: The bank.
        learned: What other examinees taught; the intervals of p-IRT take it.
        method: As the design has it.
        draws: Whether tests draw items with known probabilities.

    Raises:
        InvalidInputError: Another method than p-IRT is wanted, and what it takes was not learned.
    """

    facts: BankFacts
    learned: VersionLearning
    method: PredictionMethod | None
    draws: bool = True

    def __post_init__(self) -> None:
        if self.method is PredictionMethod.SCORE_MODEL and not self.facts.targets:
            raise missing(
                "/prediction/method",
                "a version that predicts scores, from the model nested or mirt and records of at "
                "least 20 examinees",
            )

        if self.method in BY_CURVES and self.facts.curves is None:
            raise missing(
                "/prediction/method",
                "a version that has learned score curves, from records of at least 20 examinees",
            )

    def of_target(self, shares: Mapping[str, float] | None) -> Predictor:
        """Of a mix of tags; None is the whole bank.

        Raises:
            InvalidInputError: A tag without items.
        """
        facts = self.facts
        if by_curves(facts, self.method):
            return self._by_curves(shares)
        target = predicted_target(facts, shares)
        if target is not None and self.method is not PredictionMethod.P_IRT:
            return ScorePredictor(target)
        if facts.bank.abilities is None:
            return self.learned.predicting(PIrt())
        if target is None:
            weights = target_weights(facts.bank, shares or {WHOLE_BANK: 1.0}, facts.tags)
        else:
            weights = target.weights
        # Corrections are learned on the whole bank; of a part it is the nearest there is.
        return self.learned.predicting(ProfilePIrt(weights), weights)

    def _by_curves(self, shares: Mapping[str, float] | None) -> Predictor:
        facts, wanted = self.facts, shares or {WHOLE_BANK: 1.0}
        assert facts.curves is not None  # noqa: S101  # `by_curves` has seen to it
        weights = target_weights(facts.bank, wanted, facts.tags)
        # Of a mix nothing was held out; the whole bank's errors are the nearest there are.
        name = next(iter(wanted)) if len(wanted) == 1 else WHOLE_BANK
        kind = DesignScore if self.method is PredictionMethod.DESIGN else CombinedScore
        curves, error = facts.curves.curves, facts.curves.error_of(name)
        combined = kind(curves.towards(weights, facts.active), weights, error, facts.active)
        # Two models that are to differ by their prior, whatever may be asked.
        alike, free = (replace(combined, curves=one) for one in (curves.of_the_like(), curves))
        if target := never_asked(facts, shares, self.method):
            return BlendedScore((alike, free), ScorePredictor(target))
        untold = self.learned.interval_correction is None  # how wrong item curves are is not known
        if facts.bank.abilities is not None or kind is DesignScore:
            return combined
        if self.draws and not is_askable(weights, facts.active):
            return EitherScore(alike, combined)
        if self.draws or untold:
            return combined
        rest = EnvelopeScore(alike, free, self.learned.predicting(PIrt()))
        return PartsScore(free, rest)

    def of_tags(self) -> dict[str, Predictor]:
        """Of the whole bank ("all") and of each tag; none where the bank has one ability."""
        facts = self.facts
        if facts.bank.abilities is None:
            return {}
        names = facts.targets or dict.fromkeys(
            (WHOLE_BANK, *sorted({tag for item in facts.tags or () for tag in item} - {WHOLE_BANK}))
        )
        return {name: self.of_target({name: 1.0}) for name in names}
