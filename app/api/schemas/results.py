"""Comparisons, gates, what they are held against, and leaderboards, as JSON."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from typing_extensions import TypeAliasType

from app.api.schemas.sessions import SessionCreate, SessionEndpoint, SessionStatus
from app.engine.inference.comparison import Difference
from app.engine.prediction.p_irt import ALL_ITEMS
from app.engine.ranking.rules import Metric
from app.errors import InvalidInputError
from app.printable import percent_meant
from app.records.fields import Interval, convert, interval, shallow
from app.records.figures import ExtrapolationFigures, LatencyFigures, ScoreFigures
from app.records.gates import Baseline, GateSpec, NamedBaseline
from app.records.sessions import Examinee
from app.reports.figures import Trust
from app.reports.headline import trust_of
from app.services.endpoints.scorer_calls import total
from app.services.results.comparisons import Compared, Comparison
from app.services.results.gates import Gate
from app.services.results.leaderboards import Board, Entry, Leaderboard, Unranked
from app.services.sessions.figures import effort_of
from app.services.sessions.result import result_in
from app.services.visibility import View
from app.shapes import Input, Name, Output, OwnedRead, ShownAs, Text, exactly_one, examples

MetricName = Annotated[Literal["score", "theta"], ShownAs(Metric)]
Confidence = Annotated[float, Field(ge=0.5, lt=1)]
SessionName = Annotated[str, Field(pattern=r"^ses_[0-9a-z]{26}$")]
ExamineeName = Annotated[Text, Field(min_length=1, max_length=500)]


class ComparisonCreate(Input):
    """Two ended sessions, or two examinees of a response set."""

    model_config = examples(
        {"session_ids": ["ses_01jd0000000000000000000000", "ses_01jd0000000000000000000001"]},
        {"response_set": "recorded", "examinees": ["m1", "m2"], "confidence": 0.9},
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
    test: Literal["mcnemar_exact", "paired_t", "cluster_t", "sign", "t", "z"]
    power: float | None
    """Probability that as many new items would detect a difference of this size."""
    items_to_decide: int | None
    """Number of further items for each side that has any left, so that it is detected with
    probability 0.8; 0 if it is already. Null if no number is enough, or too few are left."""
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


Direction = TypeAliasType("Direction", Literal["above", "below"])


class GateCreate(Input):
    """A session, existing or to be started, and the threshold or baseline that decides."""

    model_config = examples(
        {"session_id": "ses_01jd0000000000000000000000", "threshold": 0.5},
        {
            "session_id": "ses_01jd0000000000000000000000",
            "baseline": "production",
            "tolerance": 0.02,
        },
        {
            "session": {
                "bank": "demo",
                "endpoint": {
                    "kind": "openai_chat",
                    "base_url": "http://127.0.0.1:8080/v1",
                    "model": "my-model",
                },
            },
            "metric": "theta",
            "threshold": 0.0,
            "confidence": 0.9,
        },
    )

    session_id: SessionName | None = None
    session: SessionCreate | None = None
    """Session to start for the gate. With the metric `theta` it stops as soon as the gate is
    decided, unless it has a cut score of its own."""
    metric: MetricName = "score"
    """Metric to compare: `score`, or `theta`, the ability in logits."""
    tag: Name | None = None
    """With `score` and a version of several abilities: tag whose items the score is about; null for
    the whole bank."""
    threshold: float | None = None
    """Threshold: for the score from 0 to 1, for theta in logits, from -50 to 50."""
    baseline: Name | None = None
    """Instead of a threshold: name of a baseline, or id of an ended session. A session that is
    started for the gate is asked in the same way."""
    tolerance: Annotated[float, Field(ge=0, le=50)] | None = None
    """With a baseline: how much worse still passes. For a score, 0.02 is 2 points; for theta, in
    logits."""
    direction: Direction = "above"
    """Side of the threshold that means `go`."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    """Confidence of the interval that must lie wholly on one side of the threshold."""

    _one_session = exactly_one("session_id", "session")

    _one_mark = exactly_one("threshold", "baseline")

    @model_validator(mode="after")
    def _with_tolerance(self) -> Self:
        if (self.baseline is None) != (self.tolerance is None):
            raise ValueError("give baseline and tolerance together")
        return self

    def to_domain(self, baseline: Baseline | None) -> GateSpec:
        """As the service takes it."""
        threshold = self.threshold
        if threshold is None:
            allowed = self.tolerance or 0.0
            if self.metric == "score" and allowed > 1:
                meant = percent_meant(allowed) or "more than the whole score"
                detail = f"expected a share from 0 to 1, got {allowed:g}; {meant}"
                raise InvalidInputError.of_field("tolerance", detail)
            threshold = 0.0 - allowed if self.direction == "above" else allowed
        stands = {"baseline": baseline, "baseline_name": self.baseline}
        return convert(GateSpec, self, threshold=threshold, **stands)


class BaselineSet(Input):
    """The session whose result gets the name."""

    session_id: SessionName


class BaselineRead(OwnedRead):
    """The result of a session, stored under a name. It remains if the session is deleted."""

    object: Literal["baseline"] = "baseline"
    name: str
    session_id: str
    """Session of the result; it may be deleted by now."""
    examinee: str
    """Endpoint or examinee that was tested."""
    bank: str
    bank_version_id: str
    score: float | None
    score_interval: Interval | None
    """95 % interval."""
    theta: float | None
    theta_interval: Interval | None
    """95 % interval."""
    n_items: int
    """Number of scored answers."""
    set_at: datetime

    @classmethod
    def of(cls, record: NamedBaseline) -> "BaselineRead":
        """From the stored baseline."""
        kept = record.baseline
        found = result_in(kept.summary)
        score = found.score or {"value": None, "interval": None}
        return cls.model_validate(
            {
                **shallow(record),
                **shallow(kept),
                "examinee": kept.label,
                "score": score["value"],
                "score_interval": score["interval"],
                "theta": found.theta,
                "theta_interval": interval(*found.interval),
                "n_items": found.n_scored,
            }
        )


class GateRead(OwnedRead):
    """A gate. It is decided when its session has ended."""

    id: str
    object: Literal["gate"] = "gate"
    status: Literal["pending", "decided"]
    outcome: Literal["go", "no_go", "inconclusive"] | None
    detail: str
    session_id: str
    session_status: SessionStatus
    metric: MetricName
    tag: str | None
    threshold: float
    """Threshold. With a baseline: for the difference, the tolerance with its sign."""
    baseline: str | None
    """Name of the baseline, or id of its session; null with a threshold."""
    direction: Direction
    confidence: float
    value: float | None
    """Value of the metric; with a baseline, its difference from the baseline."""
    interval: Interval | None
    """Interval of the value at the gate's confidence."""
    margin: float | None
    """Distance of the value beyond the threshold, in the direction of `go`."""
    p_beyond: float | None
    """Probability that the true value is beyond the threshold, from the intervals that decide: `go`
    at 0.5 + confidence / 2 or more, `no_go` at 0.5 - confidence / 2 or less. After earlier looks it
    stays nearer to 0.5, at 0.5 itself if the value says less than they cost. Null without a result,
    or if the result is a guess."""
    extrapolation: ExtrapolationFigures | None
    """Position of the examinee among the reference models."""
    created_at: datetime

    @classmethod
    def of(cls, gate: Gate, view: View) -> "GateRead":
        """From the service's value."""
        gate = view.gate(gate)
        record, result = gate.record, gate.result
        return cls.model_validate(
            {
                **shallow(record),
                **shallow(gate),
                "baseline": record.baseline_name,
                "status": "pending" if result is None else "decided",
                "outcome": result and result.outcome.value,
                "session_status": gate.session.status,
                "interval": result and interval(*result.interval, record.confidence),
                "margin": result and result.margin,
                "p_beyond": result and result.p_beyond,
            }
        )


