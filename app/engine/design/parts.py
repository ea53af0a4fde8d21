"""Parts of a test design: estimator, stopping, prediction, budget. Each builds what it says.

Pydantic reads, checks, writes and describes the parts.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from app.engine.estimation.estimators import EstimatorName, GridEstimator, InformationForm, SeKind
from app.engine.estimation.posterior import FixedGrid, NormalPrior, Rule
from app.engine.prediction.correction import LONGEST, IntervalCorrection
from app.engine.prediction.p_irt import (
    COMBINED,
    DESIGN,
    P_IRT,
    P_IRT_C,
    SCORE_MODEL,
    Predictor,
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
    ScoreMargin,
    SeTarget,
    StoppingRule,
    TimeLimit,
)
from app.errors import FieldProblem, InvalidInputError

T = TypeVar("T")

#: A type that JSON writes in another form: an enumeration as a text, a tuple as a list.
FromJson = Annotated[T, Strict(False)]
#: Whole numbers that every JSON reader holds exactly.
WholeNumber = Annotated[int, Field(ge=0, le=2**53)]
Count = Annotated[int, Field(ge=1, le=2**53)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Share = Annotated[float, Field(gt=0, le=1)]
Shares = Annotated[dict[str, Share], Field(min_length=1)]
#: Most fields of one object; it bounds the number of faults, one for each unknown field.
_MAX_FIELDS = 30
#: catR's grid; it completes a fixed grid that is given only in part.
CATR_NODES, CATR_RANGE = 33, (-4.0, 4.0)
#: Most rules in one list, and the greatest depth of nested lists.
MAX_RULES, MAX_DEPTH = 10, 2


def _describe_as_sent(schema: dict[str, Any]) -> None:
    """Describe a part as clients send it: optional fields may be null, presets give defaults."""
    schema["description"] = schema["description"].partition("\n")[0]
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        field.pop("default", None)
        if name not in required and "anyOf" not in field:
            kind = {key: field.pop(key) for key in [*field] if key not in ("title", "description")}
            field["anyOf"] = [kind, {"type": "null"}]


class Part(BaseModel):
    """One object of a design. Null is the same as absent."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        json_schema_extra=_describe_as_sent,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if len(value) > _MAX_FIELDS:
            raise ValueError(f"expected at most {_MAX_FIELDS} fields, got {len(value)}")
        fields = cls.model_fields
        return {name: one for name, one in value.items() if one is not None or name not in fields}

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON."""
        return self.model_dump(mode="json")


def refuse(faults: Mapping[str, str]) -> None:
    """Refuse fields that are valid alone but contradict each other: faults by name of a field.

    Raises:
        ValidationError: There are faults. A validator adds the pointer of its part.
    """
    if faults:
        errors = [
            InitErrorDetails(
                type=PydanticCustomError("conflict", "{detail}", {"detail": detail}),
                loc=(name,),
                input=None,
            )
            for name, detail in faults.items()
        ]
        raise ValidationError.from_exception_data("Part", errors)


def unusable(pointer: str, detail: str) -> InvalidInputError:
    """Error of a design that the bank does not fit."""
    return InvalidInputError(
        f"The test design cannot be used here: {pointer}: {detail}.",
        problems=[FieldProblem(pointer, detail)],
    )


class PredictionMethod(StrEnum):
    """How scores are predicted."""

    COMBINED = COMBINED
    DESIGN = DESIGN
    SCORE_MODEL = SCORE_MODEL
    P_IRT = P_IRT
    P_IRT_C = P_IRT_C


class DecisionMethod(StrEnum):
    """How a decision against a cut score is tested."""

    CI = "ci"
    SPRT = "sprt"


def _ascending(ends: tuple[float, float]) -> tuple[float, float]:
    if ends[0] >= ends[1]:
        raise ValueError(f"expected [lo, hi] with lo < hi, got {list(ends)}")
    return ends


class EstimatorDesign(Part):
    """How theta is estimated.

    Attributes:
        method: EAP, MAP, MLE or WLE.
        prior_mean: Mean of the normal prior, in logits, as is its standard deviation.
        se: Kind of standard error; None takes the method's default.
        nodes: Nodes of a fixed grid; without nodes, range and rule the grid follows the posterior.
        range: Ends of the fixed grid, logits.
        information: Form of the information in standard errors and maximum information.
    """

    method: FromJson[EstimatorName] = EstimatorName.EAP
    prior_mean: Annotated[float, Field(ge=-20, le=20)] = 0.0
    #: A narrower prior leaves nothing to measure, and its precision may overflow.
    prior_sd: Annotated[float, Field(ge=1e-3, le=20)] = 1.0
    se: FromJson[SeKind] | None = None
    nodes: Annotated[int, Field(ge=2, le=20_001)] | None = Field(
        default=None,
        description="Number of nodes of a fixed grid; they may be at most 0.5 apart. Default: a "
        "grid that adapts to the posterior.",
    )
    range: Annotated[FromJson[tuple[float, float]], AfterValidator(_ascending)] | None = None
    rule: FromJson[Rule] | None = None
    information: FromJson[InformationForm] = Field(
        default=InformationForm.MODEL,
        description="`model`: information of the response model. `printed`: a^2 P (1 - P), as "
        "ATLAS prints it for the 3PL.",
    )

    def build(self) -> GridEstimator:
        """The estimator."""
        prior = NormalPrior(mean=self.prior_mean, sd=self.prior_sd)
        return GridEstimator(
            method=self.method, prior=prior, grid=self._grid(), se=self.se, form=self.information
        )

    def require_useful(self) -> None:
        """Refuse a grid as `FixedGrid.require_useful` does; only stored designs may have such."""
        try:
            if (grid := self._grid()) is not None:
                grid.require_useful()
        except InvalidInputError as error:
            raise InvalidInputError(
                error.detail, problems=[FieldProblem("/estimator/range", error.detail)]
            ) from error

    def _grid(self) -> FixedGrid | None:
        if (self.nodes, self.range, self.rule) == (None, None, None):
            return None
        lo, hi = self.range or CATR_RANGE
        return FixedGrid(
            n_nodes=self.nodes or CATR_NODES, lo=lo, hi=hi, rule=self.rule or Rule.TRAPEZOID
        )


class CutScore(Part):
    """A decision to be made: is theta above or below the cut score?

    Attributes:
        method: Confidence interval or sequential probability ratio test (SPRT).
        indifference: Half-width of the region around the cut in which either decision is right,
            logits; for the SPRT only.
    """

    theta: Annotated[float, Field(ge=-1e9, le=1e9, description="Cut score in logits.")]
    method: FromJson[DecisionMethod] = DecisionMethod.CI
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    indifference: Positive = 0.2

    def build(self, correction: IntervalCorrection | None, looks: float) -> StoppingRule:
        """The rule that ends a test once the decision is reached."""
        if self.method is DecisionMethod.CI:
            return DecisionByInterval(
                cut=self.theta, confidence=self.confidence, correction=correction, looks=looks
            )
        return DecisionBySprt(
            cut=self.theta, confidence=self.confidence, indifference=self.indifference
        )


def _require_few(rules: Any) -> Any:
    """Refuse long or deeply nested lists before reading their entries."""
    if isinstance(rules, list | tuple) and len(rules) > MAX_RULES:
        raise ValueError(f"expected at most {MAX_RULES}, got {len(rules)}")
    if _is_deeper(rules, MAX_DEPTH):
        raise ValueError(f"expected lists at most {MAX_DEPTH} deep in each other")
    return rules


def _is_deeper(rules: object, depth: int) -> bool:
    if not isinstance(rules, list | tuple) or not rules:
        return False
    objects = [rule for rule in rules if isinstance(rule, Mapping)]
    inner = [rule.get(name) for rule in objects for name in ("any_of", "all_of")]
    return depth == 0 or any(_is_deeper(nested, depth - 1) for nested in inner)


def _require_goal(rule: "StoppingDesign") -> "StoppingDesign":
    if rule == StoppingDesign(min_items=rule.min_items):
        raise ValueError("expected at least one stopping rule")
    return rule


_Rule = Annotated["StoppingDesign", AfterValidator(_require_goal)]
_Rules = Annotated[
    FromJson[tuple[_Rule, ...]], BeforeValidator(_require_few), Field(max_length=MAX_RULES)
]


class StoppingDesign(Part):
    """When a test ends: as soon as any of the given rules holds."""

    se: Positive | None = None
    min_items: WholeNumber | None = Field(
        default=None,
        description="Minimum number of questions before a goal can end the test. Limits "
        "(`max_items`, budgets) end it anyway.",
    )
    max_items: Count | None = None
    theta_change: Positive | None = None
    min_information: Positive | None = None
    cut_score: CutScore | None = None
    score_margin: Annotated[float, Field(gt=0, le=0.5)] | None = Field(
        default=None,
        description="Half width of the score's 95 % interval to reach: 0.03 is ±3 points. Beside "
        "`se`, the goal that is reached first ends the test.",
    )
    any_of: _Rules = Field(
        default=(), description="Nested rules, any of which ends the test; at most two levels deep."
    )
    all_of: _Rules = ()

    @model_validator(mode="after")
    def _require_room(self) -> Self:
        least, most = self.min_items or 0, self.max_items
        if most is not None and least > most:
            refuse({"min_items": f"expected at most max_items = {most}, got {least}"})
        return self

    @property
    def asks_theta(self) -> bool:
        """Whether any rule depends on theta."""
        own = (self.se, self.theta_change, self.min_information, self.cut_score)
        return any(rule is not None for rule in own) or any(
            rule.asks_theta for rule in (*self.any_of, *self.all_of)
        )

    @property
    def looks(self) -> float:
        """Ratio of the most answers to the fewest at which the cut score is checked.

        It is 1 if there is no cut score.
        """
        inner = [rule.looks for rule in (*self.any_of, *self.all_of)]
        if self.cut_score is None:
            return max(inner, default=1.0)
        own = (self.max_items or LONGEST) / max(self.min_items or 0, 1)
        return max([own, *inner, 1.0])

    def require_one_ability(self) -> None:
        """Refuse rules that work with one ability only, by an `InvalidInputError`."""
        by_ratio = self.cut_score is not None and self.cut_score.method is DecisionMethod.SPRT
        for pointer, is_given, instead in (
            ("/stopping/cut_score/method", by_ratio, "take ci"),
            ("/stopping/min_information", self.min_information is not None, "take se"),
        ):
            if is_given:
                raise unusable(
                    pointer, f"this bank measures several abilities, this rule knows one: {instead}"
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
        """The rules in their order of precedence; further limits follow the number of items.

        The plateau rule needs the estimator, the margin of the score the predictor, and a decision
        by interval the correction.
        """
        goals: list[StoppingRule] = []
        if self.se is not None:
            goals.append(SeTarget(se=self.se))
        if self.cut_score is not None:
            goals.append(self.cut_score.build(correction, self.looks))
        if self.score_margin is not None:
            goals.append(ScoreMargin(margin=self.score_margin, predictor=predictor))
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


class BudgetDesign(Part):
    """What a test may cost."""

    usd: Positive | None = None
    tokens: Count | None = None
    seconds: Positive | None = None

    def build(self) -> list[StoppingRule]:
        """The limits, money first."""
        rules: list[StoppingRule] = []
        if self.usd is not None or self.tokens is not None:
            rules.append(Budget(usd=self.usd, tokens=self.tokens))
        if self.seconds is not None:
            rules.append(TimeLimit(seconds=self.seconds))
        return rules


class PredictionDesign(Part):
    """How the score is predicted."""

    method: FromJson[PredictionMethod] | None = Field(
        default=None,
        description="`combined` (default): from the curves of the reference models and from "
        "randomly sampled questions, weighted by how well each predicted the answers. `design`: "
        "from randomly sampled questions alone, as if the curves did not fit. `score-model`: a "
        "linear model of the score, for versions of several abilities (nested, mirt). `p-irt`: "
        "the observed answers, and the expected score on the other items given the ability. "
        "`p-irt-c`: as published, at the point estimate of theta, with c for items whose slope is "
        "not above 0.",
    )
