"""Forecasts as JSON."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.api.schemas.common import Name, OnBank, Output
from app.api.schemas.endpoints import PriceModel
from app.api.schemas.sessions.designs import DesignInput, DesignRead, Theta
from app.engine.design.design import stops_when
from app.engine.simulation.forecast import Effort, Range, Region
from app.engine.simulation.forecast_words import summary
from app.records.endpoints import Price
from app.records.fields import convert
from app.services.results.simulations import Simulation, SimulationSpec

#: Of one forecast; the error of a share of 500 is 2 %.
MAX_EXAMINEES = 500

_Tokens = Annotated[float, Field(ge=0, le=1e7)]


class SimulationCreate(DesignInput, OnBank):
    """A design on a bank version, and what is known about cost and speed of the calls."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "bank": "demo",
                    "stopping": {"score_margin": 0.04, "max_items": 60},
                    "price": {"input_per_1m": 0.5, "output_per_1m": 1.5},
                    "tokens_in": 120,
                    "tokens_out": 5,
                    "latency_ms": 800,
                }
            ]
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
    price: PriceModel | None = None
    """Price, instead of the endpoint's."""
    latency_ms: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """Latency of a call, as in the report of the endpoint's probe."""
    tokens_in: _Tokens | None = None
    """Prompt tokens per item, if the bank does not know them."""
    tokens_out: _Tokens | None = None
    """Tokens per answer, if the bank does not know them."""
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
            price=convert(Price, self.price) if self.price else None,
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
    """How many of the examinees are beyond the reference models, where the curves are extrapolated.
    Null if none is, or if that is unknown."""
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
    """Share of tests that are as precise as `se` or `score_margin` asks; null if neither is set."""
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
                    simulation.design,
                    simulation.reachable_se,
                    simulation.version.n_active,
                ),
                "population": simulation.population,
                "caution": simulation.caution,
            }
        )
