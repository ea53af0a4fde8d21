"""Figures of sessions and rankings, and where they come from, as stored in JSON and told by REST.

What each means is said once, where REST tells it: in `app.api.schemas.sessions` and
`app.api.schemas.rankings`. What may be missing is missing in sessions older than it.
"""

from typing import Literal, NotRequired, TypedDict

from app.items import JsonObject
from app.records.fields import IntervalJson

#: How answers were obtained, by what is known: `mode`, `shots`, `scorer`, ...
AskedJson = dict[str, str | float | None]


class ExtrapolationFigures(TypedDict):
    """Where the examinee stands among the reference models."""

    position: float
    sd: NotRequired[float]
    percentile: float
    standing: str
    difference: float | None
    odds: float
    agrees: bool
    detail: str
    caution: str | None


class EstimateFigures(TypedDict):
    """Ability."""

    theta: float | None
    se: float | None
    interval: IntervalJson | None
    interval_raw: NotRequired[IntervalJson | None]
    method: str
    at_bound: bool
    extrapolation: NotRequired[ExtrapolationFigures | None]
    reason: NotRequired[str | None]


class RecentFigures(TypedDict):
    """Rank of a score among the newest agents."""

    since: str
    agents: int
    better_than: float


class ScoreFigures(TypedDict):
    """The predicted score."""

    value: float
    interval: IntervalJson | None
    equivalent_random_items: NotRequired[int | None]
    interval_raw: NotRequired[IntervalJson | None]
    nonresponse: NotRequired[float]
    method: str
    target: NotRequired[dict[str, float] | None]
    recent: NotRequired[RecentFigures | None]


class AbilityFigures(TypedDict):
    """One ability of several."""

    name: str
    value: float
    se: float
    interval: IntervalJson | None
    above: float


class TaskFigures(TypedDict):
    """Predicted score on the items of a tag."""

    tag: str
    value: float
    interval: IntervalJson | None
    n_items: int
    n_asked: int


class ProfileFigures(TypedDict):
    """Several abilities, and the score of each task."""

    abilities: list[AbilityFigures]
    tasks: list[TaskFigures]


class RightFigures(TypedDict):
    """How the scored answers are scored."""

    right: NotRequired[int | None]
    mean: NotRequired[float | None]


class StepsFigures(TypedDict):
    """How many items were asked, and scored."""

    items: int
    scored: int
    in_flight: int


class ProgressFigures(StepsFigures, RightFigures):
    """How far the test is."""

    expected_items: int | None


class Cost(TypedDict):
    """What answers cost, where it is known."""

    tokens_in: int | None
    tokens_out: int | None
    usd: float | None


class CallsFigures(TypedDict):
    """What calls took."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None


class CacheFigures(Cost):
    """What kept answers took when they were made."""

    calls: int


class UsageFigures(CallsFigures):
    """What a session took."""

    seconds: float
    latency_ms: NotRequired[dict[str, float] | None]
    judge: NotRequired[CallsFigures | None]
    cache: NotRequired[CacheFigures | None]


class RepeatsEstimateFigures(TypedDict):
    """Theta where each item counts as more than one answer."""

    theta: float | None
    se: float | None
    interval: IntervalJson | None
    answers_per_item: float


class RepeatsFigures(TypedDict):
    """Items asked several times."""

    n: int
    items: int
    within_item_variance: float | None
    pass_k: list[float | None]
    estimate: RepeatsEstimateFigures | None


class PretestFigures(TypedDict):
    """Items without parameters, asked beside the test."""

    planned: int
    items: int
    in_flight: int
    outcomes: dict[str, int]
    caution: str | None


class OptionFigures(TypedDict):
    """How likely an option was."""

    option: str
    logprob: float
    tokens: int
    bytes: int


class Method(TypedDict, total=False):
    """How an answer was obtained, where not written and read once."""

    mode: str
    normalise: str
    options: list[OptionFigures]
    repeats: list[JsonObject]
    cached: CacheFigures
    reported: JsonObject
    endpoint_revision: int | None
    usage: str


class Marking(TypedDict):
    """How a scorer that calls out scored an answer; what it found besides stands beside this."""

    scorer: str
    version: str
    spec_hash: str
    usage: CallsFigures
    cached: NotRequired[CallsFigures]


class InversionsFigures(TypedDict):
    """Pairs of answers with the harder item right and the easier one wrong."""

    observed: float
    expected: float


class SurpriseFigures(TypedDict):
    """An answer that was hardly to be expected."""

    item_id: str
    score: float
    expected: float


class PersonFitFigures(TypedDict):
    """Whether the answers fit the bank's model."""

    lz: float | None
    p_value: float | None
    flagged: bool
    inversions: NotRequired[InversionsFigures]
    surprises: NotRequired[list[SurpriseFigures]]


