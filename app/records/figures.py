"""Figures of sessions, stored as JSON and returned in this form by the REST API.

Docstrings below fields, and defaults, are for the API. Fields that may be missing are missing in
sessions older than the field.
"""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from app.items import JsonObject
from app.records.fields import Interval


class ExtrapolationFigures(TypedDict):
    """Position of the examinee among the reference models, and whether their curves fit it."""

    position: float
    """General ability of the examinee, the logit of its score on the whole bank, in standard
    deviations of the reference models from their mean."""
    sd: NotRequired[Annotated[float | None, Field(default=None)]]
    """Standard error of `position`; 0 if every question was asked, null in older results."""
    interval: NotRequired[Annotated[Interval | None, Field(default=None)]]
    """95 % interval of `position`, null in older results."""
    percentile: float
    """Share of the reference models with a lower score, 0 to 100."""
    standing: Annotated[
        str, Field(json_schema_extra={"enum": ["within", "above", "below", "unknown"]})
    ]
    """`above`: score above all reference models, and ability by the curves, too, by a standard
    error; `below`: likewise below all; `unknown`: the answers leave the ability open, so decisions
    by ability use a wider interval; otherwise `within`."""
    difference: float | None
    """Score by the randomly sampled questions minus score by the curves of the reference models;
    null with fewer than three sampled questions."""
    odds: float
    """Likelihood ratio of the answers: without the curves of the reference models to with them; at
    most a million."""
    agrees: bool
    """Whether the answers agree with the curves: `odds` is below ten."""
    detail: str
    """Position and agreement in words."""
    caution: str | None
    """Reasons to trust the result less; null if there are none."""


#: The interval by the model alone, without a correction.
_Raw = Annotated[
    Interval | None,
    Field(
        default=None,
        description="Interval from the model alone, without the version's correction; null if "
        "the version has none.",
    ),
]


class EstimateFigures(TypedDict):
    """Ability on the bank's scale, in logits."""

    theta: float | None
    """Null until five answers are scored, as are `se`, `interval` and the session's `score`;
    `reason` then says so."""
    se: float | None
    """Standard error from the model alone."""
    interval: Interval | None
    """95 % interval. It is corrected by the errors of tests of held-out examinees, if the version
    has such a correction."""
    interval_raw: NotRequired[_Raw]
    method: str
    at_bound: bool
    extrapolation: NotRequired[Annotated[ExtrapolationFigures | None, Field(default=None)]]
    """Null if the reference models of the version are not known."""
    reason: NotRequired[Annotated[str | None, Field(default=None)]]
    """Why there is no theta: too few scored answers. Null if there is one."""


class RecentRankFigures(TypedDict):
    """Rank of a score among the newest of the reference agents."""

    since: Annotated[str, Field(json_schema_extra={"format": "date"})]
    """First of the month half a year before the newest agent."""
    agents: int
    """Number of reference agents submitted since then."""
    better_than: float
    """Share of these agents with a lower score on the whole bank."""


class ScoreFigures(TypedDict):
    """The score: the mean over all questions, either predicted with a 95 % interval, or known."""

    value: float
    interval: Interval | None
    """95 % interval; null if the score is known."""
    equivalent_random_items: NotRequired[Annotated[int | None, Field(default=None)]]
    """Size of a random sample of questions with an equally narrow 95 % interval. Null if the score
    is 0 or 1, and in results older than this field."""
    interval_raw: NotRequired[_Raw]
    nonresponse: NotRequired[Annotated[float, Field(default=0.0)]]
    """Share f of the asked items that have no score. Their scores could have been lower, so the
    lower end of the interval is multiplied by 1 - f."""
    method: str
    """`all_items`: every question was asked, and the score is their mean. Otherwise the method of
    prediction: `combined`, `design`, `score-model` or `p-irt`."""
    target: NotRequired[Annotated[dict[str, float] | None, Field(default=None)]]
    """Tags that the score is about, with their weights; null: the whole bank."""


class StoredScore(ScoreFigures):
    """A score with the fields that only the headline shows."""

    recent: NotRequired[RecentRankFigures | None]
    n_items: NotRequired[int]
    """Number of questions that the score is about."""
    n_askable: NotRequired[int]
    """Number of these that tests may ask."""


class AbilityFigures(TypedDict):
    """One of several abilities, in standard deviations of the reference models."""

    name: str
    value: float
    se: float
    interval: Interval
    above: float | None
    """Share of the reference models with less of this ability; null for all but a general ability,
    and if the version's calibration had no report card."""


class TaskFigures(TypedDict):
    """Predicted score on all items of a tag, asked or not, with its 95 % interval."""

    tag: str
    """Name of the tag. `all` is the whole bank; it is listed if the session's score is about some
    tags."""
    value: float
    interval: Interval
    method: NotRequired[str]
    """As that of the session's score; not in older results."""
    n_items: int
    n_asked: int


class ProfileFigures(TypedDict):
    """Several abilities, and the predicted score of every task."""

    abilities: list[AbilityFigures]
    """Empty if theta is withheld."""
    tasks: list[TaskFigures]


class RightFigures(TypedDict):
    """How the scored answers are scored."""

    right: NotRequired[Annotated[int | None, Field(default=None)]]
    """Number of right answers; null if any scored one has partial credit."""
    mean: NotRequired[Annotated[float | None, Field(default=None)]]
    """Mean score of the scored answers."""


class StepsFigures(TypedDict):
    """Numbers of items so far: closed (`items`), scored, and in flight."""

    items: int
    scored: int
    in_flight: int


class ProgressFigures(StepsFigures, RightFigures):
    """Progress of the test."""

    expected_items: int | None
    """Expected number of items at the end, if precision improves as it does now, and at least
    `min_items`. Null if unknown."""


