"""Test designs, forecasts of tests, and fixed short forms, as JSON.

The engine's parts describe the sections of a design. It checks them once the preset has filled
them in.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, model_validator

from app.api.schemas.versions import Key
from app.engine.design.design import CONCURRENCY, MAX_CONCURRENCY, Preset, stops_when
from app.engine.design.parts import BudgetDesign, EstimatorDesign, PredictionDesign, StoppingDesign
from app.engine.design.selection import SelectionDesign
from app.engine.prediction.score_model import ShortForm
from app.engine.simulation.forecast import Effort, Range, Region, summary
from app.errors import FieldProblem, InvalidInputError
from app.items import JsonObject
from app.records.endpoints import Price
from app.records.sessions import Plan
from app.services.banks.loaded import LoadedVersion
from app.services.results.simulations import Simulation, SimulationSpec
from app.services.sessions.plan import FailureLimits, SessionPlan
from app.shapes import MAX_FIELDS, Input, Name, OnBank, Output, ShownAs, examples

Positive = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Theta = Annotated[float, Field(ge=-50, le=50)]
Share = Annotated[float, Field(gt=0, le=1)]
_Section = Annotated[dict[str, Any], Field(max_length=MAX_FIELDS)]
EstimatorInput = Annotated[_Section, ShownAs(EstimatorDesign)]
SelectionInput = Annotated[_Section, ShownAs(SelectionDesign)]
StoppingInput = Annotated[_Section, ShownAs(StoppingDesign)]
PredictionInput = Annotated[_Section, ShownAs(PredictionDesign)]
BudgetInput = Annotated[_Section, ShownAs(BudgetDesign)]
FailuresInput = Annotated[_Section, ShownAs(FailureLimits)]


class DesignInput(Input):
    """How a test is run. Absent fields come from the preset."""

    preset: Preset | None = Field(default=None, strict=False)
    """`score`, `ability`, or `atlas` (a published procedure). Default: `ability` if a stopping
    rule, the criterion or the prediction is about theta, else `score`."""
    estimator: EstimatorInput | None = None
    selection: SelectionInput | None = None
    stopping: StoppingInput | None = None
    prediction: PredictionInput | None = None
    budget: BudgetInput | None = None
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = Field(
        default=None,
        description=f"Items in flight at once. Default: {CONCURRENCY}, or 1 with the preset "
        "`atlas` and in manual sessions, where 64 is the maximum.",
    )
    failures: FailuresInput | None = None

    def plan(self) -> Plan:
        """What is given of a session's plan; null is the same as absent."""
        return cast(Plan, self.model_dump(include=set(Plan.__annotations__), exclude_none=True))


def plan_problems(shape: Any, body: Any, faulty: Collection[str]) -> Sequence[FieldProblem]:
    """Faults of the design in the body of a new test, beside those in its fields `faulty`."""
    is_test = isinstance(shape, type) and {DesignInput, OnBank} <= set(shape.__mro__)
    # Which faults a section has depends on the preset that completes it.
    if not is_test or not isinstance(body, dict) or "preset" in faulty:
        return ()
    names = DesignInput.model_fields.keys() - faulty
    try:
        SessionPlan.from_dict({name: body[name] for name in names if body.get(name)})
    except InvalidInputError as error:
        return error.problems
    return ()


DesignRead = Annotated[JsonObject, ShownAs(SessionPlan)]


#: Of one forecast; the error of a share of 500 is 2 %.
MAX_EXAMINEES = 500

_Tokens = Annotated[float, Field(ge=0, le=1e7)]


