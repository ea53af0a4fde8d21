"""The parts of a test design: each reads itself from JSON, writes itself, builds what it means."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.estimation import GridEstimator, Method, SeKind
from app.engine.index import BoolArray
from app.engine.quadrature import FixedGrid, NormalPrior, Rule
from app.engine.reading import Section
from app.engine.selection.base import Criterion, Selector
from app.engine.selection.content import ContentBalanced
from app.engine.selection.exposure import (
    AStratified,
    Random,
    Randomesque,
    RandomStart,
    SympsonHetter,
)
from app.engine.selection.information import (
    MaximumInformation,
    MutualInformation,
    PerCost,
    PosteriorWeighted,
)
from app.engine.state import Estimator
from app.engine.stopping import (
    AllOf,
    AnyOf,
    Budget,
    DecisionByInterval,
    DecisionBySprt,
    LowInformation,
    MaxItems,
    Plateau,
    PredictionWidth,
    SeTarget,
    StoppingRule,
    TimeLimit,
)
from app.errors import FieldProblem, InvalidInputError, UnknownNameError

#: catR's grid, which completes a fixed grid of which only a part is given.
CATR_NODES, CATR_RANGE = 33, (-4.0, 4.0)
_MAX_NODES = 20_001


class CriterionName(StrEnum):
    """What makes an item worth asking."""

    MAXIMUM_INFORMATION = "maximum_information"
    POSTERIOR_WEIGHTED = "posterior_weighted"
    MUTUAL_INFORMATION = "mutual_information"
    A_STRATIFIED = "a_stratified"
    RANDOM = "random"


class DecisionMethod(StrEnum):
    """How a decision against a cut score is tested."""

    CI = "ci"
    SPRT = "sprt"


@dataclass(frozen=True, slots=True, kw_only=True)
class BankFacts:
    """What a design may need to know of a bank besides its parameters.

    Attributes:
        active: Mask of the items that may be asked; None means all. Shape (n_items,), as below.
        tags: Tags of each item.
        costs: Expected cost of each item in one unit, above 0.
        acceptance: Sympson-Hetter acceptance probability of each item.
    """

    bank: ItemBank
    active: BoolArray | None = None
    tags: Sequence[Collection[str]] | None = None
    costs: FloatArray | None = None
    acceptance: FloatArray | None = None

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

    @property
    def all_active(self) -> bool:
        """Whether every item of the bank may be asked."""
        return self.active is None or bool(self.active.all())


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorDesign:
    """How theta is estimated.

    Attributes:
        method: EAP, MAP, MLE or WLE.
        prior_mean: Mean of the normal prior, logits.
        prior_sd: Its standard deviation.
        se: Another standard error than the method's own.
        nodes: Nodes of a fixed grid; without nodes, range and rule the grid follows the posterior.
        range: Ends of the fixed grid.
        rule: Quadrature rule of the fixed grid.
    """

    method: Method = Method.EAP
    prior_mean: float = 0.0
    prior_sd: float = 1.0
    se: SeKind | None = None
    nodes: int | None = None
    range: tuple[float, float] | None = None
    rule: Rule | None = None

    @classmethod
    def read(cls, section: Section) -> "EstimatorDesign":
        """From JSON; faults are noted in the section."""
        read = _given(
            method=section.choice("method", Method),
            prior_mean=section.number("prior_mean", least=-20.0, most=20.0),
            prior_sd=section.number("prior_sd", above=0.0, most=20.0),
            se=section.choice("se", SeKind),
            nodes=section.integer("nodes", least=2, most=_MAX_NODES),
            range=section.interval("range"),
            rule=section.choice("rule", Rule),
        )
        section.close()
        return cls(**read)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        document = asdict(self)
        document["range"] = None if self.range is None else list(self.range)
        return _as_json(document)

    def build(self) -> GridEstimator:
        """The estimator."""
        grid = None
        if (self.nodes, self.range, self.rule) != (None, None, None):
            lo, hi = self.range or CATR_RANGE
            grid = FixedGrid(
                n_nodes=self.nodes or CATR_NODES, lo=lo, hi=hi, rule=self.rule or Rule.TRAPEZOID
            )
        prior = NormalPrior(mean=self.prior_mean, sd=self.prior_sd)
        return GridEstimator(method=self.method, prior=prior, grid=grid, se=self.se)


_CRITERIA: Mapping[CriterionName, Criterion] = {
    CriterionName.MAXIMUM_INFORMATION: MaximumInformation(),
    CriterionName.POSTERIOR_WEIGHTED: PosteriorWeighted(),
    CriterionName.MUTUAL_INFORMATION: MutualInformation(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionDesign:
    """How items are chosen.

    Attributes:
        criterion: What makes an item worth asking.
        top_k: Choose at random among that many best.
        random_start: So many items are random at first.
        strata: Strata of the a-stratified criterion.
        cost_weight: 0 ignores cost, 1 takes the worth per unit of expected cost.
        quarantine: Leave out the items that lint quarantines, unless the caller says which items
            are active.
        content_targets: Target share of each tag; None without content balancing.
        max_exposure: Largest share of tests that may ask one item (Sympson-Hetter).
    """

    criterion: CriterionName = CriterionName.MAXIMUM_INFORMATION
    top_k: int = 1
    random_start: int = 0
    strata: int = 4
    cost_weight: float = 0.0
    quarantine: bool = True
    content_targets: Mapping[str, float] | None = None
    max_exposure: float | None = None

    @classmethod
    def read(cls, section: Section) -> "SelectionDesign":
        """From JSON; faults are noted in the section."""
        content, exposure = section.section("content"), section.section("exposure")
        targets = content.shares("targets")
        if section.has("content") and not content.has("targets"):
            content.note("targets", "expected target shares by tag")
        max_rate = exposure.number("max_rate", above=0.0, most=1.0)
        if section.has("exposure") and not exposure.has("max_rate"):
            exposure.note("max_rate", "expected the largest share of tests that may ask one item")
        design = cls(
            **_given(
                criterion=section.choice("criterion", CriterionName),
                top_k=section.integer("top_k", least=1),
                random_start=section.integer("random_start", least=0),
                strata=section.integer("strata", least=1),
                cost_weight=section.number("cost_weight", least=0.0, most=1.0),
                quarantine=section.flag("quarantine"),
                content_targets=targets,
                max_exposure=max_rate,
            )
        )
        for inner in (content, exposure, section):
            inner.close()
        if design.max_exposure is not None and design.top_k > 1:
            section.note("top_k", "expected 1 together with exposure control")
        if design.criterion is CriterionName.RANDOM:
            for key, value in (("cost_weight", design.cost_weight), ("exposure", max_rate)):
                if value:
                    section.note(key, "has no effect on random selection")
        return design

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        document = asdict(self)
        targets, max_rate = document.pop("content_targets"), document.pop("max_exposure")
        document["content"] = None if targets is None else {"targets": targets}
        document["exposure"] = None if max_rate is None else {"max_rate": max_rate}
        return _as_json(document)

    def build(self, facts: BankFacts, length: int | None) -> Selector:
        """The selector on a bank.

        Args:
            facts: The bank.
            length: Most items of a test; strata are planned by it.

        Raises:
            InvalidInputError: The design needs a fact that is not given.
        """
        selector: Selector = Random()
        if self.criterion is not CriterionName.RANDOM:
            criterion = self._criterion(facts, length)
            if self.max_exposure is None:
                selector = Randomesque(criterion=criterion, top_k=self.top_k)
            else:
                if facts.acceptance is None:
                    raise _missing("exposure", "fitted acceptance probabilities")
                selector = SympsonHetter(criterion=criterion, acceptance=facts.acceptance)
        if self.random_start:
            selector = RandomStart(items=self.random_start, then=selector)
        if self.content_targets is not None:
            if facts.tags is None:
                raise _missing("content", "the tags of the items")
            known = {tag for tags in facts.tags for tag in tags}
            for tag in self.content_targets:
                if tag not in known:
                    raise UnknownNameError("tag", tag, known)
            selector = ContentBalanced.of(self.content_targets, facts.tags, selector)
        return selector

    def _criterion(self, facts: BankFacts, length: int | None) -> Criterion:
        criterion: Criterion
        if self.criterion is CriterionName.A_STRATIFIED:
            if length is None:
                raise _missing("criterion", "stopping.max_items to plan its strata by")
            criterion = AStratified.of(
                facts.bank, strata=self.strata, length=length, active=facts.active
            )
        else:
            criterion = _CRITERIA[self.criterion]
        if self.cost_weight > 0:
            if facts.costs is None:
                raise _missing("cost_weight", "the expected cost of the items")
            criterion = PerCost(criterion=criterion, costs=facts.costs, weight=self.cost_weight)
        return criterion


@dataclass(frozen=True, slots=True, kw_only=True)
class CutScore:
    """A decision to be made: is theta above or below?

    Attributes:
        theta: The cut score, logits.
        method: By confidence interval, or by sequential probability ratio.
        confidence: Of the decision.
        indifference: SPRT only: logits on either side of the cut within which either answer will
            do.
    """

    theta: float
    method: DecisionMethod = DecisionMethod.CI
    confidence: float = 0.95
    indifference: float = 0.2

    @classmethod
    def read(cls, section: Section) -> "CutScore":
        """From JSON; faults are noted in the section."""
        if not section.has("theta"):
            section.note("theta", "expected the cut score in logits")
        read = _given(
            theta=section.number("theta"),
            method=section.choice("method", DecisionMethod),
            confidence=section.number("confidence", above=0.5, below=1.0),
            indifference=section.number("indifference", above=0.0),
        )
        section.close()
        return cls(**{"theta": 0.0, **read})

    def build(self) -> StoppingRule:
        """The rule that ends a test once this is decided."""
        if self.method is DecisionMethod.CI:
            return DecisionByInterval(cut=self.theta, confidence=self.confidence)
        return DecisionBySprt(
            cut=self.theta, confidence=self.confidence, indifference=self.indifference
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingDesign:
    """When a test ends: as soon as anything given here holds; see `app.engine.stopping`."""

    se: float | None = None
    min_items: int | None = None
    max_items: int | None = None
    theta_change: float | None = None
    min_information: float | None = None
    cut_score: CutScore | None = None
    prediction_width: float | None = None
    any_of: tuple["StoppingDesign", ...] = ()
    all_of: tuple["StoppingDesign", ...] = ()

    @classmethod
    def read(cls, section: Section) -> "StoppingDesign":
        """From JSON; faults are noted in the section."""
        cut = section.section("cut_score")
        read = _given(
            se=section.number("se", above=0.0),
            min_items=section.integer("min_items", least=0),
            max_items=section.integer("max_items", least=1),
            theta_change=section.number("theta_change", above=0.0),
            min_information=section.number("min_information", above=0.0),
            cut_score=CutScore.read(cut) if section.has("cut_score") else None,
            prediction_width=section.number("prediction_width", above=0.0, most=1.0),
            any_of=cls._read_rules(section, "any_of"),
            all_of=cls._read_rules(section, "all_of"),
        )
        section.close()
        least, most = read.get("min_items", 0), read.get("max_items")
        if most is not None and least > most:
            section.note("min_items", f"expected at most max_items = {most}, got {least}")
        return cls(**read)

    @classmethod
    def _read_rules(cls, section: Section, key: str) -> tuple["StoppingDesign", ...]:
        rules = []
        for inner in section.sections(key):
            rule = cls.read(inner)
            if rule == cls(min_items=rule.min_items):
                inner.note(None, "expected at least one stopping rule")
            rules.append(rule)
        return tuple(rules)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        return _as_json(asdict(self))

    def build(self, estimator: Estimator[Any], limits: Sequence[StoppingRule] = ()) -> AnyOf:
        """The rules in their order of precedence.

        Args:
            estimator: The test's; a plateau is seen in its estimates.
            limits: More limits, after the number of items.
        """
        goals: list[StoppingRule] = []
        if self.se is not None:
            goals.append(SeTarget(se=self.se))
        if self.cut_score is not None:
            goals.append(self.cut_score.build())
        if self.prediction_width is not None:
            goals.append(PredictionWidth(width=self.prediction_width))
        goals += [design.build(estimator) for design in self.any_of]
        if self.all_of:
            goals.append(AllOf(tuple(design.build(estimator) for design in self.all_of)))
        if self.theta_change is not None:
            goals.append(Plateau(theta_change=self.theta_change, estimator=estimator))
        if self.min_information is not None:
            goals.append(LowInformation(information=self.min_information))
        own = () if self.max_items is None else (MaxItems(items=self.max_items),)
        return AnyOf(goals=tuple(goals), limits=(*own, *limits), min_items=self.min_items or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetDesign:
    """What a test may cost."""

    usd: float | None = None
    tokens: int | None = None
    seconds: float | None = None

    @classmethod
    def read(cls, section: Section) -> "BudgetDesign":
        """From JSON; faults are noted in the section."""
        read = _given(
            usd=section.number("usd", above=0.0),
            tokens=section.integer("tokens", least=1),
            seconds=section.number("seconds", above=0.0),
        )
        section.close()
        return cls(**read)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        return asdict(self)

    def build(self) -> list[StoppingRule]:
        """The limits, money first."""
        rules: list[StoppingRule] = []
        if self.usd is not None or self.tokens is not None:
            rules.append(Budget(usd=self.usd, tokens=self.tokens))
        if self.seconds is not None:
            rules.append(TimeLimit(seconds=self.seconds))
        return rules


def _given(**fields: Any) -> dict[str, Any]:
    """The fields that were there, so that the others keep their defaults."""
    return {name: value for name, value in fields.items() if value is not None}


def _as_json(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in document.items()}


def _plain(value: Any) -> Any:
    """What `asdict` gives, with enumerations as their strings and tuples as lists."""
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, dict):
        return _as_json(value)
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _missing(key: str, what: str) -> InvalidInputError:
    problem = FieldProblem(f"/selection/{key}", f"this needs {what}")
    return InvalidInputError(
        f"The test design cannot be used here: {problem.pointer}: {problem.detail}.",
        problems=[problem],
    )
