"""Calibrations as JSON."""

from typing import Annotated, Literal

from pydantic import AliasPath, ConfigDict, Field, StringConstraints
from typing_extensions import TypeAliasType

from app.api.schemas.banks.versions import (
    AllowedCodes,
    AskedModel,
    KeptKeys,
    Key,
    LongText,
    UnparsedPolicy,
)
from app.api.schemas.calibration_results import CalibrationResult
from app.api.schemas.common import (
    Failure,
    Input,
    Int32,
    Name,
    Output,
    Text,
    WorkRead,
    WorkStatus,
)
from app.calibration.filters import FilterSettings
from app.calibration.pipeline.plan import LEAST_ANSWERS, CalibrationPlan, LinkPlan
from app.items import JsonObject
from app.records.fields import convert
from app.services.calibrations.publication import Publication

_Model = Annotated[
    Literal["1pl", "2pl", "3pl", "4pl", "continuous", "nested", "mirt"],
    Field(
        description="Response model: a family for right and wrong answers, of which the 4PL "
        "needs thousands of examinees; `continuous` for scores anywhere in [0, 1]; `nested` or "
        "`mirt` for several abilities, with or without a general one."
    ),
]
Model = TypeAliasType("Model", _Model)
#: Examinees whose family is told.
MAX_FAMILIES = 10_000
Reference = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
AfterEvent = Annotated[Int32, Field(ge=0)]

#: Of one link; a bank of any size links well on some thousand.
MAX_ANCHORS = 10_000

_Share = Annotated[float, Field(ge=0, le=1)] | None


class FilterCreate(Input):
    """Thresholds below or above which items and examinees take no part; null switches one off.

    Items that all examinees get right, or all wrong, have no parameters and never take part.
    """

    least_sd: Annotated[float, Field(ge=0, le=0.5)] | None = 0.01
    greatest_mean: _Share = 0.95
    least_mean: _Share = None
    least_point_biserial: Annotated[float, Field(ge=-1, le=1)] | None = Field(
        default=0.1,
        description="Items whose score correlates less with the mean of the others are dropped.",
    )
    point_biserial_confidence: Annotated[float, Field(ge=0.5, le=0.999)] | None = Field(
        default=None,
        description="How sure it must be, one-sided, that a correlation is below "
        "`least_point_biserial`: among few examinees many a good item's is, by chance. Null takes "
        "the estimate for the truth, the rule that ATLAS published; of continuous scores 0.95.",
    )
    least_percentile: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=0.1, description="Examinees below this percentile of all examinees are dropped."
    )
    keep_for_score: bool = Field(
        default=True,
        description="Items that a threshold would drop, or that all answered alike, stay in the "
        "bank. They take no part in the calibration and get flat curves, at their share of right "
        "answers: no answer to them moves theta, tests of ability do not choose them, tests for "
        "the score may ask them, and scores are of them too. The models nested, mirt and "
        "continuous calibrate them with the others, and a check for drift drops them. False drops "
        "them, which is the published procedure.",
    )


class LinkCreate(Input):
    """The bank version on whose scale a calibration lands, through the items of both."""

    bank_version_id: Reference
    method: Literal["stocking_lord", "mean_sigma", "fixed_anchor"] = Field(
        default="stocking_lord",
        description="`stocking_lord` brings the curves of the anchors together, `mean_sigma` their "
        "difficulties; `fixed_anchor` keeps the anchors' parameters and estimates the other items "
        "and the population beside them.",
    )
    anchors: list[Key] = Field(
        default_factory=list,
        max_length=MAX_ANCHORS,
        description="Keys of the items that carry it; empty: all active items that both have.",
    )
    check_drift: bool = Field(
        default=False,
        description="With `fixed_anchor`: items whose new answers leave their old curve carry "
        "nothing, are calibrated anew and quarantined. All other old items keep their parameters; "
        "filters apply to new items alone, and those with fewer than "
        f"{LEAST_ANSWERS} answers stay in pretest.",
    )


