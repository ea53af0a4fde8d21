"""How a test is run, as JSON: the sections of a session's design.

What a section may hold is said once, by the annotations of the engine's parts, and checked there;
here it becomes JSON Schema.
"""

import math
from collections import abc
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin

from pydantic import Field, WithJsonSchema

from app.api.schemas.common import MAX_FIELDS, Input
from app.engine import Preset
from app.engine.design.design import CONCURRENCY, MAX_CONCURRENCY
from app.engine.design.json_section import (
    MAX_DEPTH,
    MAX_RULES,
    Form,
    Part,
    Within,
    forms_of,
)
from app.engine.design.parts import (
    BudgetDesign,
    EstimatorDesign,
    PredictionDesign,
    StoppingDesign,
)
from app.engine.design.selection import SelectionDesign
from app.services.sessions.failure_limits import FailureLimits

Positive = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Theta = Annotated[float, Field(ge=-50, le=50)]
Share = Annotated[float, Field(gt=0, le=1)]
_LIMITS = FailureLimits()
_PLAIN = {float: "number", int: "integer", bool: "boolean"}
_LIMIT_NAMES = (
    ("above", "exclusiveMinimum"),
    ("least", "minimum"),
    ("most", "maximum"),
    ("below", "exclusiveMaximum"),
)


def _section(kind: type[Part], depth: int = 0) -> dict[str, Any]:
    """JSON Schema of a part of a design; null is the same as absent."""
    forms = forms_of(kind)
    fields = {}
    for name, form in forms.items():
        schema = _field(form, depth)
        if not form.required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        fields[name] = schema | ({"description": form.told} if form.told else {})
    told = (kind.__doc__ or "").partition("\n")[0]
    shape: dict[str, Any] = {"type": "object", "properties": fields, "description": told}
    required = [name for name, form in forms.items() if form.required]
    return shape | {"required": required, "additionalProperties": False}


def _field(form: Form, depth: int) -> dict[str, Any]:
    kind = form.kind
    if kind in _PLAIN:
        return {"type": _PLAIN[kind], **_limits(form.within)}
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if get_origin(kind) is abc.Mapping:
        share = {"type": "number", **_limits(form.within)}
        return {"type": "object", "minProperties": 1, "additionalProperties": share}
    if get_origin(kind) is not tuple:
        return _section(kind, depth)
    if kind == tuple[float, float]:
        return {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
    if depth == MAX_DEPTH:
        return {"type": "array", "items": {}, "maxItems": 0}  # generated clients want `items`
    rule = _section(get_args(kind)[0], depth + 1)
    return {"type": "array", "items": rule, "maxItems": MAX_RULES}


def _limits(within: Within) -> dict[str, float]:
    found = ((name, getattr(within, limit)) for limit, name in _LIMIT_NAMES)
    return {name: value for name, value in found if math.isfinite(value)}


_Section = Annotated[dict[str, Any], Field(max_length=MAX_FIELDS)]
EstimatorInput = Annotated[_Section, WithJsonSchema(_section(EstimatorDesign))]
SelectionInput = Annotated[_Section, WithJsonSchema(_section(SelectionDesign))]
StoppingInput = Annotated[_Section, WithJsonSchema(_section(StoppingDesign))]
PredictionInput = Annotated[_Section, WithJsonSchema(_section(PredictionDesign))]
BudgetInput = Annotated[_Section, WithJsonSchema(_section(BudgetDesign))]


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
        "`atlas` and where the client answers, of whom at most 64 are awaited.",
    )
    failures: FailuresInput | None = None

    def plan(self) -> dict[str, Any]:
        """The sections given, as the engine's design reads them."""
        given = self.model_dump(include=set(DesignInput.model_fields), exclude_unset=True)
        return {name: section for name, section in given.items() if section is not None}
