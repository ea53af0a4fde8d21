"""Figures of sessions, stored as JSON and returned in this form by the REST API.

Field descriptions and defaults are for the API. Fields that may be missing are missing in sessions
older than the field.
"""

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from app.items import JsonObject
from app.records.fields import Interval


class ExtrapolationFigures(TypedDict):
    """Where the examinee stands among the reference models, and whether their curves hold."""

    position: Annotated[
        float,
        Field(
            description="Of its general ability, in standard deviations of the reference models."
        ),
    ]
    sd: NotRequired[
        Annotated[
            float | None,
            Field(
                default=None,
                description="Standard deviation of that position. Above 1 the answers tell less "
                "than that the examinee is a model like the reference models, and decisions by "
                "ability take a wider interval. Null in older results.",
            ),
        ]
    ]
    percentile: Annotated[
        float, Field(description="Share of the reference models that are weaker, 0 to 100.")
    ]
    standing: Annotated[
        str,
        Field(
            description="Within the reference models, by a standard deviation beyond all of them, "
            "or unknown.",
            json_schema_extra={"enum": ["within", "above", "below", "unknown"]},
        ),
    ]
    difference: Annotated[
        float | None,
        Field(
            description="By how much the sampled questions put the score above the curves'; null "
            "where fewer than three were sampled."
        ),
    ]
    odds: Annotated[
        float,
        Field(
            description="How many times likelier the answers are if the curves of the reference "
            "models do not hold for this examinee; a million at most."
        ),
    ]
    agrees: Annotated[bool, Field(description="Whether that is less than ten times.")]
    detail: Annotated[str, Field(description="All this in words.")]
    caution: Annotated[
        str | None,
        Field(description="Why to trust the result less; null where nothing speaks against it."),
    ]


#: The interval by the model alone, without a correction.
_Raw = Annotated[
    Interval | None,
    Field(
        default=None, description="The interval by the model alone; null where nothing was learned."
    ),
]


class EstimateFigures(TypedDict):
    """Ability on the bank's scale, in logits."""

    theta: Annotated[
        float | None,
        Field(
            description="Null, as `se`, `interval` and the session's `score`, as long as fewer "
            "than five answers are scored; `reason` then says so."
        ),
    ]
    se: Annotated[float | None, Field(description="Standard error, by the model alone.")]
    interval: Annotated[
        Interval | None,
        Field(
            description="95 % interval, made to hold by what tests of other examinees taught "
            "about the version."
        ),
    ]
    interval_raw: NotRequired[_Raw]
    method: str
    at_bound: bool
    extrapolation: NotRequired[
        Annotated[
            ExtrapolationFigures | None,
            Field(default=None, description="Null where the version knows no reference models."),
        ]
    ]
    reason: NotRequired[
        Annotated[
            str | None,
            Field(
                default=None,
                description="Why there is no theta: too few answers are scored. Null where there "
                "is one.",
            ),
        ]
    ]


class RecentRankFigures(TypedDict):
    """Where a score stands among the newest of the agents that the bank was calibrated on."""

    since: Annotated[
        str,
        Field(
            description="Half a year before the newest, from the first of the month.",
            json_schema_extra={"format": "date"},
        ),
    ]
    agents: Annotated[int, Field(description="Submitted since.")]
    better_than: Annotated[
        float, Field(description="Share of them with a lower score on the whole bank.")
    ]


class ScoreFigures(TypedDict):
    """The score: the mean over all questions, predicted with its 95 % interval, or known."""

    value: float
    interval: Annotated[Interval | None, Field(description="Null where the score is known.")]
    equivalent_random_items: NotRequired[
        Annotated[
            int | None,
            Field(
                default=None,
                description="Size of a random sample of the questions whose 95 % interval would "
                "be as narrow. Null where the score is 0 or 1, and in results of before it was "
                "told.",
            ),
        ]
    ]
    interval_raw: NotRequired[_Raw]
    nonresponse: NotRequired[
        Annotated[
            float,
            Field(
                default=0.0,
                description="Share of the asked items without a score. Nobody knows what they "
                "would have scored: the interval's `lo` is lowered by this share of itself.",
            ),
        ]
    ]
    method: Annotated[
        str,
        Field(
            description="`combined`, `design`, `score-model` or `p-irt` predicted it; with "
            "`all_items` every question was asked, and it is their mean."
        ),
    ]
    target: NotRequired[
        Annotated[
            dict[str, float] | None,
            Field(
                default=None,
                description="Of which tags it is, and their shares; null: of the whole bank.",
            ),
        ]
    ]


class StoredScore(ScoreFigures):
    """A score with the fields that only the headline shows."""

    recent: NotRequired[RecentRankFigures | None]


class AbilityFigures(TypedDict):
    """One ability of several, in units of the models that the bank was calibrated on."""

    name: str
    value: float
    se: float
    interval: Interval
    above: Annotated[
        float, Field(description="Share of those models that are thought to have less of it.")
    ]


class TaskFigures(TypedDict):
    """Predicted score on all items of a tag, asked or never asked, with its 95 % interval."""

    tag: Annotated[
        str,
        Field(
            description="`all` is the whole bank, told here where the session is about another "
            "score."
        ),
    ]
    value: float
    interval: Interval
    n_items: int
    n_asked: int


class ProfileFigures(TypedDict):
    """Several abilities, and the predicted score of every task."""

    abilities: list[AbilityFigures]
    tasks: list[TaskFigures]


