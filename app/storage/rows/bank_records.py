"""What the bank repository takes and returns, and how rows become it."""

from collections.abc import Mapping
from typing import Any

from app.items import ItemContent, Message, ScorerSpec
from app.records.banks import PRETEST, Bank, BankVersion, Item, VersionItem
from app.records.fields import convert
from app.storage.rows.banks import BankRow, BankVersionRow, ItemRow, VersionItemRow

#: Fields of a `BankVersion` that share one column.
VERSION_EXTRAS = ("n_calibrated", "has_content", "calibration")


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
    scorer = ScorerSpec(**row.default_scorer)
    return convert(Bank, row, metadata=row.details, default_scorer=scorer)


def read_item(row: ItemRow) -> Item:
    """Row to value."""
    return convert(
        Item,
        row,
        content=read_content(row.content),
        scorer=read_scorer(row.scorer),
        tags=tuple(row.tags),
        group=row.group_key,
    )


def read_version(row: BankVersionRow) -> BankVersion:
    """Row to value."""
    return convert(BankVersion, row, **row.extras)


def read_version_item(row: VersionItemRow, key: str, pretest_sessions: int) -> VersionItem:
    """Row to value."""
    said = dict.fromkeys(("a", "intercept", "c", "d")) if row.status == PRETEST else {}
    flags = tuple(row.flags)
    return convert(
        VersionItem, row, key=key, flags=flags, pretest_sessions=pretest_sessions, **said
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
