"""Calibrations as JSON."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, StringConstraints

from app.api.schemas.common import FieldError, Input, Int32, Output, Text
from app.api.schemas.versions import (
    MAX_LISTED,
    AllowedCodes,
    DriftFigures,
    FitRead,
    KeptKeys,
    Key,
    Knowledge,
    LinkRead,
    LongText,
)
from app.calibration.filters import FilterSettings
from app.services.calibration_plan import LEAST_ANSWERS, CalibrationPlan, LinkPlan
from app.services.calibrations import AbilityRow, FittedRow, Publication
from app.storage.repositories.calibrations import CalibrationRecord

CalibrationStatus = Literal["queued", "running", "completed", "failed", "cancelled"]
Model = Annotated[
    Literal["1pl", "2pl", "3pl", "4pl", "continuous", "nested", "mirt"],
    Field(
        description="Response model: a family for right and wrong answers, of which the 4PL needs "
        "thousands of examinees; `continuous` for scores anywhere in [0, 1]; `nested` or `mirt` "
        "for several abilities, with or without a general one."
    ),
]
Reference = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
#: Position to list behind; -1 begins with the first.
AfterPosition = Annotated[Int32, Field(ge=-1)]
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
    least_point_biserial: Annotated[float, Field(ge=-1, le=1)] | None = 0.1
    least_percentile: Annotated[float, Field(ge=0, le=100)] | None = Field(
        default=0.1, description="Examinees below this percentile of all examinees are dropped."
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

    def to_domain(self) -> LinkPlan:
        """The same for the service."""
        return LinkPlan(
            method=self.method,
            anchors=tuple(self.anchors),
            bank_version_id=self.bank_version_id,
            check_drift=self.check_drift,
        )


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
        "how wide their intervals must be to hold. Takes about as long again.",
    )
    filters: FilterCreate = Field(default_factory=FilterCreate)
    link: LinkCreate | None = Field(
        default=None, description="Onto the scale of this version; null: onto a new scale."
    )

    def to_domain(self) -> CalibrationPlan:
        """The same for the service.

        Raises:
            InvalidInputError: Settings that exclude each other.
        """
        return CalibrationPlan(
            **self.model_dump(exclude={"response_set", "compare", "filters", "link"}),
            compare=tuple(self.compare),
            filters=FilterSettings(**self.filters.model_dump()),
            link=None if self.link is None else self.link.to_domain(),
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


class ProgressRead(Output):
    """How far a calibration is; null where its phase has no such figure."""

    phase: (
        Literal["reading", "calibrating", "checking_fit", "comparing", "joining", "testing"] | None
    ) = None
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


class DependentPairRead(Output):
    """Two items that share more than ability."""

    first: str
    second: str
    q3: float


class LocalDependenceRead(Output):
    """Q3: correlations between items once ability is taken out."""

    mean: float
    n_flagged: int
    pairs: list[DependentPairRead]


class DroppedRead(Output):
    """An item or examinee that took no part."""

    name: str
    reason: str
    value: float | None = Field(description="What was compared with the threshold.")


class DroppedList(Output):
    """All that took no part for one kind."""

    n: int
    reasons: dict[str, int]
    listed: list[DroppedRead] = Field(description=f"The first {MAX_LISTED}.")

    @classmethod
    def of(cls, dropped: Sequence[Mapping[str, Any]]) -> Self:
        """The outgoing shape."""
        reasons: dict[str, int] = {}
        for entry in dropped:
            reasons[entry["reason"]] = reasons.get(entry["reason"], 0) + 1
        listed = [DroppedRead(**entry) for entry in dropped[:MAX_LISTED]]
        return cls(n=len(dropped), reasons=reasons, listed=listed)


class KeptRead(Output):
    """What took part."""

    items: int
    examinees: int


class ComparedRead(Output):
    """One family beside others, by maximum likelihood on the same answers."""

    model: str
    log_likelihood: float
    n_parameters: int
    aic: float = Field(description="Akaike's criterion; lower is better.")
    bic: float = Field(description="Schwarz's criterion; lower is better.")
    converged: bool


class LinkedRead(LinkRead):
    """The same, with the anchors."""

    anchors: list[str] = Field(description=f"The first {MAX_LISTED}.")


class CardTaskRead(Output):
    """How the predicted score of one tag did, asked or not."""

    n_examinees: int
    mae: float
    coverage95: float


class CardRowRead(Output):
    """How simulated tests by one design did on examinees that the bank had not seen.

    Coverage is the share of 95 % intervals that held what the examinee's whole record gives;
    `..._raw` that of the model's own intervals.
    """

    design: str
    se_target: float | None
    n_examinees: int
    items_mean: float
    items_max: int
    theta_mae: float
    theta_bias: float
    theta_rmse: float
    coverage95: float
    coverage95_raw: float
    accuracy_mae: float
    accuracy_coverage95: float
    accuracy_coverage95_raw: float
    exposure_mean: float
    exposure_max: float
    overlap: float
    ies: float | None = Field(
        description="100 random items times their theta MAE, over this design's items times its "
        "theta MAE; null for a bank of no more than 100 items."
    )
    tasks: dict[str, CardTaskRead] = Field(
        default_factory=dict, description="Of several abilities: predicted score of each tag."
    )


class ReportCardRead(Output):
    """Tests of held-out examinees, each on a bank calibrated without them."""

    n_examinees: int
    n_folds: int
    reference: str
    rows: list[CardRowRead]
    seconds: float


class CalibrationResult(Output):
    """What came out; the items are at `/items`."""

    response_set_revision: int
    kept: KeptRead
    dropped_items: DroppedList
    dropped_examinees: DroppedList
    scored_answers: int
    converged: bool
    iterations: int
    log_likelihood: float
    n_parameters: int
    aic: float
    bic: float
    guessing_sd: float | None = Field(
        default=None, description="Spread of the prior on logit c, learned; null where none."
    )
    fit: FitRead
    local_dependence: LocalDependenceRead | None = Field(
        description="Null where scores are continuous, and where there are several abilities."
    )
    dispersion: float | None = Field(
        default=None,
        description="Of continuous scores: k about which those of the items lie.",
    )
    dimensionality: dict[str, Any] | None = Field(
        default=None, description="Of the models nested and mirt: dimensions, method, errors."
    )
    warnings: list[str]
    comparison: list[ComparedRead] = Field(
        default_factory=list, description="The families asked for, the lowest BIC first."
    )
    link: LinkedRead | None = None
    drift: DriftFigures | None = Field(
        default=None, description="Of the old items, where it was looked for."
    )
    report_card: ReportCardRead | None = None
    knowledge: Knowledge = Field(
        default_factory=dict, description="Goes with the bank version into every test on it."
    )
    seconds: float

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Self:
        """The outgoing shape."""
        dropped = result["dropped"]
        return cls.model_validate(
            {
                **result,
                "link": result.get("link") and _linked(result["link"]),
                "dropped_items": DroppedList.of(dropped["items"]),
                "dropped_examinees": DroppedList.of(dropped["examinees"]),
            }
        )


def _linked(link: Mapping[str, Any]) -> dict[str, Any]:
    anchors = link["anchors"]
    return {**link, "n_anchors": len(anchors), "anchors": anchors[:MAX_LISTED]}


class CalibrationFailure(Output):
    """Why nothing came out."""

    code: str
    detail: str
    errors: list[FieldError]


class CalibrationRead(Output):
    """A calibration: poll it until `finished_at` is set."""

    id: str
    object: Literal["calibration"] = "calibration"
    status: CalibrationStatus
    response_set_id: str
    settings: dict[str, Any]
    progress: ProgressRead
    result: CalibrationResult | None
    failure: CalibrationFailure | None
    bank_id: str | None
    bank_version_id: str | None = Field(description="What it was published as.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    @classmethod
    def of(cls, record: CalibrationRecord) -> Self:
        """The outgoing shape."""
        return cls(
            id=record.id,
            status=record.status,
            response_set_id=record.response_set_id,
            settings=record.settings,
            progress=ProgressRead.model_validate(record.progress),
            result=CalibrationResult.of(record.result) if record.result else None,
            failure=CalibrationFailure.model_validate(record.failure) if record.failure else None,
            bank_id=record.bank_id,
            bank_version_id=record.bank_version_id,
            created_at=record.created_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
        )


class FittedItemRead(Output):
    """One item: `P(theta) = c + (d - c) / (1 + exp(-(a theta + intercept)))`, and its errors.

    A standard error is null where the parameter is not estimated or ended at its bound.
    """

    position: int
    key: str
    a: float
    b: float | None = Field(description="-intercept / a; null where a is 0.")
    intercept: float
    c: float
    d: float
    se_a: float | None
    se_b: float | None
    se_intercept: float | None
    se_c: float | None
    se_d: float | None
    k: float | None = Field(default=None, description="Dispersion of continuous scores.")
    se_k: float | None = None
    s_x2: float | None = Field(description="Fit of the item; null where it cannot be computed.")
    s_x2_df: int | None
    s_x2_p: float | None
    s_x2_rmsea: float | None = Field(description="From 0.08 on, with p < 0.001, a `misfit`.")
    drift_old_b: float | None = Field(
        default=None, description="Difficulty in the older version; null where drift is not known."
    )
    drift_new_b: float | None = Field(
        default=None, description="Difficulty that the new answers ask for, on the same scale."
    )
    drift_z: float | None = Field(
        default=None, description="As a standard normal deviate; above 0: easier than it was."
    )
    drift_p: float | None = None
    drift_distance: float | None = Field(
        default=None, description="Of the two curves, as a probability."
    )
    drifted: bool | None = None

    @classmethod
    def of(cls, row: FittedRow) -> Self:
        """The outgoing shape."""
        values: dict[str, Any] = {
            name: value if math.isfinite(value) else None for name, value in row.columns.items()
        }
        if (drifted := values.get("drifted")) is not None:
            values["drifted"] = bool(drifted)
        a, intercept = row.columns["a"], row.columns["intercept"]
        b = -intercept / a if a else None
        return cls.model_validate({**values, "position": row.position, "key": row.key, "b": b})


class AbilityRead(Output):
    """What one examinee's whole record says on the calibrated bank."""

    position: int
    examinee: str
    theta: float = Field(description="Weighted likelihood estimate.")
    se: float | None
    score: float = Field(description="Mean over the answers given.")

    @classmethod
    def of(cls, row: AbilityRow) -> Self:
        """The outgoing shape."""
        return cls(
            position=row.position,
            examinee=row.examinee,
            theta=row.theta,
            se=row.se if math.isfinite(row.se) else None,
            score=row.score,
        )


class AbilityList(Output):
    """One page of a calibration's examinees."""

    object: Literal["list"] = "list"
    data: list[AbilityRead]
    last_position: int = Field(description="Ask next with `?after=<last_position>`.")
    has_more: bool


class FittedItemList(Output):
    """One page of a calibration's items."""

    object: Literal["list"] = "list"
    data: list[FittedItemRead]
    last_position: int = Field(description="Ask next with `?after=<last_position>`.")
    has_more: bool