class LeaderboardEntry(Output):
    """The present result of one endpoint, or of one named examinee who answers by hand."""

    rank_lo: int
    """Best rank that is still possible; 1 is best."""
    rank_hi: int
    """Worst rank that is still possible."""
    group: int
    """Number of the tie group. Every model of a group beats every model of the next; within it some
    are statistically tied. `rank_lo` and `rank_hi` are the possible ranks of each."""
    endpoint: SessionEndpoint
    examinee: Examinee | None
    """Named examinee who answered by hand; null for an endpoint."""
    self_reported: bool
    """Whether a client reported the answers."""
    session_id: str
    bank_version: int
    provisional: bool
    theta: float | None
    """Null if the answers have no finite estimate."""
    se: float | None
    interval: Interval | None
    """95 % interval of theta."""
    score: ScoreFigures | None
    """Score on the questions that have parameters."""
    trust: Trust | None
    """Null without a score."""
    extrapolation: ExtrapolationFigures | None
    """Position among the reference models."""
    items: int
    stop_reason: str | None
    precision_reached: bool | None
    tokens: int | None
    """Null if an answer does not tell its tokens."""
    usd: float | None
    usd_per_item: float | None
    """Cost per question with all its repeats, US dollars."""
    latency_ms: LatencyFigures | None
    """Latency of the answers."""
    judge_usd: float | None
    """Cost of judges and of other scorers that make calls, US dollars."""
    finished_at: datetime | None
    base_url: str | None
    """Address that was asked."""
    kind: str | None
    """Kind of its API."""

    @classmethod
    def of(cls, entry: Entry, view: View) -> "LeaderboardEntry":
        """From the service's value."""
        record = view.session(entry.session)
        asked, progress = record.provenance["endpoint"], record.summary["progress"]
        usage, score = record.summary["usage"], entry.result.score
        judge = usage.get("judge")
        if score is not None and score["method"] == ALL_ITEMS:
            score = {**score, "interval": None}
        return cls.model_validate(
            {
                **shallow(record),
                **shallow(entry.result),
                **shallow(entry),
                "score": score,
                "interval": interval(*entry.result.interval),
                "endpoint": shallow(record),
                "examinee": record.examinee,
                "self_reported": record.mode == "manual",
                "session_id": record.id,
                "provisional": record.provenance["provisional"],
                "items": progress["items"],
                "tokens": total((usage["tokens_in"], usage["tokens_out"])),
                "usd": usage["usd"],
                "judge_usd": judge and judge["usd"],
                "trust": score and trust_of(record, score),
                "base_url": asked and asked.get("base_url"),
                "kind": asked and asked.get("kind"),
                **effort_of(record.summary),
            }
        )


