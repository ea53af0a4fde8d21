"""Draft a bank version: response model, findings, items that may be asked, and hash. No I/O."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import Any

import numpy as np

from app.calibration.logistic.curves import Family
from app.calibration.pipeline.plan import CONTINUOUS_SCORES, MIRT, MODELS, NESTED, SEVERAL_ABILITIES
from app.engine.bank import ItemBank
from app.engine.knowledge import ABILITIES, abilities_to_dict, with_abilities
from app.engine.lint import CODES, Finding, lint, quarantine
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.multidimensional import MultidimensionalModel
from app.errors import FieldProblem, InvalidInputError, ItemBankError, UnknownNameError
from app.exchange.files import MAX_PROBLEMS
from app.items import Json, ScorerSpec
from app.records.banks import (
    ACTIVE,
    PRETEST,
    QUARANTINED,
    Bank,
    BankVersion,
    ItemOutline,
    LintSummary,
    VersionItem,
)
from app.records.fields import shallow
from app.records.response_sets import UNPARSED_POLICY
from app.scorers.numbers import has_factor
from app.services.banks.imports import BankImport, MatchedParameters
from app.services.banks.origins import ASKED
from app.storage.identifiers import new_id

#: Parameters that each family fixes, smallest family first: slopes at 1, c at 0, d at 1.
_FIXED: Mapping[str, Sequence[str]] = {
    Family.RASCH.value: ("a", "c", "d"),
    Family.TWO_PL.value: ("c", "d"),
    Family.THREE_PL.value: ("d",),
    Family.FOUR_PL.value: (),
}


#: Findings that keep no item out of tests.
_DOUBTS = ("rewards_listing", "formula_target")
#: Fields that differ between versions with the same content.
_OF_ONE = ("id", "number", "notes", "created_by", "created_at")
#: Parameters without an item are of the file alone.
_UNMATCHED = ("n_unmatched", "unmatched")
_NO_NUMBERS: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class VersionDraft:
    """A version that is ready to be written, with its items and findings."""

    version: BankVersion
    items: Sequence[VersionItem]
    findings: tuple[Finding, ...]


def draft_version(
    owner: Bank,
    latest: BankVersion | None,
    items: Sequence[ItemOutline],
    matched: MatchedParameters,
    table: ItemBank,
    request: BankImport,
) -> VersionDraft:
    """Decide model, item states and findings of a version.

    `latest` is the bank's version before. `items` are all of the bank, oldest first; those without
    parameters go to pretest. `matched` are those to which the rows of `table` belong. `request` has
    response model and overrides.

    Raises:
        ItemBankError: The response model does not have some of the parameters, or lacks loadings.
        InvalidInputError: An override names nothing, or no item is left that may be asked.
    """
    rows = np.array(matched.rows, dtype=np.intp)
    # Adding 0 turns -0 into 0. Then equal numbers have equal bytes, and equal banks equal hashes.
    bank = ItemBank.from_columns(
        [item.key for item in matched.items],
        {name: values[rows] + 0.0 for name, values in table.columns.items()},
    )
    # Findings about rows of the table get the keys of the matched items.
    keys = {table.item_ids[row]: item.key for row, item in zip(rows, matched.items, strict=True)}
    findings = [
        *lint(bank),
        *(
            replace(finding, item_id=keys[finding.item_id])
            for finding in request.findings
            if finding.item_id in keys
        ),
        *content_findings(items, owner.default_scorer),
    ]
    left_out = quarantined(findings, {item.key for item in items}, request.allow, request.keep)
    members = _members(items, matched, bank, left_out, findings)
    states = Counter(member.status for member in members)
    if not states[ACTIVE]:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        raise InvalidInputError(
            f"Lint sets all {bank.n_items} items aside ({codes}), so that none can be asked. "
            "Repair them, or allow a code."
        )
    several = None if table.abilities is None else table.abilities.take(rows)
    knowledge, wanted = _knowledge(request, several, bank.item_ids)
    bank = with_abilities(bank, knowledge)
    model = response_model_of(bank, wanted)
    number = 1 if latest is None else latest.number + 1
    # Equal parameters are on one scale. The name of a new one contains part of the hash, so that a
    # bank that is deleted and made again has the old scale with the old parameters alone.
    scale = request.scale or f"{owner.name}-v{number}-{_sha256(bank, {})[:8]}"
    if latest is not None and request.scale is None:
        is_equal = parameters_hash(bank, model, latest.scale) == latest.parameters_hash
        scale = latest.scale if is_equal else scale
    summary: LintSummary = {
        "findings": dict(Counter(finding.code for finding in findings)),
        "items": {state: states[state] for state in (ACTIVE, QUARANTINED, PRETEST)},
        "allow": sorted(request.allow),
        "keep": sorted(request.keep),
    }
    for skipped in matched.tally.skipped:
        summary |= {"n_unmatched": skipped.count, "unmatched": [*skipped.keys]}
    version = BankVersion(
        id=new_id("bkv"),
        bank_id=owner.id,
        number=number,
        response_model=model,
        scale=scale,
        parameters_hash=parameters_hash(bank, model, scale),
        provisional=request.provisional,
        notes=request.notes,
        lint=summary,
        n_items=len(members),
        n_calibrated=bank.n_items,
        has_content=all(item.has_content for item in matched.items),
        calibration=request.calibration,
        knowledge=knowledge,
        created_at=datetime.now(UTC),
    )
    return VersionDraft(version, members, tuple(findings))


def repeats(version: BankVersion, latest: BankVersion) -> bool:
    """Whether a drafted version says nothing that the latest one of the bank does not say.

    All items of the bank are in both where their numbers are equal, since none ever changes.
    """

    def content(one: BankVersion) -> Json:
        told = {name: value for name, value in shallow(one).items() if name not in _OF_ONE}
        told["lint"] = {name: each for name, each in one.lint.items() if name not in _UNMATCHED}
        found: Json = json.loads(json.dumps(told))
        return found

    is_noted = version.notes in ("", latest.notes)
    is_equal = version.parameters_hash == latest.parameters_hash
    return is_noted and is_equal and content(version) == content(latest)


def _members(
    items: Sequence[ItemOutline],
    matched: MatchedParameters,
    bank: ItemBank,
    left_out: Collection[str],
    findings: Iterable[Finding],
) -> list[VersionItem]:
    """The items with their states; those with parameters come first, in the table's order."""
    flags: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        flag = {name: value for name, value in shallow(finding).items() if name != "item_id"}
        flags.setdefault(finding.item_id, []).append(flag)
    calibrated = {item.id for item in matched.items}
    known = (
        (item, QUARANTINED if item.key in left_out else ACTIVE, own)
        for item, own in zip(matched.items, _rows(bank), strict=True)
    )
    rest = ((item, PRETEST, _NO_NUMBERS) for item in items if item.id not in calibrated)
    return [
        VersionItem(
            position=position,
            item_id=item.id,
            key=item.key,
            status=status,
            flags=flags.get(item.key, []),
            a=own.get("a"),
            intercept=own.get("intercept"),
            c=own.get("c"),
            d=own.get("d"),
            k=own.get("k"),
        )
        for position, (item, status, own) in enumerate(chain(known, rest))
    ]


