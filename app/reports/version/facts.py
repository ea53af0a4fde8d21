"""What a report says: frozen values, and the same as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from app.engine.inference.join import JoinCheck
from app.items import JsonObject
from app.records.calibrations import SimulatedTests


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The bank of the report.

    Attributes:
        scale: Name of the theta scale.
        provisional: The parameters are a guess.
        uncertainty: How uncertain the item parameters are and what would change that, in words;
            None if they are calibrated.
        theta_withheld: Why sessions report no theta; None where they report it.
        n_items: Number of items, including those in pretest.
        n_active: Number of items that tests may ask.
        n_quarantined: Number of items that lint keeps out of tests.
        n_pretest: Number of items without parameters.
    """

    bank: str
    version: int | None = None
    model: str
    scale: str
    provisional: bool = False
    uncertainty: str | None = None
    theta_withheld: str | None = None
    notes: str = ""
    parameters_hash: str | None = None
    created_at: str | None = None
    n_items: int
    n_active: int
    n_quarantined: int
    n_pretest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves of the active items over theta; all arrays have the same length.

    Attributes:
        information: Information of all items together.
        se: Standard error of theta if all items are answered, with a N(0, 1) prior.
        se_of_best: Standard error by the number of items, if these are the best at that theta.
        expected_score: Mean expected score of the items.
    """

    theta: tuple[float, ...]
    information: tuple[float, ...]
    se: tuple[float, ...]
    se_of_best: Mapping[int, tuple[float, ...]]
    expected_score: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Precision of a test of one length, at a few thetas.

    Attributes:
        n_items: Number of items of the test.
        half_width: Half width of the 95 % interval at each of `PRECISION_THETAS`, corrected if the
            version has a correction.
    """

    n_items: int
    half_width: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCurve:
    """One item as an example; `chosen` says why it was chosen."""

    key: str
    chosen: str
    a: float
    b: float | None
    c: float
    d: float
    probability: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlaggedItem:
    """An item with findings: each is a code and a sentence."""

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
    """The calibration behind the parameters, as `sextant calibrate` and calibrations report it.

    Attributes:
        dropped_items: Number of items that were left out, by reason.
        score_only_items: Number of items that say too little about ability but count in scores, by
            reason.
        fit: M2, RMSEA, SRMSR and the verdict; see `app.calibration.fit.goodness`.
        dependent_pairs: Pairs of items with the most in common beyond ability: first, second, Q3.
        worst_items: Items whose answers follow their curve least.
        item_verdicts: Number of items by verdict, of those that could be judged.
        comparison: Other response models calibrated on the same answers.
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
class VersionReport:
    """Everything that the report shows.

    Attributes:
        difficulties: Number of active items in the bins of `bin_edges`. The outermost bins include
            everything beyond.
        abilities: Share of the reference models in the same bins; None if unknown.
        flags: Number of items with each lint code.
        flagged: The first items with findings; those kept out of tests come first.
        simulated: None if not computed.
        correction: Correction of intervals, as stored with the version; None without one.
        join: Check of the parameters against answers of live sessions; None if not made.
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
