"""Content of the report on a test: frozen values, and the same as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from app.engine.inference.join import JoinCheck
from app.items import JsonObject
from app.records.fields import Interval
from app.records.leased import Failure
from app.reports.figures import Headline, whole_bank
from app.reports.reference_strip import Reference, StripPosition


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionIdentity:
    """The test of the report.

    Attributes:
        examinee: Who was tested, in a few words.
        uncertainty: How uncertain the item parameters were, in words; None if they are not
            uncertain.
        n_items: Number of items that tests may ask.
        n_never_asked: Number of quarantined items; the score of the whole bank includes them.
        n_uncalibrated: Number of questions without parameters; the score excludes them.
        n_calibrated_on: Number of reference models; None if unknown.
        relation: How the session was made from `parent_id`: `extend`, `replay` or `rescore`.
        design: Design of the test, as stored with the session.
        stops_when: When the test ends by its design, in words.
        unparsed_policy: How unparseable answers count, `wrong` or `missing`.
        unparsed_when_calibrated: How they counted when the bank was calibrated; None if unknown.
    """

    id: str
    examinee: str
    mode: str
    status: str
    bank: str
    bank_version: int
    bank_version_id: str
    response_model: str
    scale: str
    provisional: bool
    uncertainty: str | None = None
    n_items: int
    n_never_asked: int = 0
    n_uncalibrated: int = 0
    n_calibrated_on: int | None = None
    parameters_hash: str | None = None
    parent_id: str | None = None
    relation: str | None = None
    ranking_id: str | None = None
    design: JsonObject
    seed: int
    metadata: Mapping[str, str] = field(default_factory=dict)
    code_version: str | None = None
    stops_when: str = ""
    unparsed_policy: str = "missing"
    unparsed_when_calibrated: str | None = None
    asked: JsonObject = field(default_factory=dict)
    asked_when_calibrated: JsonObject = field(default_factory=dict)
    created_at: str
    finished_at: str | None = None

    @property
    def whole_bank(self) -> str:
        """What the score of the whole bank is of, in words."""
        return whole_bank(self.n_counted, self.n_uncalibrated)

    @property
    def n_counted(self) -> int:
        """Number of questions that the score of the whole bank is about, asked or set aside."""
        return self.n_items + self.n_never_asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Estimated share of the reference models with a lower score.

    If their scores are unknown, with less ability.
    """

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score, either predicted with a 95 % interval, or known.

    Attributes:
        interval: 95 % interval; None if every question was asked.
        exactness: Number of random questions with an equally narrow interval, in words; None if
            unknown.
        equivalent_random_items: The same as a number.
        of: Tags that the score is about, with their weights; empty for the whole bank.
        checked: Whether the interval is corrected by the errors of tests of held-out models.
        below: Share of the reference models below; None if unknown.
    """

    value: float
    interval: Interval | None
    method: str
    exactness: str | None = None
    equivalent_random_items: int | None = None
    of: Mapping[str, float]
    checked: bool
    below: Share | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ability:
    """One ability, in standard deviations of the reference models.

    Attributes:
        above: Share of the reference models that have less of this ability; None if unknown.
        tasks: Tags whose scores rise most with the ability; empty if none stands out.
        against: Tags whose scores fall with the ability.
    """

    name: str
    value: float
    se: float
    interval: Interval
    above: float | None
    tasks: tuple[str, ...] = ()
    against: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """Result on the items of one tag.

    Attributes:
        n_items: Number of items with the tag.
        n_asked: Number of them with a scored answer.
        observed: Mean score of these answers; None without any.
        value: Predicted score on all items of the tag; None if the bank measures one ability.
        interval: 95 % interval of `value`.
        method: Method of `value`, as that of the session's score; None in older results, too.
        typical: Expected score of a model that is equally good overall: on all items if `value` is
            given, otherwise on the items that were asked.
        standing: `stronger` or `weaker` than `typical`, beyond chance; None if neither.
    """

    tag: str
    n_items: int
    n_asked: int
    observed: float | None
    value: float | None = None
    interval: Interval | None = None
    method: str | None = None
    typical: float | None = None
    standing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """Ability and predicted score after a number of scored answers."""

    answers: int
    theta: float
    interval: Interval
    score: float | None = None
    score_interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """One item of the test.

    Attributes:
        question: Beginning of the question; None if it may not be shown or there is none.
        outcome: None while the answer is pending.
        expected: Expected score of models of this ability; None in pretest.
        target: Right answer, once the answer has come; None as for `question`.
        answer: Beginning of the answer, or what the scorer read from it.
        reason: Why there is no score.
        theta: Ability estimated after this item.
    """

    step: int
    item_id: str
    tags: tuple[str, ...]
    pretest: bool
    question: str | None
    outcome: str | None
    score: float | None
    expected: float | None
    target: str | None
    answer: str | None
    reason: str | None
    theta: float | None
    se: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """A reason to trust the result less."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a test ended, or that it has not."""

    stop_reason: str | None = None
    stop_detail: str | None = None
    precision_reached: bool | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport(Ended):
    """Everything that the report shows.

    Attributes:
        score: None if nothing was predicted or scored.
        estimate: theta, se, interval and method, as in the session.
        abilities: Empty if the bank measures one ability.
        tasks: Results by tag, the largest first; `n_tasks` counts all.
        tasks_overlap: Whether an item has several of these tags.
        figures: The session's progress, usage, outcomes, pretest, person_fit and rescore.
        items: The first items; `n_asked` counts all.
        join: Check of the parameters against all answers to the version; None if not made.
        headline: None until there is a score.
        reference: The reference models.
        standing: Position among them; None if unknown.
    """

    identity: SessionIdentity
    score: Score | None
    estimate: JsonObject
    abilities: tuple[Ability, ...]
    tasks: tuple[TaskResult, ...]
    n_tasks: int
    tasks_overlap: bool
    trace: tuple[TracePoint, ...]
    figures: JsonObject
    warnings: tuple[Caution, ...]
    items: tuple[AskedItem, ...]
    n_asked: int
    join: JoinCheck | None = None
    headline: Headline | None = None
    reference: Reference | None = None
    standing: StripPosition | None = None

    def to_dict(self) -> dict[str, JsonValue]:
        """JSON-able; numbers that are not finite become null."""
        document: dict[str, JsonValue] = from_json(to_json(self, inf_nan_mode="null"))
        return document