class RescoreFigures(TypedDict):
    """What scoring again has changed."""

    answers: int
    changed: int
    scored_in_both: int
    mean_before: float | None
    mean_after: float | None
    theta_before: float | None
    se_before: float | None


class ResultFigures(TypedDict):
    """What a test has found out."""

    estimate: EstimateFigures
    score: ScoreFigures | None
    profile: NotRequired[ProfileFigures | None]
    progress: ProgressFigures


class SessionFigures(ResultFigures):
    """What is known of a session."""

    usage: UsageFigures
    repeats: NotRequired[RepeatsFigures | None]
    outcomes: dict[str, int]
    pretest: NotRequired[PretestFigures | None]
    person_fit: NotRequired[PersonFitFigures]
    rescore: NotRequired[RescoreFigures]


class RankedFigures(StepsFigures):
    """One member of a ranking."""

    endpoint_id: str
    name: str | None
    model: str | None
    session_id: str
    rank_lo: int
    rank_hi: int
    group: int | None
    left_behind: str | None
    theta: float | None
    se: float | None
    interval: IntervalJson | None
    score: ScoreFigures | None
    reason: str | None
    extrapolation: ExtrapolationFigures | None
    usd: float | None


class PairFigures(TypedDict):
    """Two members of a ranking, `a` with more of the metric."""

    a: str
    b: str
    p_a_above_b: float
    p_value: float
    decided: bool


class RankingFigures(TypedDict, total=False):
    """What is known of a ranking; nothing before its first step."""

    order: list[RankedFigures]
    pairs: list[PairFigures]
    ties: list[list[str]]
    decided: bool
    progress: StepsFigures
    usage: CallsFigures
    waiting_until: str | None
    waiting_reason: str | None


class Plan(TypedDict, total=False):
    """How a session is run: the sections of a design, and what goes beyond it."""

    preset: str
    estimator: JsonObject
    selection: JsonObject
    stopping: JsonObject
    prediction: JsonObject
    budget: JsonObject
    concurrency: int
    failures: JsonObject
    pretest: JsonObject
    repeats: int
    cache: bool
    answer_within: float
    idle_timeout: float


class PromptChanges(TypedDict, total=False):
    """What a session does otherwise than its bank."""

    mode: Literal["generate", "loglikelihood"]
    shots: int
    system: str


class RankingSettings(TypedDict):
    """How a ranking is run."""

    rules: JsonObject
    budget: JsonObject
    asking: Plan
    prompt: PromptChanges
    by_hand: NotRequired[bool]


class Asking(TypedDict):
    """How items are put and scored: what a session keeps to until its end."""

    bank_revision: int
    prompt: JsonObject
    wanted_mode: NotRequired[str | None]
    default_scorer: JsonObject
    unparsed_policy: str


class Origin(TypedDict):
    """The endpoint that was called, or who answers by hand, of whom less is known."""

    id: str
    revision: int
    name: str | None
    kind: str
    model: str
    options: JsonObject
    base_url: NotRequired[str]
    sampling: NotRequired[JsonObject]
    price: NotRequired[dict[str, float | None]]
    reasoning_tags: NotRequired[list[str]]
    parameters_hash: NotRequired[str]


class Conditions(TypedDict):
    """In which way a session was asked."""

    asked: NotRequired[AskedJson]
    asking: Asking


class Provenance(Conditions):
    """What a session is made of and under."""

    code_version: str
    bank: str
    bank_version_id: str
    bank_version: int
    parameters_hash: str
    scale: str
    response_model: str
    provisional: bool
    uncertainty: NotRequired[str]
    n_items: int
    n_never_asked: NotRequired[int]
    n_uncalibrated: NotRequired[int]
    asked_when_calibrated: NotRequired[AskedJson]
    unparsed_when_calibrated: NotRequired[str | None]
    prompt_template_hash: str
    endpoint: Origin | None
    scorer_endpoints: NotRequired[dict[str, Origin]]
    private_endpoints: bool
    seed: int
    reachable_se: NotRequired[float]
    left_out: NotRequired[int]
    rescored_with: NotRequired[JsonObject | None]
