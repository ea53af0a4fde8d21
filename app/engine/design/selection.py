"""Selection of items as a design describes it: criterion, exposure, content."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from app.engine.design.facts import BankFacts, missing
from app.engine.design.parts import (
    Count,
    FromJson,
    Part,
    Share,
    Shares,
    WholeNumber,
    refuse,
    unusable,
)
from app.engine.estimation.estimators import InformationForm
from app.engine.models.base import BoolArray
from app.engine.prediction.p_irt import Predictor
from app.engine.prediction.score_curves import ScoreCurves
from app.engine.prediction.score_estimate import ScoreEstimator
from app.engine.prediction.targets import is_drawable
from app.engine.selection.base import Criterion, Selector
from app.engine.selection.design import AbilityDesign, Optimality, TargetVariance
from app.engine.selection.information import (
    MaximumInformation,
    MutualInformation,
    PerCost,
    PosteriorWeighted,
)
from app.engine.selection.sampled import (
    CurveVariance,
    Sampled,
    ThetaThenSampled,
    WantedOrSampled,
)
from app.engine.selection.selectors import (
    AStratified,
    ContentBalanced,
    NearestStart,
    Random,
    Randomesque,
    RandomStart,
    SympsonHetter,
)
from app.errors import UnknownNameError


class CriterionName(StrEnum):
    """Criteria for choosing items."""

    MAXIMUM_INFORMATION = "maximum_information"
    POSTERIOR_WEIGHTED = "posterior_weighted"
    MUTUAL_INFORMATION = "mutual_information"
    A_STRATIFIED = "a_stratified"
    V_OPTIMAL = "v_optimal"
    V_OPTIMAL_LOADINGS = "v_optimal_loadings"
    D_OPTIMAL = "d_optimal"
    A_OPTIMAL = "a_optimal"
    TRACE = "trace"
    RANDOM = "random"


#: Criteria for the precision of a score; it may be the score of some tags.
OF_SCORES = frozenset({CriterionName.V_OPTIMAL, CriterionName.V_OPTIMAL_LOADINGS})

_CRITERIA: Mapping[CriterionName, Criterion] = {
    CriterionName.MAXIMUM_INFORMATION: MaximumInformation(),
    CriterionName.POSTERIOR_WEIGHTED: PosteriorWeighted(),
    CriterionName.MUTUAL_INFORMATION: MutualInformation(),
}


class ContentDesign(Part):
    """Content balancing: shares of items by tag."""

    targets: Shares = Field(description="Wanted share of the test's items by tag.")

    def require_reachable(self, carries: BoolArray, active: BoolArray | None) -> None:
        """Refuse shares of more items than a test has, where no item carries so many of the tags.

        Args:
            carries: Whether an item carries a tag, shape (n_tags, n_items).
            active: Mask of the items that may be asked, shape (n_items,); None means all.

        Raises:
            InvalidInputError: The shares sum to more than any item carries of their tags.
        """
        total = math.fsum(self.targets.values())
        most = max(1, carries[:, slice(None) if active is None else active].sum(axis=0).max())
        if total > most + 1e-9:
            raise unusable(
                "/selection/content/targets",
                f"expected shares that sum to at most {most}, got a sum of {total:g}: no item has "
                f"more than {most} of these tags",
            )


class ExposureDesign(Part):
    """Limit on how often an item is used over many tests (Sympson and Hetter)."""

    max_rate: Share = Field(description="Largest share of tests that may ask one item.")


class SelectionDesign(Part):
    """How items are chosen.

    Attributes:
        criterion: Criterion of an item's worth.
        top_k: Number of best items among which one is drawn at random.
        random_start: Number of random items at the start.
        nearest_start: Whether the first item is that whose difficulty is nearest to the start
            theta; it has no effect after random items.
        strata: Number of strata of the a-stratified criterion.
        cost_weight: 0 ignores cost, 1 takes the worth per unit of expected cost.
        quarantine: Whether to leave out the items that lint quarantines, unless the caller gives
            the active items.
        content: Content balancing; None for none.
        exposure: Limit on the use of items; None for none.
        target: Score that either V-optimality predicts: shares by tag, "all" for the whole bank;
            None is the whole bank.
    """

    criterion: FromJson[CriterionName] = CriterionName.MAXIMUM_INFORMATION
    top_k: Count = Field(
        default=1, description="Choose at random among this many of the best items."
    )
    random_start: WholeNumber = 0
    nearest_start: bool = Field(
        default=False,
        description="Ask first the item whose difficulty is nearest to the initial theta.",
    )
    strata: Count = 4
    cost_weight: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0,
        description="0: ignore cost. 1: choose by worth per expected cost: US dollars if the "
        "endpoint has a price, else tokens, where prompt tokens count half. Needs the expected "
        "tokens of every item.",
    )
    quarantine: bool = True
    content: ContentDesign | None = None
    exposure: ExposureDesign | None = None
    target: Shares | None = Field(
        default=None,
        description="Score that `v_optimal` predicts: shares by tag, or `all` for the whole bank.",
    )

    @model_validator(mode="after")
    def _require_fitting(self) -> Self:
        faults = {}
        if self.exposure is not None and self.top_k > 1:
            faults["top_k"] = f"expected 1 together with exposure control, got {self.top_k}"
        if self.target is not None and self.criterion not in OF_SCORES:
            faults["target"] = (
                f"needs the criterion v_optimal or v_optimal_loadings, got {self.criterion}"
            )
        if self.criterion is CriterionName.RANDOM:
            for name in ("cost_weight", "exposure"):
                if getattr(self, name):
                    faults[name] = "has no effect on random selection"
        refuse(faults)
        return self

    def build(
        self,
        facts: BankFacts,
        predictor: Predictor,
        length: int | None,
        form: InformationForm,
    ) -> Selector:
        """The selector on a bank.

        Args:
            facts: The bank and facts about it.
            predictor: Predictor of the score that tests are about.
            length: Most items of a test, for planning the strata.
            form: Form of the information that maximum information maximises.

        Raises:
            InvalidInputError: The design needs a fact that is not given.
        """
        selector: Selector = Random()
        if self.criterion is not CriterionName.RANDOM:
            # A sample can only represent items that may be asked, not a task that never is.
            samples = self.criterion is CriterionName.V_OPTIMAL and facts.by_curves
            samples = samples and facts.never_asked(self.target) is None
            criterion = self._criterion(facts, length, form, by_curves=samples)
            if self.exposure is None:
                selector = Randomesque(criterion=criterion, top_k=self.top_k)
            else:
                if facts.acceptance is None:
                    raise missing("/selection/exposure", "fitted acceptance probabilities")
                selector = SympsonHetter(criterion=criterion, acceptance=facts.acceptance)
            if samples or self._may_sample(facts):
                costs = facts.costs if self.cost_weight > 0 else None
                sampled = Sampled.of(self._curves(facts), facts.weights_of(self.target), costs)
                if samples and isinstance(predictor, ScoreEstimator):
                    selector = WantedOrSampled(
                        estimator=predictor, wanted=selector, sampled=sampled
                    )
                else:
                    selector = ThetaThenSampled(
                        wanted=selector, sampled=sampled, curves=facts.curves
                    )
        if self.nearest_start:
            selector = NearestStart(then=selector)
        if self.random_start:
            selector = RandomStart(items=self.random_start, then=selector)
        if self.content is not None:
            if facts.tags is None:
                raise missing("/selection/content", "the tags of the items")
            known = {tag for tags in facts.tags for tag in tags}
            for tag in self.content.targets:
                if tag not in known:
                    raise UnknownNameError("tag", tag, known, pointer="/selection/content/targets")
            selector = ContentBalanced.of(self.content.targets, facts.tags, selector)
            self.content.require_reachable(selector.carries, facts.active)
        return selector

    def _may_sample(self, facts: BankFacts) -> bool:
        """Whether a test for theta samples once the examinee's place is open.

        It does not with several abilities, without score curves or reference models, or where too
        few items of the score may be asked.
        """
        chosen = self.criterion in _CRITERIA and self.exposure is None
        if not chosen or facts.bank.abilities is not None or not facts.by_curves:
            return False
        return facts.curves.population is not None and is_drawable(
            facts.weights_of(self.target), facts.active
        )

    def _curves(self, facts: BankFacts) -> ScoreCurves:
        return facts.curves.curves.towards(facts.weights_of(self.target), facts.active)

    def _criterion(
        self, facts: BankFacts, length: int | None, form: InformationForm, *, by_curves: bool
    ) -> Criterion:
        criterion: Criterion
        if by_curves:
            criterion = CurveVariance(
                curves=self._curves(facts), weights=facts.weights_of(self.target)
            )
        elif self.criterion is CriterionName.A_STRATIFIED:
            if length is None:
                raise missing("/selection/criterion", "stopping.max_items to plan its strata by")
            criterion = AStratified.of(
                facts.bank, strata=self.strata, length=length, active=facts.active
            )
        elif self.criterion not in _CRITERIA:
            criterion = self._optimal(Optimality(self.criterion.value), facts)
        elif self.criterion is CriterionName.MAXIMUM_INFORMATION:
            criterion = MaximumInformation(printed=form is InformationForm.PRINTED)
        else:
            criterion = _CRITERIA[self.criterion]
        if self.cost_weight > 0:
            if facts.costs is None:
                raise missing(
                    "/selection/cost_weight", "the expected tokens, in and out, of every item"
                )
            criterion = PerCost(criterion=criterion, costs=facts.costs, weight=self.cost_weight)
        return criterion

    def _optimal(self, optimality: Optimality, facts: BankFacts) -> Criterion:
        if facts.bank.abilities is None:
            needed = "a bank with loadings, from the model nested or mirt"
            if optimality is Optimality.V:
                needed += ", or the prediction combined or design"
            raise missing("/selection/criterion", needed)
        weights = facts.weights_of(self.target)
        if optimality is Optimality.V and (target := facts.target_of(self.target)):
            return TargetVariance(target=target)
        return AbilityDesign(optimality=optimality, weights=weights)
