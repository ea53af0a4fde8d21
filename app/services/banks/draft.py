"""What becomes a bank version: response model, findings, who may be asked, and the hash. Pure."""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.lint import Finding, lint, quarantine
from app.engine.models.continuous import CONTINUOUS
from app.engine.models.multidimensional import MultidimensionalModel
from app.engine.multidimensional.knowledge import ABILITIES, abilities_to_dict, with_abilities
from app.errors import FieldProblem, InvalidInputError, ItemBankError, UnknownNameError
from app.exchange.files import MAX_PROBLEMS
from app.records.banks import ACTIVE, PRETEST, QUARANTINED, ItemOutline, VersionItem
from app.records.fields import shallow
from app.services.banks.asked import ASKED
from app.services.banks.imports import BankImport, MatchedParameters
from app.services.responses.unparsed import UNPARSED_POLICY

_FAMILIES = ("1pl", "2pl", "3pl", "4pl")
SEVERAL_ABILITIES = ("nested", "mirt")
RESPONSE_MODELS = (*_FAMILIES, "continuous", *SEVERAL_ABILITIES)


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDraft:
    """A version that is ready to be written, but for its id and number.

    Attributes:
        knowledge: What was learned about it, and its loadings, where the table brought them.
    """

    response_model: str
    bank: ItemBank
    digest: str
    items: tuple[VersionItem, ...]
    findings: tuple[Finding, ...]
    n_calibrated: int
    has_content: bool
    summary: Mapping[str, Any] = field(default_factory=dict)
    knowledge: Mapping[str, Any] = field(default_factory=dict)


def draft_version(
    items: Sequence[ItemOutline], matched: MatchedParameters, table: ItemBank, request: BankImport
) -> VersionDraft:
    """Decide model, states and findings of a version.

    Args:
        items: All items of the bank, oldest first; those without parameters go to pretest.
        matched: Whose the rows of `table` are.
        table: The parameters.
        request: Model, overrides.

    Raises:
        ItemBankError: Parameters that the response model does not have.
        InvalidInputError: An override names nothing, or no item is left to be asked.
    """
    rows = np.array(matched.rows, dtype=np.intp)
    # Adding 0 turns -0 into 0: equal numbers have equal bytes, so equal banks equal hashes.
    bank = ItemBank.from_columns(
        [item.key for item in matched.items],
        {name: values[rows] + 0.0 for name, values in table.columns.items()},
    )
    findings = [*lint(bank), *_of_rows(request.findings, matched, table), *content_findings(items)]
    left_out = quarantined(findings, {item.key for item in items}, request.allow, request.keep)
    flags: dict[str, list[dict[str, Any]]] = {}
    for finding in findings:
        flags.setdefault(finding.item_id, []).append(_flag(finding))
    members = [
        VersionItem(
            position=position,
            item_id=item.id,
            key=item.key,
            a=own["a"],
            intercept=own["intercept"],
            c=own["c"],
            d=own["d"],
            k=own.get("k"),
            status=QUARANTINED if item.key in left_out else ACTIVE,
            flags=flags.get(item.key, []),
        )
        for position, (item, own) in enumerate(zip(matched.items, _rows(bank), strict=True))
    ]
    states = Counter(member.status for member in members)
    if not states[ACTIVE]:
        codes = ", ".join(sorted({finding.code for finding in findings}))
        raise InvalidInputError(
            f"Lint leaves none of {bank.n_items} items to be asked ({codes}). Repair them, or allow"
            " a code."
        )
    knowledge, wanted = dict(request.knowledge), request.response_model
    if request.unparsed_policy is not None:
        knowledge[UNPARSED_POLICY] = request.unparsed_policy
    if asked := {name: known for name, known in request.asked.items() if known is not None}:
        knowledge[ASKED] = asked
    if table.abilities is not None and ABILITIES not in knowledge:
        several = table.abilities.take(rows)
        wanted = _model_of(several, wanted)
        knowledge[ABILITIES] = abilities_to_dict(several, bank.item_ids)
    if wanted in SEVERAL_ABILITIES and ABILITIES not in knowledge:
        raise ItemBankError(
            f"A {wanted} version needs the loadings of its items: a calibration brings them, or "
            "a table with slopes a1, a2, ... or general, dimension_1, ..."
        )
    bank = with_abilities(bank, knowledge)
    calibrated = {item.id for item in matched.items}
    members += [
        VersionItem(
            position=position,
            item_id=item.id,
            key=item.key,
            a=None,
            intercept=None,
            c=None,
            d=None,
            k=None,
            status=PRETEST,
            flags=flags.get(item.key, []),
        )
        for position, item in enumerate(
            (item for item in items if item.id not in calibrated), start=bank.n_items
        )
    ]
    return VersionDraft(
        response_model=response_model_of(bank, wanted),
        bank=bank,
        digest=_digest(bank),
        items=tuple(members),
        findings=tuple(findings),
        n_calibrated=bank.n_items,
        has_content=all(item.has_content for item in matched.items),
        knowledge=knowledge,
        summary={
            "findings": dict(Counter(finding.code for finding in findings)),
            "items": {
                ACTIVE: states[ACTIVE],
                QUARANTINED: states[QUARANTINED],
                PRETEST: len(members) - bank.n_items,
            },
            "allow": sorted(request.allow),
            "keep": sorted(request.keep),
        },
    )


def _rows(bank: ItemBank) -> Iterator[dict[str, float]]:
    """The parameters of each item, by name."""
    columns = bank.columns
    for numbers in zip(*(values.tolist() for values in columns.values()), strict=True):
        yield dict(zip(columns, numbers, strict=True))


