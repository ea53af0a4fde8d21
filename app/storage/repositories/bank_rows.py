"""What the bank repository takes and returns, and how rows become it."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from app.items import ItemContent, Message, ScorerSpec
from app.records.banks import PRETEST, Bank, BankVersion, Item, VersionItem
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
