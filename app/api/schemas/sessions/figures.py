"""What is known of a session so far, as JSON: ability, predicted score, cost, what went wrong."""

from datetime import date
from typing import Literal

from pydantic import Field

from app.api.schemas.common import Outcomes, Output
from app.records.fields import Interval
from app.reports.figures import Trust


class ExtrapolationRead(Output):
    """Where the examinee stands among the reference models, and whether their curves hold."""

    position: float = Field(
        description="Of its general ability, in standard deviations of the reference models."
    )
    sd: float | None = Field(
        None,
        description="Standard deviation of that position. Above 1 the answers tell less than that "
        "the examinee is a model like the reference models, and decisions by ability take a wider "
        "interval. Null in older results.",
    )
    percentile: float = Field(
        description="Share of the reference models that are weaker, 0 to 100."
    )
    standing: Literal["within", "above", "below", "unknown"] = Field(
        description="Within the reference models, by a standard deviation beyond all of them, or "
        "unknown."
    )
    difference: float | None = Field(
        description="By how much the sampled questions put the score above the curves'; null where "
        "fewer than three were sampled."
    )
    odds: float = Field(
        description="How many times likelier the answers are if the curves of the reference models "
        "do not hold for this examinee; a million at most."
    )
    agrees: bool = Field(description="Whether that is less than ten times.")
    detail: str = Field(description="All this in words.")
    caution: str | None = Field(
        description="Why to trust the result less; null where nothing speaks against it."
    )


class EstimateRead(Output):
    """Ability on the bank's scale, in logits."""

    theta: float | None = Field(
        description="Null, as `se`, `interval` and the session's `score`, as long as fewer than "
        "five answers are scored; `reason` then says so."
    )
    se: float | None = Field(description="Standard error, by the model alone.")
    interval: Interval | None = Field(
        description=(
            "95 % interval, made to hold by what tests of other examinees taught about the version."
        )
    )
    interval_raw: Interval | None = Field(
        default=None,
        description="The interval by the model alone; null where nothing was learned.",
    )
    method: str
    at_bound: bool
    extrapolation: ExtrapolationRead | None = Field(
        default=None,
        description="Null where the version knows no reference models.",
    )
    reason: str | None = Field(
        default=None,
        description="Why there is no theta: too few answers are scored. Null where there is one.",
    )


class RecentRankRead(Output):
    """Where a score stands among the newest of the agents that the bank was calibrated on."""

    since: date = Field(description="Half a year before the newest, from the first of the month.")
    agents: int = Field(description="Submitted since.")
    better_than: float = Field(description="Share of them with a lower score on the whole bank.")


class HeadlineRead(Output):
    """The few figures of a result that people pass on."""

    examinee: str
    bank: str = Field(description="With the tags that the score is of.")
    score: float
    interval: Interval | None = Field(description="95 % interval; null where everything was asked.")
    answers: str | None = Field(description="Such as `15 of 20 right`.")
    asked: int
    n_items: int = Field(description="Questions that the score is of.")
    equivalent_random_items: int | None
    usd: float | None
    usd_all: float | None = Field(description="What all questions would cost at that price.")
    trust: Trust
    better_than: float | None = Field(
        description="Share of the reference models that are weaker; null: unknown."
    )
    recent: RecentRankRead | None = Field(
        description="Null where the bank does not know the days of its agents, or of too few."
    )
    theta: float | None
    se: float | None
    theta_reason: str | None = Field(description="Why theta is not told.")


class ScoreRead(Output):
    """The score: the mean over all questions, predicted with its 95 % interval, or known."""

    value: float
    interval: Interval | None = Field(description="Null where the score is known.")
    equivalent_random_items: int | None = Field(
        default=None,
        description="Size of a random sample of the questions whose 95 % interval would be as "
        "narrow. Null where the score is 0 or 1, and in results of before it was told.",
    )
    interval_raw: Interval | None = Field(
        default=None,
        description="The interval by the model alone; null where nothing was learned.",
    )
    nonresponse: float = Field(
        default=0.0,
        description="Share of the asked items without a score. Nobody knows what they would have "
        "scored: the interval's `lo` is lowered by this share of itself.",
    )
    method: str = Field(
        description="`combined`, `design`, `score-model` or `p-irt` predicted it; with `all_items` "
        "every question was asked, and it is their mean."
    )
    target: dict[str, float] | None = Field(
        default=None, description="Of which tags it is, and their shares; null: of the whole bank."
    )