class Cost(TypedDict):
    """What answers cost, where it is known."""

    tokens_in: int | None
    tokens_out: int | None
    usd: float | None


class CallsFigures(Cost):
    """Cost of calls. A sum is null if a part of it is unknown."""

    calls: int


class LatencyFigures(TypedDict):
    """Latency of answers, milliseconds: as measured, or as the client of a manual session says."""

    p50: float
    """Median."""
    p95: float
    """95 % quantile."""


class SpentFigures(CallsFigures):
    """Cost so far. A sum is null if an answer does not tell its part, or its price is unknown."""

    at_most: NotRequired[Annotated[CallsFigures | None, Field(default=None)]]
    """What counts against budgets if an endpoint reported no usage: the reservations. Else null."""


class UsageFigures(SpentFigures):
    """Cost of a session so far."""

    seconds: float
    latency_ms: NotRequired[Annotated[LatencyFigures | None, Field(default=None)]]
    """Null if no latency is known, and in sessions older than this field."""
    judge: NotRequired[Annotated[CallsFigures | None, Field(default=None)]]
    """Calls of judges and of other scorers that make calls; the other fields do not count them."""
    cache: NotRequired[Annotated[CallsFigures | None, Field(default=None)]]
    """Calls that the cache saved, judges' included, and what they cost when they were made; the
    other fields do not count them. Null if it saved nothing."""


class RepeatsEstimate(TypedDict):
    """Theta if the repeated answers to an item count as more than one answer."""

    theta: float | None
    se: float | None
    interval: Interval | None
    answers_per_item: float
    """Number of independent answers that the answers to one item count as: 1 if they never differ,
    up to n if they are independent of each other."""


class RepeatsFigures(TypedDict):
    """Results of repeated items: those that the test chose, so most are near the ability."""

    n: int
    items: int
    within_item_variance: float | None
    """Mean over items of the unbiased variance of an answer's score; null if no item has two
    scores."""
    pass_k: list[float | None]
    """pass^k for k from 1 to n: probability that k answers to an item are all right (score 1)."""
    estimate: RepeatsEstimate | None
    """Theta from all answers, weighted by how much answers to the same item differ. The session's
    own theta counts each item as one answer. Null without a result, or with several abilities."""


class Outcomes(TypedDict):
    """Number of items, or of answers, by outcome.

    Estimates use `scored` ones, and `unparsed` ones that count as wrong.
    """

    scored: int
    unparsed: int
    refused: int
    error: int
    truncated: int


class PretestFigures(TypedDict):
    """Pretest items: they have no parameters and are asked beside the test.

    Results of the test do not use them.
    """

    planned: int
    items: int
    """Number of closed pretest items."""
    in_flight: int
    outcomes: Outcomes
    caution: NotRequired[Annotated[str | None, Field(default=None)]]
    """Set if the bank version has fewer pretest items than were wanted."""


#: `usage` of an answer that counts against budgets as reserved, as its endpoint reported nothing.
NOT_TOLD = "not told"


class OptionFigures(TypedDict):
    """How likely an option was."""

    option: str
    logprob: float
    tokens: int
    bytes: int


class Method(TypedDict, total=False):
    """How an answer was obtained, where it was not written and read once."""

    mode: str
    normalise: str
    options: list[OptionFigures]
    repeats: list[JsonObject]
    cached: CallsFigures
    reported: JsonObject
    endpoint_revision: int | None
    usage: str


class Marking(TypedDict):
    """How a scorer that makes calls scored an answer; its other results are beside these fields."""

    scorer: str
    version: str
    spec_hash: str
    usage: CallsFigures
    at_most: NotRequired[CallsFigures]
    """What counts against the scorer's budget where an endpoint reported no usage."""
    cached: NotRequired[CallsFigures]


class InversionsFigures(TypedDict):
    """Pairs of answers in which the clearly harder item is right and the easier one wrong."""

    observed: float
    expected: float
    """Expected number for an examinee of this ability on these items."""


class SurpriseFigures(TypedDict):
    """An answer that is very unlikely for an examinee of this ability."""

    item_id: str
    score: float
    expected: float
    """Expected score of examinees of this ability."""


class PersonFitFigures(TypedDict):
    """Whether the answers fit the bank's model. If `flagged`, they probably do not: doubt theta.

    Many more inversions than expected mean that hard items were right and easy ones wrong. An
    examinee that has seen the hard items before answers like that.
    """

    lz: float | None
    p_value: float | None
    flagged: bool
    inversions: NotRequired[Annotated[InversionsFigures | None, Field(default=None)]]
    surprises: NotRequired[Annotated[list[SurpriseFigures], Field(default_factory=list)]]
    """Least expected answers, the most unlikely first."""


class RescoreFigures(TypedDict):
    """What rescoring changed. `GET .../changes` lists it item by item."""

    answers: int
    changed: int
    """Number of answers whose score or outcome changed."""
    scored_in_both: int
    mean_before: float | None
    """Mean score before, of the answers that have a score before and after."""
    mean_after: float | None
    theta_before: float | None
    se_before: float | None


class ResultFigures(TypedDict):
    """Results of a test."""

    estimate: EstimateFigures
    score: StoredScore | None
    profile: NotRequired[ProfileFigures | None]
    progress: ProgressFigures


class SessionFigures(ResultFigures):
    """All figures of a session."""

    usage: UsageFigures
    repeats: NotRequired[RepeatsFigures | None]
    outcomes: Outcomes
    pretest: NotRequired[PretestFigures | None]
    person_fit: NotRequired[PersonFitFigures]
    rescore: NotRequired[RescoreFigures]
