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
    """A design on a bank version, and what is known of the calls."""

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
    population: Literal["reference", "prior"] | None = Field(
        default=None,
        description="Which examinees: `reference` like those that the version was calibrated with, "
        "`prior` from the design's prior; null: the first where the version knows it.",
    )
    thetas: Annotated[list[Theta], Field(min_length=1, max_length=MAX_EXAMINEES)] | None = Field(
        default=None, description="These examinees instead."
    )
    endpoint_id: Name | None = Field(
        default=None, description="A saved endpoint, for its price and limits. It is not called."
    )
    price: PriceModel | None = Field(default=None, description="Instead of the endpoint's.")
    latency_ms: Annotated[float, Field(ge=0, le=1e7)] | None = Field(
        default=None, description="Of a call, as the endpoint's probe tells it."
    )
    tokens_in: _Tokens | None = Field(
        default=None, description="Prompt tokens of an item, where the bank does not know them."
    )
    tokens_out: _Tokens | None = Field(default=None, description="The same of an answer.")
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
    """What tests by the design will take. Nothing is stored, and nobody was called."""

    object: Literal["simulation"] = "simulation"
    bank_version_id: str
    design: DesignRead
    stops_when: str = Field(description="What ends such a test, in words.")
    population: Literal["reference", "prior", "given"]
    n_examinees: int
    caution: str | None = Field(
        description="How many of them are beyond the reference models, where "
        "the bank's curves are extrapolated; null where nobody is, or where that is not known."
    )
    summary: list[str] = Field(description="What it takes, and whether it pays, in words.")
    items: Range
    margin: Range = Field(description="Half of the width of the score's 95 % interval.")
    se: Range
    interval: Range = Field(description="Width of the 95 % interval of theta as reported.")
    theta_rmse: float = Field(description="Against the true theta, if the model is true.")
    reached: float | None = Field(
        description="Share of tests that are as exact as `se` or `score_margin` asks; null without."
    )
    stop_reasons: dict[str, float]
    tokens: Range | None = Field(description="Null where not known, as the next two.")
    usd: Range | None
    seconds: Range | None
    for_3_points: Effort = Field(
        description="What ±3 points take on this bank, were intervals to narrow as those of "
        "random samples do."
    )
    for_all: Effort = Field(description="What all questions take that may be asked.")
    regions: list[Region] = Field(description="By true ability, the lowest first.")

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
