"""What the page of a test says: frozen values, and the same as JSON."""

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
    """Which test the page is about.

    Attributes:
        examinee: Who was tested, in a few words.
        uncertainty: How uncertain the items' parameters were, in words; None where they are none.
        n_items: Items that tests may ask.
        n_never_asked: Quarantined ones; the score of the whole bank counts them all the same.
        n_uncalibrated: Questions of the bank without parameters; no score counts them.
        n_calibrated_on: Models that the bank was calibrated on; None where nobody knows.
        relation: What it is of `parent_id`: `extend`, `replay` or `rescore`.
        design: As stored with the session.
        stops_when: What ends the test by that design, in words.
        unparsed_policy: What answers that nobody can read count as, `wrong` or `missing`.
        unparsed_when_calibrated: As what they counted when the bank was calibrated; None where
            nobody knows.
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
        return whole_bank(self.n_items + self.n_never_asked, self.n_uncalibrated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Share of the models that the bank was calibrated on which are thought to be worse."""

    value: float
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score, predicted with its 95 % interval, or known.

    Attributes:
        interval: None where every question was asked.
        exactness: What the interval is worth in random questions, in words; None where unknown.
        equivalent_random_items: The same as a number.
        of: Shares by tag that it is a score of; empty for the whole bank.
        checked: The interval was made to hold on models that nothing was learned from.
        below: None where the calibrated models are not known, or nobody can tell.
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
    """One ability, in units of the models that the bank was calibrated on.

    Attributes:
        above: Share of those models that are thought to have less of it.
        tasks: Tags whose scores rise most with it; empty where none stands out.
        against: Tags whose scores fall with it.
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
    """The items that share a tag.

    Attributes:
        n_items: How many there are.
        n_asked: How many of them were asked and marked.
        observed: Mean score on those; None without any.
        value: Predicted score on all of them; None where the bank measures one ability.
        interval: Its 95 % interval.
        typical: What is expected of a model that is as good overall: on all items where they are
            predicted, else on those that were asked.
        standing: `stronger` or `weaker` than that, beyond chance; None where it is neither.
    """

    tag: str
    n_items: int
    n_asked: int
    observed: float | None
    value: float | None = None
    interval: Interval | None = None
    typical: float | None = None
    standing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePoint:
    """What was known after so many marked answers: ability, and predicted score."""

    answers: int
    theta: float
    interval: Interval
    score: float | None = None
    score_interval: Interval | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedItem:
    """One item of the test.

    Attributes:
        question: How it begins; None where it may not be shown or there is none.
        outcome: None while the answer is awaited.
        expected: Mean score of models of this ability; None in pretest.
        target: What counts as right, while the answer is known; None as for `question`.
        answer: How the answer begins, or what was read from it.
        reason: Why it has no score.
        theta: Ability as estimated after it.
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
class SessionReport:
    """All that the page shows.

    Attributes:
        score: None where nothing was predicted, or nothing marked.
        estimate: theta, se, interval, method as the session has them.
        abilities: Empty where the bank measures one.
        tasks: The largest first; `n_tasks` counts all.
        figures: The session's progress, usage, outcomes, pretest, person_fit and rescore.
        items: The first of them; `n_asked` counts all.
        join: What all answers to the version so far say of its parameters; None where nobody
            looked.
        headline: None before there is a score.
        reference: The models that the bank was calibrated on.
        standing: Among them; None where nobody can tell.
    """

    identity: SessionIdentity
    score: Score | None
    estimate: JsonObject
    abilities: tuple[Ability, ...]
    tasks: tuple[TaskResult, ...]
    n_tasks: int
    trace: tuple[TracePoint, ...]
    figures: JsonObject
    stop_reason: str | None
    stop_detail: str | None
    precision_reached: bool | None
    failure: Failure | None
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
