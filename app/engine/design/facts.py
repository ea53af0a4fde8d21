"""A bank as a design sees it: the facts about it, and the predictors of its scores."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.design.parts import PredictionMethod, unusable
from app.engine.models.base import BoolArray
from app.engine.multidimensional import ProfilePIrt
from app.engine.prediction.learned_curves import LearnedCurves
from app.engine.prediction.p_irt import COMBINED, DESIGN, P_IRT, P_IRT_C, PIrt, Predictor
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import Explanations, ScoreEstimator, prior_doubt
from app.engine.prediction.score_model import BlendedScore, ScorePredictor, Target
from app.engine.prediction.targets import WHOLE_BANK, is_askable, target_weights
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFacts:
    """A bank, with the facts that a design may need in addition.

    Attributes:
        curves: Score curves learned from reference models, or else from the bank's parameters.
        method: Method of prediction; None is `combined`.
        active: Mask of the items that may be asked, shape (n_items,); None means all.
        tags: Tags of each item.
        costs: Expected cost of each item in one unit, above 0, shape (n_items,).
        acceptance: Sympson-Hetter acceptance probability of each item, shape (n_items,).
        targets: Scores that a score model predicts, by tag; empty if none was learned.

    In all methods `shares` are shares of tags in a score; None is the whole bank. A tag without
    items raises `InvalidInputError`.

    Raises:
        InvalidInputError: Facts that do not fit the bank, or a method that needs something which
            the bank lacks or which was not learned.
    """

    bank: ItemBank
    curves: LearnedCurves
    method: PredictionMethod | None = None
    active: BoolArray | None = None
    tags: Sequence[Collection[str]] | None = None
    costs: FloatArray | None = None
    acceptance: FloatArray | None = None
    targets: Mapping[str, Target] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("active", "tags", "costs", "acceptance"):
            values = getattr(self, name)
            if values is not None and len(values) != self.bank.n_items:
                raise InvalidInputError(
                    f"{name}: expected one value for each of {self.bank.n_items} items, "
                    f"got {len(values)}."
                )
        if self.active is not None and not self.active.any():
            raise InvalidInputError("No item of the bank is active: nothing can be asked.")
        if self.costs is not None and not (np.isfinite(self.costs) & (self.costs > 0)).all():
            raise InvalidInputError("Expected costs of items must be finite and above 0.")
        if self.method is PredictionMethod.SCORE_MODEL and not self.targets:
            raise missing(
                "/prediction/method",
                "a version that predicts scores, from the model nested or mirt and records of at "
                "least 20 examinees",
            )
        if self.method is PredictionMethod.P_IRT_C and self.bank.abilities is not None:
            raise missing("/prediction/method", "a bank of one ability")

    @property
    def all_active(self) -> bool:
        """Whether every item of the bank may be asked."""
        return self.active is None or bool(self.active.all())

    @property
    def by_curves(self) -> bool:
        """Whether the method of prediction uses score curves."""
        return self.method in (None, PredictionMethod.COMBINED, PredictionMethod.DESIGN)

    def target_of(self, shares: Mapping[str, float] | None) -> Target | None:
        """The score as a score model predicts it; None without a score model."""
        whole = self.targets.get(WHOLE_BANK)
        if whole is None or not shares:
            return whole
        first = next(iter(shares))
        if len(shares) == 1 and first in self.targets:
            return self.targets[first]
        weights = target_weights(self.bank, shares, self.tags)
        # No held-out widths exist for a mix of tags: those of the whole bank come nearest.
        return Target(whole.model, weights, whole.widths)

    def weights_of(self, shares: Mapping[str, float] | None) -> FloatArray:
        """Weights of the items in a score, summing to 1, shape (n_items,)."""
        # If the items carry no tags, a score model may hold the weights of a task.
        target = self.target_of(shares) if self.tags is None else None
        if target is not None:
            return target.weights
        return target_weights(self.bank, shares or {WHOLE_BANK: 1.0}, self.tags)

    def never_asked(self, shares: Mapping[str, float] | None) -> Target | None:
        """The score model of a target of which `is_askable` says that too little may be asked.

        No sample can represent such a target. The linear model has a covariance for each pair of
        items, and so predicts it better for examinees who are like the reference models. It is None
        without several abilities or a score model, and for a method other than `combined`.
        """
        if self.method is PredictionMethod.DESIGN or self.bank.abilities is None:
            return None
        weights = self.weights_of(shares)
        if not self.by_curves or is_askable(weights, self.active):
            return None
        return self.target_of(shares)

    def predictor(
        self, shares: Mapping[str, float] | None, *, own_level: bool = False
    ) -> Predictor:
        """Predictor of a score; `own_level` says whether its items have a level of their own."""
        if self.by_curves:
            return self._predictor_by_curves(shares, own_level)
        target = self.target_of(shares)
        if target is not None and self.method is PredictionMethod.SCORE_MODEL:
            return ScorePredictor(target)
        if self.bank.abilities is None:
            return PIrt(method=P_IRT_C if self.method is PredictionMethod.P_IRT_C else P_IRT)
        return ProfilePIrt(self.weights_of(shares) if target is None else target.weights)

    def _predictor_by_curves(
        self, shares: Mapping[str, float] | None, own_level: bool
    ) -> Predictor:
        learned, weights = self.curves, self.weights_of(shares)
        # By the sampled questions alone: the curves are not believed to hold.
        alone = self.method is PredictionMethod.DESIGN
        doubt = 1.0 if alone else prior_doubt(learned.n_reference)

        def by(curves: ScoreCurves) -> ScoreEstimator:
            explanations, method = Explanations.of(curves, doubt), DESIGN if alone else COMBINED
            return ScoreEstimator(explanations, weights, self.active, method)

        if target := self.never_asked(shares):
            # The blend needs two estimators that differ by their prior, whatever may be asked.
            both = by(learned.curves.of_the_like()), by(learned.curves)
            return BlendedScore(both, ScorePredictor(target))
        estimator = by(learned.curves.towards(weights, self.active))
        return replace(estimator, own_level=own_level)

    def predictors_of_tags(self, target: Mapping[str, float] | None) -> dict[str, Predictor]:
        """Predictors of the whole bank ("all") and of each tag; none for a bank of one ability.

        The items of a task have a level of their own, unless the test is about this task alone:
        then its answers tell the general ability.
        """
        if self.bank.abilities is None:
            return {}
        tags = {tag for item in self.tags or () for tag in item}
        names = self.targets or (WHOLE_BANK, *sorted(tags - {WHOLE_BANK}))
        without = {WHOLE_BANK} if target is None or len(target) > 1 else {WHOLE_BANK, *target}
        return {name: self.predictor({name: 1.0}, own_level=name not in without) for name in names}


def missing(pointer: str, what: str) -> InvalidInputError:
    """Error of a design that needs something which is not given."""
    return unusable(pointer, f"this needs {what}")