class PublicationCreate(Input):
    """The bank version that is made of a calibration."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"bank": "arc", "notes": "November 2026, 3,467 models."}]}
    )

    bank: Reference = Field(
        description="Id or name; a bank of a new name is made, of items without text."
    )
    notes: LongText = ""
    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)
    unparsed_policy: UnparsedPolicy | None = Field(
        default=None,
        description="How answers that could not be read counted; null: as the response set says.",
    )
    asked: AskedModel = Field(
        default_factory=AskedModel,
        description="How the answers were obtained; what is null is as the response set says.",
    )
    allow_unconverged: bool = Field(
        default=False, description="Publish it even though it did not converge."
    )
    carry_over: bool = Field(
        default=False,
        description="Items that only the version it is linked to has keep their parameters.",
    )

    def to_domain(self) -> Publication:
        """The same for the service."""
        return Publication(**self.model_dump())


class CalibrationCreate(Input):
    """What is calibrated, and how."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"response_set": "arc-2026", "model": "3pl", "filters": {"greatest_mean": 0.95}}
            ]
        }
    )

    response_set: Reference = Field(description="Id or name.")
    model: Model = "2pl"
    dimensions: Annotated[int, Field(ge=1, le=50)] | None = Field(
        default=None,
        description="Of the models nested and mirt; null: what parallel analysis finds.",
    )
    priors: bool = Field(
        default=True,
        description="Weak priors on slopes and asymptotes, the spread of guessing learned from the "
        "answers; without them maximum likelihood.",
    )
    negative_slopes: bool | None = Field(
        default=None,
        description="Items may fall with ability; null: if some do, which no filter has removed.",
    )
    estimate_density: bool = Field(
        default=False, description="Estimate the distribution of ability instead of N(0, 1)."
    )
    allow_few: bool = Field(
        default=False, description="Calibrate a 4PL even from fewer than 500 models."
    )
    max_cycles: Annotated[int, Field(ge=1, le=100_000)] = 2000
    compare: list[Model] = Field(
        default_factory=list,
        max_length=4,
        description="Families that are calibrated as well, by maximum likelihood, and compared.",
        examples=[["1pl", "2pl", "3pl"]],
    )
    partition_size: Annotated[int, Field(ge=100, le=100_000)] | None = Field(
        default=None,
        description="Calibrate parts of so many items, which all workers share, and join them; "
        "null: the whole bank at once, which is more exact.",
    )
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="Deals the items to the parts."
    )
    moments: bool = Field(
        default=False,
        description="Continuous scores by the published closed forms, for comparison: difficulties "
        "from mean scores, ranges from the lowest and highest score, one dispersion.",
    )
    report_card: bool = Field(
        default=True,
        description="Test examinees on banks calibrated without them: how well short tests do, and "
        "how wide their intervals must be to hold. Takes several times as long as without it.",
    )
    families: Annotated[dict[Name, Name], Field(max_length=MAX_FAMILIES)] | None = Field(
        default=None,
        description="Family of each examinee by name: the report card holds families out. Null: "
        "what stands before the first / of a name.",
    )
    filters: FilterCreate = Field(default_factory=FilterCreate)
    publish: PublicationCreate | None = Field(
        default=None,
        description="Make this version as soon as it is completed, as `:publish` does; null: "
        "nothing is published.",
    )
    link: LinkCreate | None = Field(
        default=None, description="Onto the scale of this version; null: onto a new scale."
    )
    prior_version_id: Reference | None = Field(
        default=None,
        description="Start from what a version of provisional parameters believes of its items, "
        "however few the answers: its `recalibration` says when to do so. It decides "
        "the model; nothing is filtered, and there is no report card.",
    )

    def to_domain(self) -> CalibrationPlan:
        """The same for the service.

        Raises:
            InvalidInputError: Settings that exclude each other.
        """
        link = None
        if self.link is not None:
            link = convert(LinkPlan, self.link, anchors=tuple(self.link.anchors))
        return CalibrationPlan(
            **self.model_dump(exclude={"response_set", "compare", "filters", "link", "publish"}),
            compare=tuple(self.compare),
            filters=FilterSettings(**self.filters.model_dump()),
            link=link,
        )


CalibrationPhase = TypeAliasType(
    "CalibrationPhase",
    Literal["reading", "calibrating", "checking_fit", "comparing", "joining", "testing"],
)


class CalibrationProgressRead(Output):
    """How far a calibration is; null where its phase has no such figure."""

    phase: CalibrationPhase | None = None
    n_parts: int | None = Field(
        default=None, description="Parts that are calibrated each for itself."
    )
    parts_done: int | None = None
    cycle: int | None = None
    log_posterior: float | None = None
    gain: float | None = Field(default=None, description="Of the last cycle.")
    distance: float | None = Field(
        default=None, description="Standard errors that are left; the goal is 0.05."
    )
    seconds: float | None = None


class CalibrationRead(WorkRead):
    """A calibration: poll it until `finished_at` is set."""

    id: str
    object: Literal["calibration"] = "calibration"
    status: WorkStatus
    response_set_id: str
    settings: JsonObject
    progress: CalibrationProgressRead
    result: CalibrationResult | None
    failure: Failure | None
    bank_id: str | None
    bank_version_id: str | None = Field(description="What it was published as, last.")
    publishes: str | None = Field(
        default=None,
        validation_alias=AliasPath("publication", "bank"),
        description="Bank of which a version is made as soon as it is completed.",
    )
    publication_failure: Failure | None = Field(
        default=None, description="Why no version was made: put it right and `:publish`."
    )