def _knowledge(
    request: BankImport, several: MultidimensionalModel | None, keys: Sequence[str]
) -> tuple[dict[str, Any], str | None]:
    """Knowledge of a version, including its loadings, and the requested response model."""
    knowledge, wanted = dict(request.knowledge), request.response_model
    if request.unparsed_policy is not None:
        knowledge[UNPARSED_POLICY] = request.unparsed_policy
    if asked := {name: known for name, known in request.asked.items() if known is not None}:
        knowledge[ASKED] = asked
    if several is not None and ABILITIES not in knowledge:
        found = NESTED if several.items.nested else MIRT
        if wanted not in (None, found):
            raise ItemBankError(
                f"The parameters are those of a {found} bank, not of a {wanted} one: they have "
                f"slopes in {', '.join(several.items.names)}."
            )
        wanted, knowledge[ABILITIES] = found, abilities_to_dict(several, keys)
    if wanted in SEVERAL_ABILITIES and ABILITIES not in knowledge:
        raise ItemBankError(
            f"A {wanted} version needs the loadings of its items: a calibration brings them, or "
            "a table with slopes a1, a2, ... or general, dimension_1, ..."
        )
    return knowledge, wanted


def _rows(bank: ItemBank) -> Iterator[dict[str, float]]:
    columns = bank.columns
    for numbers in zip(*(values.tolist() for values in columns.values()), strict=True):
        yield dict(zip(columns, numbers, strict=True))


