"""Comparisons as JSON."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from app.api.schemas.common import Input, Name, Output, Text
from app.engine.inference.comparison import Difference
from app.records.fields import Interval, interval, shallow
from app.services.results.comparisons import Compared, Comparison

Confidence = Annotated[float, Field(ge=0.5, lt=1)]
SessionName = Annotated[str, Field(pattern=r"^ses_[0-9a-z]{26}$")]
ExamineeName = Annotated[Text, Field(min_length=1, max_length=500)]


class ComparisonCreate(Input):
    """Two ended sessions, or two examinees of a response set."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "session_ids": [
                        "ses_01jd0000000000000000000000",
                        "ses_01jd0000000000000000000001",
                    ]
                },
                {"response_set": "recorded", "examinees": ["m1", "m2"], "confidence": 0.9},
            ]
        }
    )

    session_ids: Annotated[list[SessionName], Field(min_length=2, max_length=2)] | None = None
    response_set: Name | None = None
    """Id or name of the response set."""
    examinees: Annotated[list[ExamineeName], Field(min_length=2, max_length=2)] | None = None
    confidence: Confidence = 0.95
    """Confidence of intervals and verdicts."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        of_set = (self.response_set is not None, self.examinees is not None)
        if of_set[0] != of_set[1]:
            raise ValueError("give response_set and examinees together")
        if (self.session_ids is not None) == of_set[0]:
            raise ValueError("give either session_ids, or response_set with examinees")
        return self


class DifferenceRead(Output):
    """A difference: first minus second."""

    delta: float
    se: float | None
    """Standard error of `delta`; null if the items show no spread to estimate it."""
    interval: Interval | None
    """Interval of `delta` at the given confidence."""
    p_value: float
    test: Literal["mcnemar_exact", "paired_t", "cluster_t", "sign", "z"]
    power: float | None
    """Probability that as many new items would detect a difference of this size."""
    items_to_decide: int | None
    """Number of further items for each side that detect it with probability 0.8; 0 if it is
    detected already. Null if no number is enough, or the bank has too few items left."""
    verdict: Literal["above", "below", "undecided"]
    """Whether the first is above or below the second, by the p-value."""

    @classmethod
    def of(cls, found: Difference, confidence: float) -> "DifferenceRead":
        """From the engine's value."""
        known = interval(found.lo, found.hi, confidence)
        return cls.model_validate({**shallow(found), "interval": known}, strict=False)


class ComparisonRead(Output):
    """First compared with second: by score, on the common items, and by ability."""

    object: Literal["comparison"] = "comparison"
    metric: Literal["score"] = "score"
    """Metric that decides by default."""
    first: Compared
    second: Compared
    confidence: float
    scale: str | None
    """Scale of the thetas; null if there is no common one."""
    n_common: int
    """Number of items on which both have a score."""
    score: DifferenceRead | None
    """Difference of the scores on the whole bank; for a response set, on the common items. Null if
    a score is unknown, the sessions are about different questions, or there are too few items."""
    common: DifferenceRead | None
    """Mean difference on the common items; null if there are too few."""
    theta: DifferenceRead | None
    """Difference of abilities; null if a theta is unknown or the scales differ."""
    reason: str | None = None
    """Why two sessions cannot be compared: one has too few scored answers."""
    caution: str | None = None
    """How the two sessions were asked differently, and whether the bank was not cross-validated.
    Null if neither."""

    @classmethod
    def of(cls, found: Comparison) -> "ComparisonRead":
        """From the service's value."""
        differences = {
            what: difference and DifferenceRead.of(difference, found.confidence)
            for what, difference in (
                ("score", found.score),
                ("common", found.common),
                ("theta", found.theta),
            )
        }
        # As dicts, so that figures of before get what they lack.
        sides = {"first": shallow(found.first), "second": shallow(found.second)}
        told = {**shallow(found), **sides}
        told["caution"] = " ".join(filter(None, (found.caution, told.pop("theta_caution")))) or None
        return cls.model_validate({**told, **differences}, from_attributes=True)