class RightFigures(TypedDict):
    """How the scored answers are scored."""

    right: NotRequired[
        Annotated[
            int | None,
            Field(
                default=None,
                description="Scored answers that are right; null where one has a score in between.",
            ),
        ]
    ]
    mean: NotRequired[
        Annotated[
            float | None, Field(default=None, description="Mean score of the scored answers.")
        ]
    ]


class StepsFigures(TypedDict):
    """How many items were asked, and marked, so far."""

    items: int
    scored: int
    in_flight: int


class ProgressFigures(StepsFigures, RightFigures):
    """How far the test is."""

    expected_items: Annotated[
        int | None,
        Field(
            description="In all, if the precision goes on as now; never fewer than `min_items` "
            "asks for."
        ),
    ]


class Cost(TypedDict):
    """What answers cost, where it is known."""

    tokens_in: int | None
    tokens_out: int | None
    usd: float | None


class CallsFigures(TypedDict):
    """What calls took. `usd` is null when a price or a token count is unknown."""

    calls: int
    tokens_in: int
    tokens_out: int
    usd: float | None


class CacheFigures(Cost):
    """Calls that kept answers saved, judges' included, and what these took when they were made."""

    calls: int


class LatencyFigures(TypedDict):
    """Of answers, milliseconds, as the calls took them; of manual sessions as the client says."""

    p50: Annotated[float, Field(description="Half of the answers did not take longer.")]
    p95: Annotated[float, Field(description="All but a twentieth did not.")]


class UsageFigures(CallsFigures):
    """What it took so far. `usd` is null when a price or a token count is unknown."""

    seconds: float
    latency_ms: NotRequired[
        Annotated[
            LatencyFigures | None,
            Field(
                default=None, description="Null where none is known, and in sessions older than it."
            ),
        ]
    ]
    judge: NotRequired[
        Annotated[
            CallsFigures | None,
            Field(
                default=None,
                description="Of judges and other scorers that call out; not in the rest.",
            ),
        ]
    ]
    cache: NotRequired[
        Annotated[
            CacheFigures | None,
            Field(
                default=None, description="What kept answers saved; not in the rest. Null: nothing."
            ),
        ]
    ]


class RepeatsEstimate(TypedDict):
    """Theta where each item counts as more than one answer."""

    theta: float | None
    se: float | None
    interval: Interval | None
    answers_per_item: Annotated[
        float,
        Field(
            description="What the answers to an item count as: 1 where they never differ, n where "
            "chance alone makes them."
        ),
    ]


class RepeatsFigures(TypedDict):
    """Items asked several times, over the items of the test: it picks those near the ability."""

    n: int
    items: int
    within_item_variance: Annotated[
        float | None,
        Field(
            description="Mean over items of the unbiased variance of one answer's score; null: no "
            "item has two scores."
        ),
    ]
    pass_k: Annotated[
        list[float | None],
        Field(
            description="pass^k for k from 1 to n: chance that k answers to an item are all right "
            "(score 1)."
        ),
    ]
    estimate: Annotated[
        RepeatsEstimate | None,
        Field(
            description="Theta with all answers counted, as far as they differ within items; "
            "null: no result yet, or several abilities. The session's own takes each item for one "
            "answer."
        ),
    ]


class Outcomes(TypedDict):
    """Items or answers by what became of them. Only `scored` ones enter an estimate."""

    scored: int
    unparsed: int
    refused: int
    error: int
    truncated: int


class PretestFigures(TypedDict):
    """Items without parameters asked beside the test; no figure of the test counts them."""

    planned: int
    items: Annotated[int, Field(description="Closed ones.")]
    in_flight: int
    outcomes: Outcomes
    caution: NotRequired[
        Annotated[
            str | None, Field(default=None, description="Where there are fewer than were wanted.")
        ]
    ]


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
    cached: CacheFigures
    reported: JsonObject
    endpoint_revision: int | None
    usage: str


class Marking(TypedDict):
    """How a scorer that makes calls scored an answer; its other results are beside these fields."""

    scorer: str
    version: str
    spec_hash: str
    usage: CallsFigures
    cached: NotRequired[CallsFigures]


class InversionsFigures(TypedDict):
    """Pairs of answers with the clearly harder item right and the easier one wrong."""

    observed: float
    expected: Annotated[float, Field(description="On these items, of an examinee of this ability.")]


class SurpriseFigures(TypedDict):
    """An answer that an examinee of this ability hardly gives."""

    item_id: str
    score: float
    expected: Annotated[float, Field(description="Mean score of examinees of this ability.")]


class PersonFitFigures(TypedDict):
    """Do the answers fit the bank's model? Flagged: probably not, so doubt theta.

    Many more inversions than expected mean that hard items were right while easy ones were wrong:
    an examinee that has seen the hard ones before answers like that.
    """

    lz: float | None
    p_value: float | None
    flagged: bool
    inversions: NotRequired[Annotated[InversionsFigures | None, Field(default=None)]]
    surprises: NotRequired[
        Annotated[
            list[SurpriseFigures],
            Field(default_factory=list, description="The least expected answers, the worst first."),
        ]
    ]


class RescoreFigures(TypedDict):
    """What marking again has changed. Item by item: `/changes`."""

    answers: int
    changed: Annotated[int, Field(description="Answers whose score or outcome differ.")]
    scored_in_both: int
    mean_before: Annotated[float | None, Field(description="Mean score of those scored in both.")]
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
