"""How a test is run, as JSON: the sections of a session's design.

The engine's parts describe the sections. It checks them once the preset has filled them in.
"""

from typing import Annotated, Any, cast

from pydantic import Field

from app.api.schemas.common import MAX_FIELDS, Input, ShownAs
from app.engine import Preset
from app.engine.design.design import CONCURRENCY, MAX_CONCURRENCY
from app.engine.design.parts import (
    BudgetDesign,
    EstimatorDesign,
    PredictionDesign,
    StoppingDesign,
)
from app.engine.design.selection import SelectionDesign
from app.items import JsonObject
from app.records.sessions import Plan
from app.services.sessions.plan import FailureLimits

Positive = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Theta = Annotated[float, Field(ge=-50, le=50)]
Share = Annotated[float, Field(gt=0, le=1)]
_LIMITS = FailureLimits()
_Section = Annotated[dict[str, Any], Field(max_length=MAX_FIELDS)]
EstimatorInput = Annotated[_Section, ShownAs(EstimatorDesign)]
SelectionInput = Annotated[_Section, ShownAs(SelectionDesign)]
StoppingInput = Annotated[_Section, ShownAs(StoppingDesign)]
PredictionInput = Annotated[_Section, ShownAs(PredictionDesign)]
BudgetInput = Annotated[_Section, ShownAs(BudgetDesign)]


class FailuresInput(Input):
    """Limits on failures: calls in a row without an answer, and the share of unscored items."""

    max_consecutive: Annotated[int, Field(ge=1, le=10_000)] = _LIMITS.max_consecutive
    max_share: Share = Field(
        default=_LIMITS.max_share,
        description="Largest share of items without a score; above it the session ends. From 10 "
        "items on, the lower end of the share's 95 % interval is compared with it; from 50 items "
        "on, the share itself.",
    )


class DesignInput(Input):
    """How a test is run. Absent fields come from the preset."""

    preset: Preset | None = Field(
        default=None,
        strict=False,
        description="`score`, `ability`, or `atlas` (a published procedure). Default: `ability` "
        "if a stopping rule, the criterion or the prediction is about theta, else `score`.",
    )
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
        """The sections given, as the engine's design reads them."""
        given = self.model_dump(include=set(DesignInput.model_fields), exclude_unset=True)
        sections = {name: section for name, section in given.items() if section is not None}
        return cast(Plan, sections)


class Design(DesignInput):
    """How a test is run: all fields, with those of the preset, and the settings of the session."""

    pretest: JsonObject | None = None
    repeats: int = 1
    cache: bool = False
    answer_within: float | None = None
    idle_timeout: float | None = None


DesignRead = Annotated[JsonObject, ShownAs(Design)]