class UnrankedEntry(Output):
    """An endpoint whose last sessions have no result, and therefore no rank."""

    endpoint: SessionEndpoint
    session_id: str
    reason: str
    finished_at: datetime | None

    @classmethod
    def of(cls, entry: Unranked) -> "UnrankedEntry":
        """From the service's value."""
        stored = shallow(entry.session)
        told = {"endpoint": stored, "session_id": entry.session.id, "reason": entry.reason}
        return cls.model_validate({**stored, **told})


class BoardRead(Output):
    """Results on one scale, best first."""

    scale: str
    data: list[LeaderboardEntry]
    unranked: list[UnrankedEntry]
    """Endpoints whose last sessions have too few scored answers for a result."""
    caution: str | None = None
    """How these sessions were asked differently, whether many of their answers have no score, and
    which questions the scores exclude."""

    @classmethod
    def of(cls, board: Board, view: View) -> "BoardRead":
        """From the service's value."""
        return cls(
            scale=board.scale,
            data=[LeaderboardEntry.of(entry, view) for entry in board.entries],
            unranked=[UnrankedEntry.of(entry) for entry in board.unranked],
            caution=board.caution,
        )


class LeaderboardRead(BoardRead):
    """Results on the scale of the bank's latest version, and separately those on other scales."""

    object: Literal["leaderboard"] = "leaderboard"
    bank_id: str
    bank: str
    metric: MetricName
    """Metric of the ranks."""
    confidence: float
    """Confidence with which a model beats another, as in a comparison of the two."""
    other_scales: list[BoardRead]
    """Results on older scales. Their thetas cannot be compared with the others."""

    @classmethod
    def of_bank(cls, found: Leaderboard, view: View) -> "LeaderboardRead":
        """From the service's value."""
        return cls(
            **dict(BoardRead.of(found.board, view)),
            bank_id=found.bank.id,
            bank=found.bank.name,
            metric=found.metric,
            confidence=found.confidence,
            other_scales=[BoardRead.of(other, view) for other in found.others],
        )