class AbilityRead(Output):
    """One ability of several, in units of the models that the bank was calibrated on."""

    name: str
    value: float
    se: float
    interval: Interval
    above: float = Field(description="Share of those models that are thought to have less of it.")


class TaskRead(Output):
    """Predicted score on all items of a tag, asked or never asked, with its 95 % interval."""

    tag: str = Field(
        description="`all` is the whole bank, told here where the session is about another score."
    )
    value: float
    interval: Interval
    n_items: int
    n_asked: int


class ProfileRead(Output):
    """Several abilities, and the predicted score of every task."""

    abilities: list[AbilityRead]
    tasks: list[TaskRead]


class StepsRead(Output):
    """How many items were asked, and marked, so far."""

    items: int
    scored: int
    in_flight: int


class ProgressRead(StepsRead):
    """How far the test is."""

    right: int | None = Field(
        default=None,
        description="Scored answers that are right; null where one has a score in between.",
    )
    mean: float | None = Field(default=None, description="Mean score of the scored answers.")
    expected_items: int | None = Field(
        description="In all, if the precision goes on as now; never fewer than `min_items` asks "
        "for."
    )


class CallsRead(Output):
    """What calls took. `usd` is null when a price or a token count is unknown."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None


class CacheRead(Output):
    """Calls that kept answers saved, judges' included, and what these took when they were made."""

    calls: int
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None


class RepeatsEstimate(Output):
    """Theta where each item counts as more than one answer."""

    theta: float | None
    se: float | None
    interval: Interval | None
    answers_per_item: float = Field(
        description="What the answers to an item count as: 1 where they never differ, n where "
        "chance alone makes them."
    )


class RepeatsRead(Output):
    """Items asked several times, over the items of the test: it picks those near the ability."""

    n: int
    items: int
    within_item_variance: float | None = Field(
        description="Mean over items of the unbiased variance of one answer's score; null: no item "
        "has two scores."
    )
    pass_k: list[float | None] = Field(
        description="pass^k for k from 1 to n: chance that k answers to an item are all right "
        "(score 1)."
    )
    estimate: RepeatsEstimate | None = Field(
        description="Theta with all answers counted, as far as they differ within items; null: no "
        "result yet, or several abilities. The session's own takes each item for one answer."
    )


class LatencyRead(Output):
    """Of answers, milliseconds, as the calls took them; of manual sessions as the client says."""

    p50: float = Field(description="Half of the answers did not take longer.")
    p95: float = Field(description="All but a twentieth did not.")


class UsageRead(CallsRead):
    """What it took so far. `usd` is null when a price or a token count is unknown."""

    seconds: float
    latency_ms: LatencyRead | None = Field(
        default=None, description="Null where none is known, and in sessions older than it."
    )
    judge: CallsRead | None = Field(
        default=None, description="Of judges and other scorers that call out; not in the rest."
    )
    cache: CacheRead | None = Field(
        default=None, description="What kept answers saved; not in the rest. Null: nothing."
    )


class PretestRead(Output):
    """Items without parameters asked beside the test; no figure of the test counts them."""

    planned: int
    items: int = Field(description="Closed ones.")
    in_flight: int
    outcomes: Outcomes
    caution: str | None = Field(default=None, description="Where there are fewer than were wanted.")


class InversionsRead(Output):
    """Pairs of answers with the clearly harder item right and the easier one wrong."""

    observed: float
    expected: float = Field(description="On these items, of an examinee of this ability.")


class SurpriseRead(Output):
    """An answer that an examinee of this ability hardly gives."""

    item_id: str
    score: float
    expected: float = Field(description="Mean score of examinees of this ability.")


class PersonFitRead(Output):
    """Do the answers fit the bank's model? Flagged: probably not, so doubt theta.

    Many more inversions than expected mean that hard items were right while easy ones were wrong:
    an examinee that has seen the hard ones before answers like that.
    """

    lz: float | None
    p_value: float | None
    flagged: bool
    inversions: InversionsRead | None = None
    surprises: list[SurpriseRead] = Field(
        default_factory=list, description="The least expected answers, the worst first."
    )


class RescoreRead(Output):
    """What marking again has changed. Item by item: `/changes`."""

    answers: int
    changed: int = Field(description="Answers whose score or outcome differ.")
    scored_in_both: int
    mean_before: float | None = Field(description="Mean score of those scored in both.")
    mean_after: float | None
    theta_before: float | None
    se_before: float | None
