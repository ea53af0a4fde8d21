"""Read the bank version that a calibration is linked to, for the fit and for the new version."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.calibration.logistic.beliefs import ItemBeliefs
from app.calibration.logistic.curves import Family
from app.calibration.pipeline.drift import DRIFT
from app.calibration.pipeline.plan import SEVERAL_ABILITIES, CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.lint import Finding
from app.errors import FieldProblem, InvalidInputError
from app.records.banks import PROVISIONAL, BankVersion, Provisional
from app.records.response_sets import UNPARSED_POLICY
from app.services.banks.imports import BankImport
from app.services.banks.loaded import LoadedVersion
from app.services.banks.origins import ASKED
from app.services.banks.versions import VersionService


async def with_target(plan: CalibrationPlan, versions: VersionService) -> CalibrationPlan:
    """The plan with the active items of the linked version, which define the target scale.

    A plan that starts from a provisional version gets its prior beliefs about items instead.

    Raises:
        NotFoundError: No such version.
        InvalidInputError: A linked version has several abilities, a version checked for drift is
            not 1PL to 4PL, or a version to start from is not provisional.
    """
    if plan.prior_version_id is not None:
        return await _with_beliefs(plan, plan.prior_version_id, versions)
    if plan.link is None or plan.link.bank_version_id is None:
        return plan
    version = await versions.load(plan.link.bank_version_id)
    if version.response_model in SEVERAL_ABILITIES:
        # Its curves hold at average values of the other abilities. Curves of a single ability are
        # averages over the other abilities, and less steep.
        detail = (
            f"version {version.number} of bank {version.bank_name!r} measures several abilities "
            f"({version.response_model}), and a calibration of one cannot be put on its scale"
        )
        raise InvalidInputError(
            f"{detail[0].upper()}{detail[1:]}.",
            problems=[FieldProblem("/link/bank_version_id", detail)],
        )
    active = np.flatnonzero(version.active)
    plan = replace(plan, target=version.bank.take(active))
    if not plan.checks_drift:
        return plan
    require_family(version)
    errors = await versions.difficulty_errors(version)
    aside = frozenset(version.keys[i] for i in np.flatnonzero(~version.active))
    return replace(plan, target_se=errors[active], aside=aside)


async def _with_beliefs(
    plan: CalibrationPlan, version_id: str, versions: VersionService
) -> CalibrationPlan:
    version = await versions.by_id(version_id)
    known = version.knowledge.get(PROVISIONAL)
    if known is None:
        detail = (
            f"version {version.number} holds no beliefs about its items: expected one that "
            "`banks import --provisional` made, or one that continues such a version"
        )
        raise InvalidInputError(
            f"{detail[0].upper()}{detail[1:]}.",
            problems=[FieldProblem("/prior_version_id", detail)],
        )
    beliefs = ItemBeliefs.from_dict(known["beliefs"])
    return replace(plan, model=beliefs.family.value, beliefs=beliefs)


def require_family(version: LoadedVersion) -> None:
    """Refuse to check for drift in a version whose model is not binary with a single ability.

    Raises:
        InvalidInputError: The response model of the version is not 1PL to 4PL.
    """
    if version.response_model not in tuple(Family):
        raise InvalidInputError(
            f"Drift is judged in versions of the models {', '.join(Family)}; version "
            f"{version.number} of bank {version.bank_name!r} is {version.response_model}."
        )


def continued(
    request: BankImport,
    before: BankVersion,
    findings: Sequence[Finding],
    settings: Mapping[str, Any],
) -> BankImport:
    """The import for the next version on the scale of `before`.

    It keeps overrides and knowledge of the old version. An item that was quarantined for drift
    there stays quarantined, unless it has other parameters now.

    Args:
        request: The parameters and what is known about them.
        before: The version that the calibration checked for drift.
        findings: Findings of that version.
        settings: Settings of the calibration.
    """
    judged = {finding.item_id for finding in request.findings if finding.code == DRIFT}
    kept = set(before.lint["keep"])
    old = [
        finding
        for finding in findings
        if finding.code == DRIFT and finding.item_id not in judged | kept
    ]
    return replace(
        request,
        # The old items may have parameters that the model of the new items does not have.
        response_model=max(settings["model"], before.response_model),
        findings=[*request.findings, *old],
        allow={*request.allow, *before.lint["allow"]},
        keep={*request.keep, *kept},
        knowledge=request.knowledge or before.knowledge,
        unparsed_policy=request.unparsed_policy or before.knowledge.get(UNPARSED_POLICY),
        asked=request.asked or before.knowledge.get(ASKED, {}),
    )


def revised(request: BankImport, before: BankVersion) -> BankImport:
    """The import of a calibration that started from the prior beliefs of a provisional version."""
    known = Provisional.of(request.knowledge)
    return replace(
        request,
        provisional=known is not None and known.matters,
        allow={*request.allow, *before.lint["allow"]},
        keep={*request.keep, *before.lint["keep"]},
        unparsed_policy=request.unparsed_policy or before.knowledge.get(UNPARSED_POLICY),
        asked=request.asked or before.knowledge.get(ASKED, {}),
    )


def carried_over(fitted: ItemBank, target: ItemBank, dropped: frozenset[str]) -> ItemBank:
    """The fitted items, followed by unchanged items that only the target has.

    Args:
        fitted: Items on the target's scale.
        target: The version that the fit was linked to.
        dropped: Items with answers that the fit left out; they are not carried over.
    """
    known = dropped.union(fitted.item_ids)
    rest = [j for j, item_id in enumerate(target.item_ids) if item_id not in known]
    if not rest:
        return fitted
    others = target.take(np.array(rest))
    return ItemBank.from_intercepts(
        **{
            name: np.concatenate([getattr(fitted, name), getattr(others, name)])
            for name in ("a", "intercept", "c", "d")
        },
        item_ids=fitted.item_ids + others.item_ids,
        scale=target.scale,
    )


class NothingNewError(Exception):
    """A version has the same contents as the one before it, so nothing is written."""

    def __init__(self, version: BankVersion) -> None:
        self.version = version


def require_news(made: BankVersion, earlier: BankVersion | None) -> None:
    """Require that a version differs from the one before it in more than its number.

    Raises:
        NothingNewError: The versions have the same contents.
    """
    if earlier is None:
        return
    told = ("id", "number", "created_by", "created_at")
    named = {name: getattr(earlier, name) for name in told}
    if replace(made, **named) == earlier:
        raise NothingNewError(earlier)
