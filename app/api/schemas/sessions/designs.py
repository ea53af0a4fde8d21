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
from app.services.sessions.endings import FailureLimits

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
    """Calls in a row without an answer, and the unscored share, that end the session."""

    max_consecutive: Annotated[int, Field(ge=1, le=10_000)] = _LIMITS.max_consecutive
    max_share: Share = Field(
        default=_LIMITS.max_share,
        description="Of items without a score; watched from the tenth on, where it must be surely "
        "too large, and as it is from the fiftieth on.",
    )


class DesignInput(Input):
    """How a test is run; what is absent comes from the preset."""

    preset: Preset | None = Field(
        default=None,
        strict=False,
        description="`score`, `ability` or `atlas`, a published procedure. Absent: `ability` where "
        "a goal, the criterion or the prediction is by theta, else `score`.",
    )
    estimator: EstimatorInput | None = None
    selection: SelectionInput | None = None
    stopping: StoppingInput | None = None
    prediction: PredictionInput | None = None
    budget: BudgetInput | None = None
    concurrency: Annotated[int, Field(ge=1, le=MAX_CONCURRENCY)] | None = Field(
        default=None,
        description=f"Items in flight at once; {CONCURRENCY} unless given, 1 for the preset "
        "`atlas` and where the client answers, of which at most 64 are pending.",
    )
    failures: FailuresInput | None = None

    def plan(self) -> Plan:
        """The sections given, as the engine's design reads them."""
        given = self.model_dump(include=set(DesignInput.model_fields), exclude_unset=True)
        sections = {name: section for name, section in given.items() if section is not None}
        return cast(Plan, sections)


class Design(DesignInput):
    """How a test is run, with what the preset gave filled in, and what a session adds."""

    pretest: JsonObject | None = None
    repeats: int = 1
    cache: bool = False
    answer_within: float | None = None
    idle_timeout: float | None = None


DesignRead = Annotated[JsonObject, ShownAs(Design)]