def _model_of(several: MultidimensionalModel, wanted: str | None) -> str:
    """Nested or mirt, as the slopes say.

    Raises:
        ItemBankError: Another one is wanted.
    """
    found = "nested" if several.items.nested else "mirt"
    if wanted not in (None, found):
        raise ItemBankError(
            f"The parameters are those of a {found} bank, not of a {wanted} one: they have slopes "
            f"in {', '.join(several.items.names)}."
        )
    return found


def content_findings(items: Sequence[ItemOutline]) -> list[Finding]:
    """Faults that parameters do not show: the same content twice, no right answer.

    Args:
        items: Oldest first; the first of equal ones stays. Items without content are not looked at.
    """
    first: dict[str, str] = {}
    findings = []
    for item in items:
        if not item.has_content:
            continue
        if not item.has_target:
            findings.append(
                Finding(
                    code="missing_key",
                    severity="error",
                    item_id=item.key,
                    field="target",
                    value=None,
                    message=f"Item {item.key!r} has no right answer: it cannot be marked.",
                )
            )
        twin = first.setdefault(item.content_hash, item.key)
        if twin != item.key:
            findings.append(
                Finding(
                    code="duplicate_content",
                    severity="error",
                    item_id=item.key,
                    field="content",
                    value=twin,
                    message=f"Item {item.key!r} asks the same as {twin!r}.",
                )
            )
    return findings


def quarantined(
    findings: Iterable[Finding],
    keys: Collection[str],
    allow: Collection[str],
    keep: Collection[str],
) -> frozenset[str]:
    """Keys of the items that are not to be asked.

    Raises:
        UnknownNameError: `allow` names no lint code, or `keep` no item.
    """
    unknown = sorted(set(keep) - set(keys))
    if unknown:
        raise InvalidInputError(f"Expected keys of the bank's items to keep, got {unknown[0]!r}.")
    return quarantine(findings, allow=allow) - set(keep)


def response_model_of(bank: ItemBank, wanted: str | None) -> str:
    """The smallest model that has these parameters, or `wanted` if it does.

    Raises:
        UnknownNameError: No such model.
        ItemBankError: Items with parameters that `wanted` does not have.
    """
    if wanted is not None and wanted not in RESPONSE_MODELS:
        raise UnknownNameError("response model", wanted, RESPONSE_MODELS)
    if (wanted == "continuous") != (bank.model is CONTINUOUS) and wanted is not None:
        raise ItemBankError(
            f"The parameters are those of a {'' if bank.model is CONTINUOUS else 'non-'}continuous "
            f"bank, not of a {wanted} one: a column k, the dispersion, makes the difference."
        )
    if bank.model is CONTINUOUS:
        return "continuous"
    if wanted in SEVERAL_ABILITIES:
        return wanted
    if np.any(bank.d != 1.0):
        smallest = "4pl"
    elif np.any(bank.c != 0.0):
        smallest = "3pl"
    else:
        smallest = "1pl" if np.all(bank.a == bank.a[0]) else "2pl"
    if wanted is None:
        return smallest
    if _FAMILIES.index(wanted) >= _FAMILIES.index(smallest):
        return wanted
    limits: dict[str, tuple[FloatArray, FloatArray]] = {
        "a": (bank.a, np.full_like(bank.a, bank.a[0] if wanted == "1pl" else np.nan)),
        "c": (bank.c, np.full_like(bank.c, np.nan if wanted in ("3pl", "4pl") else 0.0)),
        "d": (bank.d, np.full_like(bank.d, np.nan if wanted == "4pl" else 1.0)),
    }
    problems = [
        FieldProblem(
            f"/parameters/{i}/{name}",
            f"item {bank.item_ids[i]!r}: expected {name} = {fixed[i]:g} in a {wanted} bank,"
            f" got {values[i]:g}",
        )
        for name, (values, fixed) in limits.items()
        for i in np.flatnonzero(~np.isnan(fixed) & (values != fixed))
    ]
    raise ItemBankError(
        f"The parameters are those of a {smallest} bank, not of a {wanted} one."
        f" First: {problems[0].detail}.",
        problems=problems[:MAX_PROBLEMS],
    )


def parameters_hash(bank: ItemBank, response_model: str, scale: str) -> str:
    """SHA-256 over model, scale, keys and the little-endian float64 of a, intercept, c, d.

    Where scores are continuous, k follows; of several abilities their slopes, row by row.
    """
    return _sha256(bank, {"response_model": response_model, "scale": scale})


def _digest(bank: ItemBank) -> str:
    return _sha256(bank, {})


def _sha256(bank: ItemBank, header: Mapping[str, str]) -> str:
    text = json.dumps({**header, "keys": bank.item_ids}, ensure_ascii=False, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    columns = [*bank.columns.values()]
    if bank.abilities is not None:
        columns.append(bank.abilities.items.slopes)
    for column in columns:
        digest.update(column.astype("<f8").tobytes())
    return digest.hexdigest()


def _of_rows(
    findings: Iterable[Finding], matched: MatchedParameters, table: ItemBank
) -> list[Finding]:
    """Findings about rows of the table, under the keys of the items that the rows are for."""
    keys = {
        table.item_ids[row]: item.key for row, item in zip(matched.rows, matched.items, strict=True)
    }
    return [
        replace(finding, item_id=keys[finding.item_id])
        for finding in findings
        if finding.item_id in keys
    ]


def _flag(finding: Finding) -> dict[str, Any]:
    return {name: value for name, value in shallow(finding).items() if name != "item_id"}
