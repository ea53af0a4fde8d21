"""Banks, their items and versions, and installations, as stored; how uncertain versions are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NotRequired

from typing_extensions import TypedDict

from app.acting import maker, owner
from app.items import BY_KIND, ItemContent, JsonValue, ScorerSpec
from app.printable import percent
from app.records.leased import LeasedRecord

ACTIVE, QUARANTINED, PRETEST = "active", "quarantined", "pretest"


#: Visibility of a bank with public content; content of other banks stays inside.
OPEN = "open"
_BY_KIND = ScorerSpec(BY_KIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSpec:
    """A bank as its owner describes it: its name, and how its items are asked and scored.

    Attributes:
        visibility: `open`, or `withheld`: content and targets stay inside.
        shared: Whether other projects may look at the bank and measure on it.
        default_scorer: Scorer of the items that name none.
        prompt: Fields of the prompt style: system, prefix, choice_instruction, free_instruction.
        unparsed_policy: What an unparseable answer counts as: `missing` or `wrong`.
        pretest_items: Default number of pretest items in a session.
    """

    name: str
    description: str = ""
    licence: str | None = None
    source: str | None = None
    visibility: str = OPEN
    shared: bool = False
    default_scorer: ScorerSpec = _BY_KIND
    prompt: Mapping[str, Any] = field(default_factory=dict)
    unparsed_policy: str = "missing"
    pretest_items: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank(BankSpec):
    """A stored bank: a named collection of items."""

    id: str
    revision: int
    project_id: str = field(default_factory=owner)
    created_by: str | None = field(default_factory=maker)
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewItem:
    """An item to be stored; without content, only the item's parameters are known."""

    id: str
    key: str
    content: ItemContent
    scorer: ScorerSpec | None = None
    tags: tuple[str, ...] = ()
    group: str | None = None
    expected_tokens_in: int | None = None
    expected_tokens_out: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item(NewItem):
    """A stored item.

    Attributes:
        created_by: API key that created the item; None for the command line, or if not recorded.
    """

    bank_id: str
    content_hash: str
    revision: int
    created_by: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutline:
    """What an import needs of an existing item: everything but long texts."""

    id: str
    key: str
    content_hash: str
    scorer: ScorerSpec | None
    tags: tuple[str, ...]
    group: str | None
    expected_tokens_in: int | None
    expected_tokens_out: int | None
    has_content: bool
    has_target: bool
    n_choices: int = 0
    targets: tuple[str, ...] = ()


