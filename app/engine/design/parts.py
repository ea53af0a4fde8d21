"""Parts of a test design: each reads itself from JSON, writes itself, builds what it means."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from app.engine.design.json_section import Section, as_json, given
from app.engine.estimation.estimators import EstimatorName, GridEstimator, SeKind
from app.engine.estimation.quadrature import FixedGrid, NormalPrior, Rule
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.p_irt import COMBINED, DESIGN, P_IRT, SCORE_MODEL, Predictor
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
from app.errors import FieldProblem, InvalidInputError

#: catR's grid, which completes a fixed grid of which only a part is given.
CATR_NODES, CATR_RANGE = 33, (-4.0, 4.0)
_MAX_NODES = 20_001
#: A narrower prior leaves nothing to be measured, and its precision may be no number.
_LEAST_PRIOR_SD = 1e-3


class PredictionMethod(StrEnum):
    """How scores are predicted."""

    COMBINED = COMBINED
    DESIGN = DESIGN
    SCORE_MODEL = SCORE_MODEL
    P_IRT = P_IRT


class DecisionMethod(StrEnum):
    """How a decision against a cut score is tested."""

    CI = "ci"
    SPRT = "sprt"


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

    method: EstimatorName = EstimatorName.EAP
    prior_mean: float = 0.0
    prior_sd: float = 1.0
    se: SeKind | None = None
    nodes: int | None = None
    range: tuple[float, float] | None = None
    rule: Rule | None = None

    @classmethod
    def read(cls, section: Section) -> "EstimatorDesign":
        """From JSON; faults are noted in the section."""
        read = given(
            method=section.choice("method", EstimatorName),
            prior_mean=section.number("prior_mean", least=-20.0, most=20.0),
            prior_sd=section.number("prior_sd", least=_LEAST_PRIOR_SD, most=20.0),
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
        return as_json(document)

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
        read = given(
            theta=section.number("theta"),
            method=section.choice("method", DecisionMethod),
            confidence=section.number("confidence", above=0.5, below=1.0),
            indifference=section.number("indifference", above=0.0),
        )
        section.close()
        return cls(**{"theta": 0.0, **read})

    def build(self, correction: IntervalCorrection | None, looks: float) -> StoppingRule:
        """The rule that ends a test once this is decided."""
        if self.method is DecisionMethod.CI:
            return DecisionByInterval(
                cut=self.theta, confidence=self.confidence, correction=correction, looks=looks
            )
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
        read = given(
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
        return as_json(asdict(self))

    @property
    def looks(self) -> float:
        """Ratio of the most answers to the fewest at which a decision is looked for.

        1 where none is looked for before the end.
        """
        inner = [rule.looks for rule in (*self.any_of, *self.all_of)]
        if self.cut_score is None:
            return max(inner, default=1.0)
        own = (self.max_items or LONGEST) / max(self.min_items or 0, 1)
        return max([own, *inner, 1.0])

    def require_one_ability(self) -> None:
        """Refuse rules that know the curves of one ability only.

        Raises:
            InvalidInputError: There is one.
        """
        by_ratio = self.cut_score is not None and self.cut_score.method is DecisionMethod.SPRT
        for pointer, is_given, instead in (
            ("/stopping/cut_score/method", by_ratio, "take ci"),
            ("/stopping/min_information", self.min_information is not None, "take se"),
        ):
            if is_given:
                detail = f"this bank measures several abilities, this rule knows one: {instead}"
                raise InvalidInputError(
                    f"The test design cannot be used here: {pointer}: {detail}.",
                    problems=[FieldProblem(pointer, detail)],
                )
        for rule in (*self.any_of, *self.all_of):
            rule.require_one_ability()

    def build(
        self,
        estimator: Estimator[Any],
        predictor: Predictor,
        correction: IntervalCorrection | None = None,
        limits: Sequence[StoppingRule] = (),
    ) -> AnyOf:
        """The rules in their order of precedence.

        Args:
            estimator: The test's; a plateau is seen in its estimates.
            predictor: The test's; its interval may be narrow enough.
            correction: The test's; a decision takes an interval that holds.
            limits: More limits, after the number of items.
        """
        goals: list[StoppingRule] = []
        if self.se is not None:
            goals.append(SeTarget(se=self.se))
        if self.cut_score is not None:
            goals.append(self.cut_score.build(correction, self.looks))
        if self.prediction_width is not None:
            goals.append(PredictionWidth(width=self.prediction_width, predictor=predictor))
        goals += [design.build(estimator, predictor, correction) for design in self.any_of]
        if self.all_of:
            every = (design.build(estimator, predictor, correction) for design in self.all_of)
            goals.append(AllOf(tuple(every)))
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
        read = given(
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionDesign:
    """How the score is predicted.

    Attributes:
        method: None takes model and draws combined where score curves were learned, elsewhere the
            score model, and p-IRT where there is none either.
    """

    method: PredictionMethod | None = None

    @classmethod
    def read(cls, section: Section) -> "PredictionDesign":
        """From JSON; faults are noted in the section."""
        method = section.choice("method", PredictionMethod)
        section.close()
        return cls(method=method)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, every field."""
        return as_json(asdict(self))
