"""What came out of a calibration, as JSON: figures, items, abilities."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from pydantic import AliasPath, Field, model_validator

from app.api.schemas.banks.versions import (
    DriftFigures,
    FitRead,
    Knowledge,
    LikelihoodRead,
    LinkRead,
)
from app.api.schemas.common import MAX_LISTED, First, Int32, Known, Listed, Output
from app.items import JsonObject
from app.services.calibrations.service import FittedRow

T = TypeVar("T")

#: Position to list behind; -1 begins with the first.
AfterPosition = Annotated[Int32, Field(ge=-1)]


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
    """All of one kind that took no part, or no part in measuring."""

    n: int
    reasons: dict[str, int]
    listed: First[DroppedRead] = Field(description=f"The first {MAX_LISTED}.")

    @model_validator(mode="before")
    @classmethod
    def _of_all(cls, dropped: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        reasons = Counter(entry["reason"] for entry in dropped)
        return {"n": len(dropped), "reasons": reasons, "listed": dropped}


class KeptRead(Output):
    """What took part."""

    items: int
    examinees: int


class ComparedModelRead(LikelihoodRead):
    """One family beside others, by maximum likelihood on the same answers."""

    model: str


class LinkedRead(LinkRead):
    """The same, with the anchors."""

    anchors: First[str] = Field(description=f"The first {MAX_LISTED}.")

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, link: Mapping[str, Any]) -> dict[str, Any]:
        return {**link, "n_anchors": len(link["anchors"])}


class CardTaskRead(Output):
    """How the predicted score of one tag did, asked or not."""

    n_examinees: int
    mae: float
    coverage95: float


class TestsRead(Output):
    """How simulated tests by one design did.

    Coverage is the share of 95 % intervals that held what the examinee's whole record gives;
    `..._raw` that of the model's own intervals.
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
    design: str = Field(description="`default`, or `v_optimal`: a test for the score.")


class CardRowRead(TestsRead):
    """The same of examinees that the bank had not seen, with what it took."""

    se_target: float | None
    n_examinees: int
    exposure_mean: float
    exposure_max: float
    overlap: float
    theta_mae_se: float | None = Field(None, description="Standard error of `theta_mae`.")
    accuracy_mae_se: float | None = Field(None, description="Standard error of `accuracy_mae`.")
    overlap_jaccard: float | None = Field(
        None, description="Of the items of any of two tests, the share that both asked, on average."
    )
    spearman: float | None = Field(None, description="Of theta and the real score.")
    kendall: float | None = Field(None, description="Of theta and the real score.")
    moved_ranks: float | None = Field(
        None,
        description="Share of examinees whose ranks by theta and by the real score are more than "
        "ten apart.",
    )
    theta_ies: float | None = Field(
        None,
        description="Theta MAE over that of 100 random items, times the items over 100: lower is "
        "better, 1 no better than random items. Null for a bank of no more than 100 items.",
    )
    accuracy_ies: float | None = Field(None, description="The same of the score.")
    tasks: dict[str, CardTaskRead] = Field(
        default_factory=dict, description="Of several abilities: score of each tag."
    )


class ShiftRead(Output):
    """Tests of examinees unlike those learned from; nothing was learned from the tested."""

    hold_out: Literal["strongest_fifth", "strongest_from_weakest", "families"] = Field(
        description="Who was tested: the strongest fifth; the strongest 30 %, with only the "
        "weakest half known; the largest families, each in turn with only the others known."
    )
    n_learned: int = Field(description="Examinees learned from; of families the fewest.")
    n_examinees: int = Field(description="Examinees tested.")
    families: list[str]
    rows: list[TestsRead] = Field(description="By design; empty where `reason` says why.")
    reason: str | None = Field(description="Why this cannot be told of this response set.")


class ReportCardRead(Output):
    """Tests of held-out examinees, each on a bank calibrated without them."""

    n_examinees: int
    n_folds: int
    reference: str
    rows: list[CardRowRead]
    shifts: list[ShiftRead] = Field(
        default_factory=list, description="Of examinees unlike those learned from."
    )
    seconds: float


class CalibrationResult(LikelihoodRead):
    """What came out; the items are at `/items`."""

    response_set_revision: int
    kept: KeptRead
    dropped_items: DroppedList = Field(validation_alias=AliasPath("dropped", "items"))
    dropped_examinees: DroppedList = Field(validation_alias=AliasPath("dropped", "examinees"))
    score_only_items: DroppedList = Field(
        default_factory=lambda: DroppedList.model_validate([]),
        validation_alias="score_only",
        description="Items that say too little of ability to pass the filters, and stay in the "
        "bank for scores: `filters.keep_for_score`.",
    )
    scored_answers: int
    iterations: int
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
    dimensionality: JsonObject | None = Field(
        default=None, description="Of the models nested and mirt: dimensions, method, errors."
    )
    warnings: list[str]
    comparison: list[ComparedModelRead] = Field(
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


class ExamineeAbilityRead(Output):
    """What one examinee's whole record says on the calibrated bank."""

    position: int
    examinee: str
    theta: float = Field(description="Weighted likelihood estimate.")
    se: Known
    score: float = Field(description="Mean over the answers given.")


class Positions(Listed[T], Generic[T]):
    """One page of a calibration's items or examinees."""

    last_position: int = Field(description="Ask next with `?after=<last_position>`.")
    has_more: bool
