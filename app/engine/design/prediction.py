"""How the tests of a design predict scores on a bank."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.engine.design.parts import PredictionMethod
from app.engine.design.selection import BankFacts, missing, predicted_target
from app.engine.multidimensional.prediction import ProfilePIrt
from app.engine.prediction.correction import VersionLearning
from app.engine.prediction.p_irt import PIrt, Predictor
from app.engine.prediction.score_model import ScorePredictor
from app.engine.prediction.targets import WHOLE_BANK, target_weights


@dataclass(frozen=True, slots=True)
class Predictors:
    """Predictors of the scores on one bank.

    Attributes:
        facts: The bank.
        learned: What other examinees taught; the intervals of p-IRT take it.
        method: As the design has it.

    Raises:
        InvalidInputError: The score model is wanted and the bank has none.
    """

    facts: BankFacts
    learned: VersionLearning
    method: PredictionMethod | None

    def __post_init__(self) -> None:
        if self.method is PredictionMethod.SCORE_MODEL and not self.facts.targets:
            raise missing(
                "/prediction/method",
                "a version that predicts scores, from the model nested or mirt and records of at "
                "least 20 examinees",
            )

    def of_target(self, shares: Mapping[str, float] | None) -> Predictor:
        """Of a mix of tags; None is the whole bank.

        Raises:
            InvalidInputError: A tag without items.
        """
        facts = self.facts
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

    def of_tags(self) -> dict[str, Predictor]:
        """Of the whole bank ("all") and of each tag; none where the bank has one ability."""
        facts = self.facts
        if facts.bank.abilities is None:
            return {}
        names = facts.targets or dict.fromkeys(
            (WHOLE_BANK, *sorted({tag for item in facts.tags or () for tag in item} - {WHOLE_BANK}))
        )
        return {name: self.of_target({name: 1.0}) for name in names}