class SimulationCreate(DesignInput, OnBank):
    """A design on a bank version, and what is known about cost and speed of the calls."""

    model_config = examples(
        {
            "bank": "demo",
            "stopping": {"score_margin": 0.04, "max_items": 60},
            "price": {"input_per_1m": 0.5, "output_per_1m": 1.5},
            "tokens_in": 120,
            "tokens_out": 5,
            "latency_ms": 800,
        }
    )

    n_examinees: Annotated[int, Field(ge=1, le=MAX_EXAMINEES)] = 100
    population: Literal["reference", "prior"] | None = None
    """Simulated examinees: `reference` resembles the reference models, `prior` is the design's
    prior. Default: `reference` if the version knows its reference models."""
    thetas: Annotated[list[Theta], Field(min_length=1, max_length=MAX_EXAMINEES)] | None = None
    """Abilities of the simulated examinees, instead of a population."""
    endpoint_id: Name | None = None
    """Id of a saved endpoint, for its price and limits. It is not called."""
    price: Price | None = None
    """Price, instead of the endpoint's."""
    latency_ms: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """Latency of a call, as in the report of the endpoint's probe."""
    tokens_in: _Tokens | None = None
    """Prompt tokens per item; by default those that the bank expects."""
    tokens_out: _Tokens | None = None
    """Tokens per answer; by default those that the bank expects."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    @model_validator(mode="after")
    def _one_of_each(self) -> Self:
        if self.thetas is not None and self.population is not None:
            raise ValueError("give thetas or a population, not both")
        return self

    def to_domain(self) -> SimulationSpec:
        """The same for the service."""
        return SimulationSpec(
            **self.model_dump(exclude={*DesignInput.model_fields, "thetas", "price"}),
            plan=self.plan(),
            thetas=self.thetas or (),
            price=self.price,
        )


class SimulationRead(Output):
    """Forecast of tests by a design. Nothing is stored, and nothing is called."""

    object: Literal["simulation"] = "simulation"
    bank_version_id: str
    design: DesignRead
    stops_when: str
    """When such a test ends, in words."""
    population: Literal["reference", "prior", "given"]
    n_examinees: int
    caution: str | None
    """Examinees beyond the reference models, where the curves are extrapolated; a precision that
    few tests reach; trial questions that come on top. Null if there is nothing to say."""
    summary: list[str]
    """What a test takes and saves, in words."""
    items: Range
    margin: Range
    """Half width of the score's 95 % interval."""
    se: Range
    interval: Range
    """Width of the reported 95 % interval of theta."""
    theta_rmse: float
    """Root mean squared error of theta, if the model is true."""
    reached: float | None
    """Share of tests that end as precise as `se` and `score_margin` ask; null if neither is set."""
    stop_reasons: dict[str, float]
    tokens: Range | None
    """Tokens of a whole test; null if unknown, as are `usd` and `seconds`."""
    usd: Range | None
    seconds: Range | None
    for_3_points: Effort
    """Effort for ±3 points, if intervals narrow as those of random samples do."""
    for_all: Effort
    """Effort for all questions that may be asked."""
    regions: list[Region]
    """Results by true ability, the lowest first."""

    @classmethod
    def of(cls, simulation: Simulation) -> Self:
        """The outgoing shape."""
        return cls.model_validate(
            {
                **simulation.forecast.to_dict(),
                "summary": summary(simulation.forecast),
                "bank_version_id": simulation.version.id,
                "design": simulation.design.to_dict(),
                "stops_when": stops_when(
                    simulation.design, simulation.reachable_se, simulation.version.n_active
                ),
                "population": simulation.population,
                "caution": simulation.caution,
            }
        )


#: Of one request; a bank of more items takes expected tokens.
MAX_COSTS = 200_000


def _all_numbers(value: Any) -> Any:
    # Each faulty value is a fault of its own: of many the first is told.
    entries = value.items() if isinstance(value, dict) else ()
    faulty = (key for key, one in entries if isinstance(one, bool | str | list | dict | None))
    if (first := next(faulty, None)) is not None:
        raise ValueError(f"expected a number for {first[:60]!r}, got {value[first]!r:.40}")
    return value


class FormCreate(Input):
    """The form to build."""

    model_config = examples({"items": 20, "target": {"maths": 0.5, "law": 0.5}})

    items: Count
    """Number of items of the form."""
    target: (
        Annotated[dict[Name, Share], Field(min_length=1), BeforeValidator(_all_numbers)] | None
    ) = None
    """Score to predict: shares by tag. Default: `all`, the whole bank."""
    ask: list[Name] = Field(default_factory=list, max_length=100)
    """Only items with these tags. Empty: all items."""
    costs: (
        Literal["expected_tokens"]
        | Annotated[
            dict[Key, Positive],
            Field(min_length=1, max_length=MAX_COSTS),
            BeforeValidator(_all_numbers),
        ]
        | None
    ) = None
    """Choose items by gain per cost. The cost is the `expected_tokens` of the items, where prompt
    tokens count half, or a given cost for each item key."""


class FormItemRead(Output):
    """One item of a form."""

    item_id: str
    key: str
    weight: float


class FormRead(Output):
    """A fixed form: predicted score = constant + sum of weight times score over its items."""

    object: Literal["form"] = "form"
    bank_version_id: str
    parameters_hash: str
    target: dict[str, float] | None
    """Score that the form predicts, as shares by tag; null for the whole bank."""
    items: list[FormItemRead]
    """Items, the most informative first."""
    constant: float
    half_width95: float
    """Half width of the score's 95 % interval, as wide as held-out examinees need."""
    expected_error: float
    """Expected absolute error of the score, if errors are normal."""
    cost: float | None
    """Cost of the whole form; null if no costs were given."""

    @classmethod
    def of(cls, version: LoadedVersion, target: dict[str, float] | None, form: ShortForm) -> Self:
        """The outgoing shape."""
        return cls(
            bank_version_id=version.id,
            parameters_hash=version.parameters_hash,
            target=target,
            items=[
                FormItemRead(item_id=version.item_ids[item], key=version.keys[item], weight=weight)
                for item, weight in zip(form.items, form.weights, strict=True)
            ],
            constant=form.constant,
            half_width95=form.half_width,
            expected_error=form.expected_error,
            cost=form.cost,
        )