class LintSummary(TypedDict):
    """Lint findings of a version, and the overrides."""

    findings: dict[str, int]
    """Number of items with each lint code."""
    items: dict[str, int]
    """Number of items in each state."""
    allow: list[str]
    keep: list[str]
    n_unmatched: NotRequired[int]
    """Number of items whose parameters were left out, since the bank has no such item."""
    unmatched: NotRequired[list[str]]
    """The first of them, by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BankVersion:
    """An immutable version: items with parameters on one scale.

    Attributes:
        parameters_hash: SHA-256 over model, scale, keys and the float64 parameters.
        provisional: Whether the parameters are a guess, not a calibration.
        n_items: Number of all items, pretest items included.
        n_calibrated: Number of items with parameters, which hold positions 0 to n_calibrated - 1.
        has_content: Whether every calibrated item can be asked.
        calibration: Id, fit and other figures of the calibration, if it ran here.
        knowledge: Results of the calibration beside the item parameters, by part, for tests on the
            version.
        created_by: API key that created the version; None for the command line, or if not recorded.
    """

    id: str
    bank_id: str
    number: int
    response_model: str
    scale: str
    parameters_hash: str
    provisional: bool
    notes: str = ""
    lint: LintSummary
    n_items: int
    n_calibrated: int
    has_content: bool
    calibration: Mapping[str, Any] | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    created_by: str | None = field(default_factory=maker)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionItem:
    """One item of a version; an item in pretest has no parameters.

    Attributes:
        pretest_sessions: Number of sessions that got the item while it was in pretest.
    """

    position: int
    item_id: str
    key: str
    a: float | None
    intercept: float | None
    c: float | None
    d: float | None
    k: float | None
    status: str
    flags: Sequence[Mapping[str, Any]] = ()
    pretest_sessions: int = 0

    @property
    def b(self) -> float | None:
        """Difficulty; None where the slope is 0."""
        return -self.intercept / self.a if self.a and self.intercept is not None else None


@dataclass(frozen=True, slots=True)
class PretestItem:
    """An item of a version without parameters yet; its position follows those with parameters."""

    position: int
    id: str
    key: str


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The calibrated items of a version as columns, in order of position."""

    item_ids: tuple[str, ...]
    keys: tuple[str, ...]
    groups: tuple[str | None, ...]
    tags: tuple[tuple[str, ...], ...]
    expected_tokens_in: tuple[int | None, ...]
    expected_tokens_out: tuple[int | None, ...]
    a: tuple[float, ...]
    intercept: tuple[float, ...]
    c: tuple[float, ...]
    d: tuple[float, ...]
    k: tuple[float | None, ...]
    statuses: tuple[str, ...]
    has_content: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemUse:
    """Use of an item over all tests of a version.

    Attributes:
        asked: How often it was asked.
        tests: Number of tests that asked it; all extensions of a test belong to it.
    """

    position: int
    asked: int
    tests: int
    marked: int
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnswer:
    """One answer to an item, without its text.

    Attributes:
        examinee: Name of the examinee; None for a test answered by hand.
        theta: Current ability estimate of the test; None where there is none.
    """

    session_id: str
    examinee: str | None
    theta: float | None
    step: int
    outcome: str
    score: float | None
    answered_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationRecord(LeasedRecord):
    """One installation as stored; names as in the table `installations`."""

    entry: str
    progress: dict[str, JsonValue]
    result: dict[str, JsonValue] | None


#: Part of a bank version's knowledge.
PROVISIONAL = "provisional"
#: Uncertain items that widen standard errors of theta by less than this count as calibrated.
NEGLIGIBLE = 0.05
#: Examinees for a first calibration; each later one needs half as many again.
FIRST_EXAMINEES = 30
GROWTH = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisional:
    """How uncertain the item parameters of a version are.

    Attributes:
        n_examinees: Number of examinees whose answers were used; 0 before anybody answered.
        n_answers: Number of these answers.
        answers_per_item: Median number of answers to an item.
        se_b: Median standard error of an item's difficulty, logits; None if unknown.
        widening: Relative increase of standard errors of theta by the uncertainty of the items.
    """

    n_examinees: int
    n_answers: int
    answers_per_item: float
    se_b: float | None
    widening: float

    @classmethod
    def of(cls, knowledge: Mapping[str, Any]) -> "Provisional | None":
        """Read from a version's knowledge; None if the version's items are not provisional."""
        known = knowledge.get(PROVISIONAL)
        if known is None:
            return None
        return cls(**{name: known[name] for name in cls.__slots__})

    @property
    def matters(self) -> bool:
        """Whether the uncertainty must be shown with every result."""
        return self.widening > NEGLIGIBLE

    @property
    def next_examinees(self) -> int:
        """Total number of examinees at which another calibration is worthwhile."""
        return max(FIRST_EXAMINEES, round(GROWTH * self.n_examinees))


def provisional_words(known: Provisional) -> str:
    """Describe the uncertainty in a sentence or two, for readers of a result."""
    wider = f"Standard errors include that, and are {percent(known.widening)} wider for it"
    if not known.n_examinees:
        return (
            "Difficulties are guesses: no model's answers calibrated these questions. "
            f"{wider}; theta's unit and zero are guesses, too: compare models that were tested on "
            "this version with each other, and with nothing else."
        )
    error = "" if known.se_b is None else f", so that difficulties have an SE of {known.se_b:.2f}"
    return (
        f"The items' parameters are provisional: they rest on the answers of {known.n_examinees} "
        f"examinees, {known.answers_per_item:.0f} to an item{error}. {wider}."
    )
