"""What the bank repository takes and returns, and how rows become it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

from app.items import ItemContent, Message, ScorerSpec
from app.storage.rows.banks import BankRow, BankVersionRow, ItemRow, VersionItemRow

ACTIVE, QUARANTINED, PRETEST = "active", "quarantined", "pretest"
#: The visibility of a bank whose content everybody may see; of any other it stays inside.
OPEN = "open"

#: Fields of a `BankVersion` that share one column.
VERSION_EXTRAS = ("n_calibrated", "has_content", "calibration")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bank:
    """A named collection of items with the way they are put and marked.

    Attributes:
        visibility: `open`, or `withheld`: content and targets stay inside.
        default_scorer: Marks the items that name none.
        prompt: Fields of the prompt style: system, prefix, choice_instruction, free_instruction.
        unparsed_policy: What an answer that no extractor can read counts as: `missing` or `wrong`.
        pretest_items: Items in pretest that a session is given if it does not say how many.
    """

    id: str
    name: str
    description: str = ""
    licence: str | None = None
    source: str | None = None
    visibility: str = "open"
    default_scorer: ScorerSpec
    prompt: Mapping[str, Any] = field(default_factory=dict)
    unparsed_policy: str = "missing"
    pretest_items: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    revision: int
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
    """A stored item."""

    bank_id: str
    content_hash: str
    revision: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOutline:
    """What an import needs to know of an item that is there already: all but its text."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BankVersion:
    """Immutable: items with parameters on one scale.

    Attributes:
        parameters_hash: SHA-256 over model, scale, keys and the float64 parameters.
        provisional: Parameters are a guess, not a calibration.
        lint: Summary: counts by code and by status, and the overrides (`allow`, `keep`).
        n_items: All items, those in pretest included.
        n_calibrated: Items with parameters; they hold positions 0 to n_calibrated - 1.
        has_content: Every calibrated item can be asked.
        calibration: Where the parameters were estimated here: id, fit, and other figures.
        knowledge: What was learned beyond the items' parameters, by part; tests on the version use
            it.
    """

    id: str
    bank_id: str
    number: int
    response_model: str
    scale: str
    parameters_hash: str
    provisional: bool
    notes: str = ""
    lint: Mapping[str, Any] = field(default_factory=dict)
    n_items: int
    n_calibrated: int
    has_content: bool
    calibration: Mapping[str, Any] | None = None
    knowledge: Mapping[str, Any] = field(default_factory=dict)
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


def bank_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Bank` as columns of its row."""
    row = dict(values)
    if "metadata" in row:
        row["details"] = row.pop("metadata")
    if "default_scorer" in row:
        row["default_scorer"] = scorer_json(row["default_scorer"])
    return row


def read_bank(row: BankRow) -> Bank:
    """Row to value."""
    special: dict[str, Any] = {
        "metadata": row.details,
        "default_scorer": ScorerSpec(**row.default_scorer),
    }
    plain = {f.name: getattr(row, f.name) for f in fields(Bank) if f.name not in special}
    return Bank(**plain, **special)


def read_item(row: ItemRow) -> Item:
    """Row to value."""
    return Item(
        id=row.id,
        bank_id=row.bank_id,
        key=row.key,
        content=read_content(row.content),
        scorer=read_scorer(row.scorer),
        tags=tuple(row.tags),
        group=row.group_key,
        expected_tokens_in=row.expected_tokens_in,
        expected_tokens_out=row.expected_tokens_out,
        content_hash=row.content_hash,
        revision=row.revision,
        created_at=row.created_at,
    )


def read_version(row: BankVersionRow) -> BankVersion:
    """Row to value."""
    plain = (f.name for f in fields(BankVersion) if f.name not in VERSION_EXTRAS)
    return BankVersion(**{name: getattr(row, name) for name in plain}, **row.extras)


def read_version_item(row: VersionItemRow, key: str, pretest_sessions: int) -> VersionItem:
    """Row to value."""
    known = row.status != PRETEST
    return VersionItem(
        position=row.position,
        item_id=row.item_id,
        key=key,
        a=row.a if known else None,
        intercept=row.intercept if known else None,
        c=row.c if known else None,
        d=row.d if known else None,
        k=row.k,
        status=row.status,
        flags=tuple(row.flags),
        pretest_sessions=pretest_sessions,
    )


def content_json(content: ItemContent) -> dict[str, Any]:
    """Content as stored; an empty one is `{}`."""
    if content == ItemContent():
        return {}
    return {
        "prompt": content.prompt,
        "messages": [{"role": m.role, "content": m.content} for m in content.messages],
        "choices": list(content.choices),
        "target": list(content.target),
    }


def read_content(value: Mapping[str, Any]) -> ItemContent:
    """Stored content to value."""
    if not value:
        return ItemContent()
    return ItemContent(
        prompt=value["prompt"],
        messages=tuple(Message(m["role"], m["content"]) for m in value["messages"]),
        choices=tuple(value["choices"]),
        target=tuple(value["target"]),
    )


def scorer_json(scorer: ScorerSpec) -> dict[str, Any]:
    """Scorer as stored."""
    return {"name": scorer.name, "params": dict(scorer.params)}


def read_scorer(value: Mapping[str, Any] | None) -> ScorerSpec | None:
    """Stored scorer to value; `None` where none is chosen."""
    return ScorerSpec(value["name"], value["params"]) if value else None
