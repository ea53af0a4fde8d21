"""What a report says: frozen values, and the same as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from app.engine.inference.join import JoinCheck
from app.items import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which bank the report is about.

    Attributes:
        scale: Name of the theta scale.
        provisional: The parameters are a guess.
        uncertainty: How uncertain the items are, and what would change that, in words; None where
            they are no guesses.
        n_items: All items, those in pretest included.
        n_active: Those that tests ask.
        n_quarantined: Those that lint keeps out of tests.
        n_pretest: Those without parameters.
    """

    bank: str
    version: int | None = None
    model: str
    scale: str
    provisional: bool = False
    uncertainty: str | None = None
    notes: str = ""
    parameters_hash: str | None = None
    created_at: str | None = None
    n_items: int
    n_active: int
    n_quarantined: int
    n_pretest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """The active items over theta, all of one length.

    Attributes:
        information: Of all of them together.
        se: Standard error that is left once all are answered, over a N(0, 1) prior.
        se_of_best: The same after so many items, the best at that theta.
        expected_score: Mean share of right answers.
    """

    theta: tuple[float, ...]
    information: tuple[float, ...]
    se: tuple[float, ...]
    se_of_best: Mapping[int, tuple[float, ...]]
    expected_score: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What a test of some length leaves open, at a few thetas.

    Attributes:
        n_items: Length.
        half_width: Half of the 95 % interval at each of `PRECISION_THETAS`; where a correction is
            known, of the interval for what all items would tell.
    """

    n_items: int
    half_width: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCurve:
    """One item as an example; `chosen` says of what."""

    key: str
    chosen: str
    a: float
    b: float | None
    c: float
    d: float
    probability: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedItem:
    """An item with findings, each a code and one sentence."""

    key: str
    status: str
    reasons: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedItem:
    """How well the answers to one item follow its curve; `verdict` is the RMSEA in a word."""

    key: str
    a: float
    se_a: float | None
    b: float | None
    se_b: float | None
    rmsea: float
    p_value: float
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationFacts:
    """Where the parameters come from, as `sextant calibrate` and calibrations tell it.

    Attributes:
        dropped_items: Reason to number of items that took no part.
        score_only_items: The same of items that say too little of ability, and count in scores.
        fit: M2, RMSEA, SRMSR and the verdict; see `app.calibration.fit.goodness`.
        dependent_pairs: First, second, Q3 of the item pairs that share most beyond ability.
        worst_items: Those whose answers follow their curve least.
        item_verdicts: Word to number of items, of those that could be judged.
        comparison: Other families calibrated on the same answers.
    """

    model: str
    n_examinees: int
    n_items: int
    scored_answers: int | None = None
    converged: bool
    log_likelihood: float
    n_parameters: int | None = None
    aic: float
    bic: float
    fit: JsonObject
    warnings: tuple[str, ...] = ()
    dropped_items: Mapping[str, int] = field(default_factory=dict)
    score_only_items: Mapping[str, int] = field(default_factory=dict)
    dropped_examinees: Mapping[str, int] = field(default_factory=dict)
    n_dependent_pairs: int | None = None
    dependent_pairs: tuple[tuple[str, str, float], ...] = ()
    item_verdicts: Mapping[str, int]
    worst_items: tuple[FittedItem, ...] = ()
    comparison: tuple[JsonObject, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTest:
    """Tests of held-out examinees on their own recorded answers, by one design.

    Attributes:
        design: Its name.
        se_target: The standard error that it stops at, if at one.
        figures: Such as `items_mean`, `theta_mae` and `coverage95`, by name; of those of the
            intervals, `..._raw` is what the model alone gives.
        tasks: Of several abilities: `mae` and `coverage95` of the predicted score of each tag.
    """

    design: str
    se_target: float | None
    figures: Mapping[str, float | None]
    tasks: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedTests:
    """The same of examinees unlike those learned from; see `app.calibration.fit.shifts`.

    Attributes:
        hold_out: Who was held out.
        n_learned: Examinees learned from.
        n_examinees: Examinees tested.
        families: Those held out in turn.
        rows: By design.
        reason: Why there are none.
    """

    hold_out: str
    n_learned: int
    n_examinees: int
    families: tuple[str, ...] = ()
    rows: tuple[SimulatedTest, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedTests:
    """The same by several designs, and of examinees unlike those learned from."""

    n_examinees: int
    rows: tuple[SimulatedTest, ...]
    shifts: tuple[ShiftedTests, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionReport:
    """All that the page shows.

    Attributes:
        difficulties: Counts of active items in the bins whose edges are `bin_edges`; what lies
            beyond the edges is in the outermost bins.
        abilities: Examinees in the same bins, from their quantiles, where they are known.
        flags: Code to number of items.
        flagged: The first of them, those kept out of tests before the others.
        simulated: None where it was not computed.
        correction: What makes the intervals hold, as stored with the version; None without.
        join: Whether the parameters belong to the questions, by answers of live sessions; None
            where nobody looked.
    """

    identity: Identity
    curves: Curves
    best_range: tuple[float, float]
    precision: tuple[Precision, ...]
    bin_edges: tuple[float, ...]
    difficulties: tuple[int, ...]
    abilities: tuple[float, ...] | None = None
    examples: tuple[ItemCurve, ...]
    flags: Mapping[str, int]
    n_flagged: int
    flagged: tuple[FlaggedItem, ...]
    calibration: CalibrationFacts | None = None
    simulated: SimulatedTests | None = None
    correction: JsonObject | None = None
    join: JoinCheck | None = None

    def to_dict(self) -> dict[str, JsonValue]:
        """JSON-able; numbers that are not finite become null."""
        document: dict[str, JsonValue] = from_json(to_json(self, inf_nan_mode="null"))
        return document


#: Abilities of the table of precision: a weak, an average and a strong model.
PRECISION_THETAS = (-2.0, -1.0, 0.0, 1.0, 2.0)
