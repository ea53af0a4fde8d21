"""Banks, their items and versions, what became of items in tests, and installations, as stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from app.acting import maker, owner
from app.items import BY_KIND, ItemContent, JsonValue, ScorerSpec
from app.records.leased import LeasedRecord

ACTIVE, QUARANTINED, PRETEST = "active", "quarantined", "pretest"


#: The visibility of a bank whose content everybody may see; of any other it stays inside.
OPEN = "open"
_BY_KIND = ScorerSpec(BY_KIND)


@dataclass(frozen=True, slots=True, kw_only=True)
class BankSpec:
    """A bank as its owner describes it: its name, and the way its items are put and scored.

    Attributes:
        visibility: `open`, or `withheld`: content and targets stay inside.
        shared: Other projects may look at it and measure on it.
        default_scorer: Scores the items that name none.
        prompt: Fields of the prompt style: system, prefix, choice_instruction, free_instruction.
        unparsed_policy: What an answer that no extractor can read counts as: `missing` or `wrong`.
        pretest_items: Items in pretest that a session is given if it does not say how many.
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
    """An item about to be stored; an empty content is an item known by its parameters only."""

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
        created_by: The API key that made it; None: the command line, or nobody noted it.
    """

    bank_id: str
    content_hash: str
    revision: int
    created_by: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutline:
    """What an import needs to know of an item that is there already: all but long texts."""

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
    """What lint found in a version, and what was overridden."""

    findings: Annotated[dict[str, int], Field(description="Code to number of items.")]
    items: Annotated[dict[str, int], Field(description="State to number of items.")]
    allow: list[str]
    keep: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class BankVersion:
    """Immutable: items with parameters on one scale.

    Attributes:
        parameters_hash: SHA-256 over model, scale, keys and the float64 parameters.
        provisional: Parameters are a guess, not a calibration.
        n_items: All items, those in pretest included.
        n_calibrated: Items with parameters; they hold positions 0 to n_calibrated - 1.
        has_content: Every calibrated item can be asked.
        calibration: Where the parameters were estimated here: id, fit, and other figures.
        knowledge: What was learned beyond the items' parameters, by part; tests on the version use
            it.
        created_by: The API key that made it; None: the command line, or nobody noted it.
    """

    id: str
    bank_id: str
    number: int
    response_model: str
    scale: str
    parameters_hash: str
    provisional: bool
    notes: str = ""
    lint: LintSummary = field(
        default_factory=lambda: LintSummary(findings={}, items={}, allow=[], keep=[])
    )
    n_items: int
    n_calibrated: int
    has_content: bool
    calibration: Mapping[str, Any] | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
    created_by: str | None = field(default_factory=maker)
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionItem:
    """One item of a version; without parameters when it is in pretest.

    Attributes:
        pretest_sessions: Sessions that were given the item while it was in pretest.
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
        """Difficulty; none where the slope is 0."""
        return -self.intercept / self.a if self.a and self.intercept is not None else None


@dataclass(frozen=True, slots=True)
class PretestItem:
    """An item of a version that has no parameters yet; its position lies behind theirs."""

    position: int
    id: str
    key: str


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The calibrated items of a version, column by column, in order of position."""

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
    """Over all tests of a version."""

    position: int
    asked: int
    marked: int
    mean: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemAnswer:
    """One answer, without its text.

    Attributes:
        examinee: Name of who was asked; None where a test was answered by hand.
        theta: Ability as the test knows it by now; None where none is told.
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
