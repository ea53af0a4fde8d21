"""Calibrations as JSON: what is asked, and their progress."""

from typing import Annotated, Literal

from pydantic import AliasPath, Field, StringConstraints
from typing_extensions import TypeAliasType

from app.api.schemas.calibration_results import CalibrationResult
from app.api.schemas.versions import (
    AllowedCodes,
    AskedModel,
    KeptKeys,
    Key,
    LongText,
    UnparsedPolicy,
)
from app.calibration.filters import FilterSettings
from app.calibration.linking.drift import LEAST_ANSWERS
from app.calibration.pipeline.plan import CalibrationPlan, LinkPlan
from app.items import JsonObject
from app.records.fields import convert
from app.services.calibrations.publication import Publication
from app.shapes import Failure, Input, Name, Output, Text, WorkRead, WorkStatus, examples

_Model = Annotated[
    Literal["1pl", "2pl", "3pl", "4pl", "continuous", "nested", "mirt"],
    Field(
        description="Response model. `1pl` to `4pl`: for right and wrong answers; the 4PL needs "
        "thousands of examinees. `continuous`: for scores anywhere in [0, 1]. `nested` and "
        "`mirt`: for several abilities, with and without a general one, respectively."
    ),
]
Model = TypeAliasType("Model", _Model)
#: Examinees whose family is told.
MAX_FAMILIES = 10_000
Reference = Annotated[Text, StringConstraints(min_length=1, max_length=200)]

#: Of one link; a bank of any size links well on some thousand.
MAX_ANCHORS = 10_000

_Share = Annotated[float, Field(ge=0, le=1)] | None


class FilterCreate(Input):
    """Thresholds that exclude items and examinees from the calibration; null switches one off.

    Items that all examinees answer alike say nothing about ability; `keep_for_score` decides
    whether they stay in the bank.
    """

    least_sd: Annotated[float, Field(ge=0, le=0.5)] | None = 0.01
    greatest_mean: _Share = 0.95
    least_mean: _Share = None
    least_point_biserial: Annotated[float, Field(ge=-1, le=1)] | None = 0.1
    """Exclude items whose score correlates less with the mean of the others."""
    point_biserial_confidence: Annotated[float, Field(ge=0.5, le=0.999)] | None = None
    """One-sided confidence with which a correlation must be below `least_point_biserial`. With few
    examinees, many good items are below it by chance. Null means 0.95 for continuous scores; for
    right and wrong answers it takes the estimate itself, the published rule of ATLAS."""
    least_percentile: Annotated[float, Field(ge=0, le=100)] | None = 0.1
    """Exclude examinees whose share of right answers is below this percentile of all examinees."""
    keep_for_score: bool = True
    """True keeps excluded items in the bank, for scores only. Their curves are flat, at the item's
    share of right answers: they never move theta, tests of ability do not choose them, tests of the
    score may ask them, and the score includes them. (The models nested, mirt and continuous
    calibrate them like the others; a check for drift drops them.) False drops them, the published
    procedure."""


class LinkCreate(Input):
    """Link to the scale of a bank version, through the items of both (anchors)."""

    bank_version_id: Reference
    method: Literal["stocking_lord", "mean_sigma", "fixed_anchor"] = "stocking_lord"
    """`stocking_lord` matches the curves of the anchors, `mean_sigma` their difficulties.
    `fixed_anchor` keeps the anchors' parameters, and estimates the other items and the
    population."""
    anchors: list[Key] = Field(default_factory=list, max_length=MAX_ANCHORS)
    """Keys of the anchors. Empty: all active items that both have."""
    check_drift: bool = Field(
        default=False,
        description="With `fixed_anchor`: anchors whose curves have drifted under the new answers "
        "are not used as anchors; they are calibrated again and quarantined. All other old items "
        "keep their parameters. Filters apply to new items only, and new items with fewer than "
        f"{LEAST_ANSWERS} answers stay in pretest.",
    )


