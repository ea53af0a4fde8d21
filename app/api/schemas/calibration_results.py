"""What came out of a calibration, as JSON: figures, items, abilities."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Literal, Self, TypeVar

from pydantic import AliasPath, Field, model_validator

from app.api.schemas.versions import DriftFigures, FitRead, Knowledge, LikelihoodRead, LinkRead
from app.items import JsonObject
from app.records.calibrations import TaskErrors
from app.shapes import MAX_LISTED, First, Listed, Output

T = TypeVar("T")


class DependentPairRead(Output):
    """Two items that have more in common than ability."""

    first: str
    second: str
    q3: float


class LocalDependenceRead(Output):
    """Local dependence, by Q3: correlations of items after ability is removed."""

    mean: float
    n_flagged: int
    pairs: list[DependentPairRead]


class DroppedRead(Output):
    """An item or examinee that was left out."""

    name: str
    reason: str
    value: float | None
    """Value that was compared with the threshold."""


class DroppedList(Output):
    """Items or examinees that were left out, or that do not measure ability."""

    n: int
    reasons: dict[str, int]
    listed: First[DroppedRead] = Field(description=f"The first {MAX_LISTED}.")

    @model_validator(mode="before")
    @classmethod
    def _of_all(cls, dropped: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        reasons = Counter(entry["reason"] for entry in dropped)
        return {"n": len(dropped), "reasons": reasons, "listed": dropped}


class KeptRead(Output):
    """Numbers of items and examinees in the calibration."""

    items: int
    examinees: int


class ComparedModelRead(LikelihoodRead):
    """One response model of a comparison, by maximum likelihood on the same answers."""

    model: str


class LinkedRead(LinkRead):
    """A link to the scale of an older version, with its anchors."""

    anchors: First[str] = Field(description=f"The first {MAX_LISTED}.")

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, link: Mapping[str, Any]) -> dict[str, Any]:
        return {**link, "n_anchors": len(link["anchors"])}


class TestsRead(Output):
    """Errors of simulated tests by one design.

    Coverage is the share of 95 % intervals that contain the value from the examinee's whole record;
    `..._raw` is for intervals from the model alone.
    """

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
    design: str
    """`default`, or `v_optimal`, a test of the score."""


class CardRowRead(TestsRead):
    """Errors and cost of simulated tests of held-out examinees, by one design."""

    se_target: float | None
    n_examinees: int
    exposure_mean: float
    exposure_max: float
    overlap: float
    theta_mae_se: float | None = None
    """Standard error of `theta_mae`."""
    accuracy_mae_se: float | None = None
    """Standard error of `accuracy_mae`."""
    overlap_jaccard: float | None = None
    """Mean over pairs of tests: items that both asked, as a share of the items that either
    asked."""
    spearman: float | None = None
    """Rank correlation of theta and the true score."""
    kendall: float | None = None
    """Rank correlation of theta and the true score."""
    moved_ranks: float | None = None
    """Share of examinees whose ranks by theta and by true score differ by over ten."""
    theta_ies: float | None = None
    """Theta MAE divided by that of 100 random items, times the number of items divided by 100.
    Lower is better; 1 is no better than random items. Null for banks of at most 100 items."""
    accuracy_ies: float | None = None
    """The same for the score."""
    tasks: dict[str, TaskErrors] = Field(default_factory=dict)
    """With several abilities: errors of the score of each tag."""


class ShiftRead(Output):
    """Tests of examinees unlike the calibration sample, to which they do not belong."""

    hold_out: Literal["strongest_fifth", "strongest_from_weakest", "families"]
    """Examinees that were tested. `strongest_fifth`: the strongest fifth, on a bank calibrated from
    the others. `strongest_from_weakest`: the strongest 30 %, on a bank calibrated from the weakest
    half. `families`: each of the largest families, on a bank calibrated from the others."""
    n_learned: int
    """Number of examinees in the calibration sample; for `families` the smallest."""
    n_examinees: int
    """Number of examinees tested."""
    families: list[str]
    rows: list[TestsRead]
    """Results by design; if empty, `reason` says why."""
    reason: str | None
    """Why this is unknown for the response set."""


class ReportCardRead(Output):
    """Tests of held-out examinees, each on a bank calibrated without them."""

    n_examinees: int
    n_folds: int
    reference: str
    rows: list[CardRowRead]
    shifts: list[ShiftRead] = Field(default_factory=list)
    """Tests of examinees unlike the calibration sample."""
    seconds: float


class CalibrationResult(LikelihoodRead):
    """Results of a calibration. The items are at `/items`."""

    response_set_revision: int
    kept: KeptRead
    dropped_items: DroppedList = Field(validation_alias=AliasPath("dropped", "items"))
    dropped_examinees: DroppedList = Field(validation_alias=AliasPath("dropped", "examinees"))
    score_only_items: DroppedList = Field(
        default_factory=lambda: DroppedList.model_validate([]), validation_alias="score_only"
    )
    """Items that say too little about ability to pass the filters, but stay in the bank for scores
    (`filters.keep_for_score`)."""
    scored_answers: int
    iterations: int
    guessing_sd: float | None = None
    """Estimated standard deviation of the prior on logit c; null if there is none."""
    fit: FitRead
    local_dependence: LocalDependenceRead | None
    """Null for continuous scores, and with several abilities."""
    dispersion: float | None = None
    """For continuous scores: typical dispersion k of the items."""
    dimensionality: JsonObject | None = None
    """For the models nested and mirt: number of dimensions, method, errors."""
    warnings: list[str]
    comparison: list[ComparedModelRead] = Field(default_factory=list)
    """Requested response models, the lowest BIC first."""
    link: LinkedRead | None = None
    drift: DriftFigures | None = None
    """Drift of the old items, if it was checked."""
    report_card: ReportCardRead | None = None
    knowledge: Knowledge = Field(default_factory=dict)
    """Knowledge that is stored with the bank version and used by every test on it."""
    seconds: float


class FittedItemRead(Output):
    """One item, `P(theta) = c + (d - c) / (1 + exp(-(a theta + intercept)))`, with errors.

    A standard error is null if the parameter was not estimated, or ended at its bound.
    """

    position: int
    key: str
    a: float
    b: float | None
    """Difficulty, -intercept / a; null if a is 0."""
    intercept: float
    c: float
    d: float
    se_a: float | None
    se_b: float | None
    se_intercept: float | None
    se_c: float | None
    se_d: float | None
    k: float | None = None
    """Dispersion of continuous scores."""
    se_k: float | None = None
    s_x2: float | None
    """Item fit (S-X2); null if it cannot be computed."""
    s_x2_df: int | None
    s_x2_p: float | None
    s_x2_rmsea: float | None
    """RMSEA of the item fit. From 0.08 on, with p < 0.001, the item is a `misfit`."""
    drift_old_b: float | None = None
    """Difficulty in the older version; null if drift was not checked."""
    drift_new_b: float | None = None
    """Difficulty by the new answers, on the same scale."""
    drift_z: float | None = None
    """Drift as a standard normal deviate; above 0 the item became easier."""
    drift_p: float | None = None
    drift_distance: float | None = None
    """Distance of the two curves, as a probability."""
    drifted: bool | None = None

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Self:
        """The outgoing shape."""
        return cls.model_validate(
            {**item, "b": -item["intercept"] / item["a"] if item["a"] else None}
        )


class Positions(Listed[T], Generic[T]):
    """One page of a calibration's items or examinees."""

    last_position: int
    """The next page is at `?after=<last_position>`."""
    has_more: bool