def content_findings(items: Sequence[ItemOutline], default: ScorerSpec) -> list[Finding]:
    """Faults of contents and scorers, which the parameters do not show.

    The first of duplicates is kept, so the oldest come first. Items without content are skipped.
    """
    first: dict[str, str] = {}
    findings = []
    for item in items:
        if not item.has_content:
            continue
        spec, twin = item.scorer or default, first.setdefault(item.content_hash, item.key)
        lists = spec.name in ("includes", "pattern") or spec.params.get("method") == "token_set"
        is_numeric = spec.name == "numeric"
        found: dict[str, tuple[bool, str, str | None]] = {
            "missing_key": (not item.has_target, "target", None),
            "duplicate_content": (twin != item.key, "content", twin),
            "rewards_listing": (lists and item.n_choices > 0, "scorer", spec.name),
            "formula_target": (is_numeric and any(map(has_factor, item.targets)), "target", None),
        }
        findings += [
            Finding(
                code=code,
                severity="warning" if code in _DOUBTS else "error",
                item_id=item.key,
                field=field,
                value=value,
                message=f"Item {item.key!r}: {CODES[code]}{f' ({value})' if value else ''}.",
            )
            for code, (is_there, field, value) in found.items()
            if is_there
        ]
    return findings


def quarantined(
    findings: Iterable[Finding],
    keys: Collection[str],
    allow: Collection[str],
    keep: Collection[str],
) -> frozenset[str]:
    """Keys of the items that must not be asked.

    Raises:
        UnknownNameError: `allow` names no lint code.
        InvalidInputError: `keep` names no item of the bank.
    """
    unknown = sorted(set(keep) - set(keys))
    if unknown:
        raise InvalidInputError.of_field(
            "keep", f"expected keys of the bank's items, got {unknown[0]!r}"
        )
    return quarantine(findings, allow=allow) - set(keep)


def response_model_of(bank: ItemBank, wanted: str | None) -> str:
    """The smallest model that has these parameters, or `wanted` if that has them.

    Raises:
        UnknownNameError: No such model.
        ItemBankError: Some items have parameters that `wanted` does not have.
    """
    if wanted is not None and wanted not in MODELS:
        raise UnknownNameError("response model", wanted, MODELS)
    is_continuous = bank.model is CONTINUOUS
    if wanted is not None and (wanted == CONTINUOUS_SCORES) != is_continuous:
        raise ItemBankError(
            f"The parameters are those of a {'' if is_continuous else 'non-'}continuous bank, "
            f"not of a {wanted} one: only continuous items have a column k, the dispersion."
        )
    if is_continuous:
        return CONTINUOUS_SCORES
    if wanted in SEVERAL_ABILITIES:
        return wanted
    flat = bank.a == 0.0  # such items count for the score only, and fit beside any model
    held = {"a": bank.a[np.argmin(flat)], "c": 0.0, "d": 1.0}
    columns = bank.columns
    off = {name: np.flatnonzero((columns[name] != at) & ~flat) for name, at in held.items()}
    smallest = next(
        model for model, fixed in _FIXED.items() if not any(off[name].size for name in fixed)
    )
    problems = [
        FieldProblem(
            f"/parameters/{i}/{name}",
            f"item {bank.item_ids[i]!r}: expected {name} = {held[name]:g} in a {wanted} bank,"
            f" got {columns[name][i]:g}",
        )
        for name in _FIXED[wanted or smallest]
        for i in off[name].tolist()
    ]
    if not problems:
        return wanted or smallest
    raise ItemBankError(
        f"The parameters are those of a {smallest} bank, not of a {wanted} one."
        f" First: {problems[0].detail}.",
        problems=problems[:MAX_PROBLEMS],
    )


def parameters_hash(bank: ItemBank, response_model: str, scale: str) -> str:
    """SHA-256 over model, scale, keys and the little-endian float64 of a, intercept, c, d.

    Continuous models append k; models of several abilities append their slopes, row by row.
    """
    return _sha256(bank, {"response_model": response_model, "scale": scale})


def _sha256(bank: ItemBank, header: Mapping[str, str]) -> str:
    text = json.dumps({**header, "keys": bank.item_ids}, ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    columns = [*bank.columns.values()]
    if bank.abilities is not None:
        columns.append(bank.abilities.items.slopes)
    for column in columns:
        digest.update(column.astype("<f8").tobytes())
    return digest.hexdigest()