class PublicationCreate(Input):
    """The bank version to make from a calibration."""

    model_config = examples({"bank": "arc", "notes": "November 2026, 3,467 models."})

    bank: Reference
    """Id or name of the bank. A new name creates a bank, with items without text."""
    notes: LongText = ""
    allow: AllowedCodes = Field(default_factory=list)
    keep: KeptKeys = Field(default_factory=list)
    unparsed_policy: UnparsedPolicy | None = None
    """How unparseable answers counted. Default: as stored in the response set."""
    asked: AskedModel = Field(default_factory=AskedModel)
    """How the answers were obtained; null fields are taken from the response set."""
    allow_unconverged: bool = False
    """Publish even if the calibration did not converge."""
    carry_over: bool = False
    """Also take over items and parameters that only the linked version has."""

    def to_domain(self) -> Publication:
        """The same for the service."""
        return Publication(**self.model_dump())


class CalibrationCreate(Input):
    """The response set to calibrate, and the settings."""

    model_config = examples(
        {"response_set": "arc-2026", "model": "3pl", "filters": {"greatest_mean": 0.95}}
    )

    response_set: Reference
    """Id or name of the response set."""
    model: Model = "2pl"
    dimensions: Annotated[int, Field(ge=1, le=50)] | None = None
    """Number of abilities: for mirt all, for nested those besides the general one. Default: by
    parallel analysis."""
    priors: bool = True
    """Use weak priors on slopes and asymptotes; the spread of guessing is estimated from the
    answers. False: maximum likelihood."""
    negative_slopes: bool | None = None
    """Whether the probability of a right answer may fall with ability. Default: only if some item
    that passed the filters does."""
    estimate_density: bool = False
    """Estimate the distribution of ability instead of assuming N(0, 1)."""
    allow_few: bool = False
    """Allow a 4PL from fewer than 500 examinees."""
    max_cycles: Annotated[int, Field(ge=1, le=100_000)] = 2000
    """Most cycles of the estimation, as `iterations` counts them. 1pl to 4pl make at least two."""
    compare: list[Model] = Field(
        default_factory=list, max_length=4, examples=[["1pl", "2pl", "3pl"]]
    )
    """Response models to compare, calibrated by maximum likelihood."""
    partition_size: Annotated[int, Field(ge=100, le=100_000)] | None = None
    """Calibrate parts of this many items, shared by all workers, and join them. Default: the whole
    bank at once, which is more precise."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Random seed, such as for the parts and the folds of the report card."""
    moments: bool = False
    """Calibrate continuous scores by the published closed forms, for comparison: difficulties from
    mean scores, ranges from the lowest and highest score, one dispersion."""
    report_card: bool = True
    """Cross-validate: test held-out examinees on banks calibrated without them. This shows the
    precision of short tests, and how wide intervals must be. It takes several times as long."""
    families: Annotated[dict[Name, Name], Field(max_length=MAX_FAMILIES)] | None = None
    """Family of each examinee, by name, for the report card, which holds out whole families.
    Default: the text before the first / of the name."""
    filters: FilterCreate = Field(default_factory=FilterCreate)
    publish: PublicationCreate | None = None
    """Publish this version as soon as the calibration is completed, as `:publish` does. Default:
    publish nothing."""
    link: LinkCreate | None = None
    """Link to the scale of a version. Default: a new scale."""
    prior_version_id: Reference | None = None
    """Start from the provisional parameters of this version, however few the answers; its
    `recalibration` says when. The version decides the model; there are no filters and no report
    card."""

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
    """Progress of a calibration; fields that its phase does not have are null."""

    phase: CalibrationPhase | None = None
    n_parts: int | None = None
    """Number of parts that are calibrated separately."""
    parts_done: int | None = None
    cycle: int | None = None
    log_posterior: float | None = None
    gain: float | None = None
    """Gain of the last cycle."""
    distance: float | None = None
    """Distance from the optimum, in standard errors; the goal is 0.05."""
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
    bank_version_id: str | None
    """Version that it was last published as."""
    publishes: str | None = Field(default=None, validation_alias=AliasPath("publication", "bank"))
    """Bank that gets a version as soon as the calibration is completed."""
    publication_failure: Failure | None = None
    """Why no version was made. Repair the cause and call `:publish`."""
