"""How a test is run, as JSON: the sections of a session's design."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.api.schemas.common import Input, Name
from app.engine import CriterionName
from app.services.sessions.failure_limits import FailureLimits

Positive = Annotated[float, Field(gt=0, le=1e9)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Theta = Annotated[float, Field(ge=-50, le=50)]
Share = Annotated[float, Field(gt=0, le=1)]
_LIMITS = FailureLimits()


class EstimatorInput(Input):
    """How theta is estimated. Another method than the preset's brings its own standard error."""

    method: Literal["eap", "map", "mle", "wle"] | None = None
    prior_mean: Theta | None = None
    prior_sd: Positive | None = None
    se: Literal["posterior", "information", "information-with-prior"] | None = None
    nodes: Annotated[int, Field(ge=3, le=10_001)] | None = Field(
        default=None, description="Fixed grid of so many nodes; absent: a grid that refines itself."
    )
    range: Annotated[list[Theta], Field(min_length=2, max_length=2)] | None = None
    rule: Literal["trapezoid", "rectangle"] | None = None


class ContentInput(Input):
    """Shares of items by tag that the test is to reach."""

    targets: dict[Name, Annotated[float, Field(ge=0, le=1)]]


class ExposureInput(Input):
    """Limits how often an item is used over many tests (Sympson and Hetter)."""

    max_rate: Share


class SelectionInput(Input):
    """What makes an item worth asking next."""

    criterion: CriterionName | None = Field(default=None, strict=False)
    top_k: Count | None = Field(default=None, description="Draw among the best so many.")
    random_start: Annotated[int, Field(ge=0, le=1000)] | None = None
    strata: Count | None = None
    cost_weight: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None,
        description="0: worth alone; 1: worth per expected cost, in money where the endpoint has a "
        "price, else in tokens, of which those of the prompt count half. Needs the expected tokens "
        "of every item.",
    )
    quarantine: bool | None = None
    content: ContentInput | None = None
    exposure: ExposureInput | None = None
    target: dict[Name, Share] | None = Field(
        default=None,
        description="What v_optimal is to predict: shares by tag, `all` for the whole bank.",
    )


class CutScoreInput(Input):
    """Stop when it is clear on which side of a cut score theta lies."""

    theta: Theta
    method: Literal["ci", "sprt"] | None = None
    confidence: Annotated[float, Field(gt=0.5, lt=1)] | None = None
    indifference: Positive | None = None


class StoppingRules(Input):
    """Rules of which any one ends the test."""

    se: Positive | None = None
    min_items: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None,
        description="No goal ends the test before so many answers are marked; limits never wait.",
    )
    max_items: Count | None = None
    theta_change: Positive | None = None
    min_information: Positive | None = None
    cut_score: CutScoreInput | None = None
    prediction_width: Share | None = Field(
        default=None, description="Width of the predicted score's 95 % interval."
    )


class StoppingInput(StoppingRules):
    """When the test is over."""

    any_of: Annotated[list[StoppingRules], Field(max_length=10)] | None = None
    all_of: Annotated[list[StoppingRules], Field(max_length=10)] | None = None


class PredictionInput(Input):
    """How scores are predicted."""

    method: Literal["combined", "design", "score-model", "p-irt"] | None = Field(
        default=None,
        description="`combined`: score curves learned from whole records, and what items drawn by "
        "lot say they get wrong; the default where the version carries such curves. `design`: by "
        "the items drawn by lot alone, for `v_optimal` tests. `score-model`: linear, from the "
        "answers to all items of the models that the version was calibrated on (nested and mirt). "
        "`p-irt`: observed answers and, by the abilities, the expected score of the rest.",
    )


class BudgetInput(Input):
    """Caps. Reaching one ends the test with a valid theta; calls in flight are still paid."""

    usd: Positive | None = None
    tokens: Annotated[int, Field(ge=1, le=2**53)] | None = None
    seconds: Positive | None = None


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

    preset: Literal["default", "atlas"] | None = None
    estimator: EstimatorInput | None = None
    selection: SelectionInput | None = None
    stopping: StoppingInput | None = None
    prediction: PredictionInput | None = None
    budget: BudgetInput | None = None
    concurrency: Annotated[int, Field(ge=1, le=256)] | None = Field(
        default=None, description="Items in flight at once."
    )
    failures: FailuresInput | None = None

    def plan(self) -> dict[str, Any]:
        """The sections given, as the engine's design reads them."""
        given = self.model_dump(include=set(DesignInput.model_fields), exclude_unset=True)
        return {name: section for name, section in given.items() if section is not None}
