"""Banks that a calibration is linked to: read for the fit, and for the version that is made."""

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
from app.records.banks import BankVersion
from app.records.provisional import PROVISIONAL, Provisional
from app.records.response_sets import UNPARSED_POLICY
from app.services.banks.imports import BankImport
from app.services.banks.loaded import LoadedVersion
from app.services.banks.origins import ASKED
from app.services.banks.versions import VersionService


async def with_target(plan: CalibrationPlan, versions: VersionService) -> CalibrationPlan:
    """The plan with the items on whose scale it lands: the active ones of the link's version.

    Or with the beliefs about items that it starts from.

    Raises:
        NotFoundError: No such version.
        InvalidInputError: A version of several abilities, or a check for drift in one that is not
            1PL to 4PL; one to start from whose items are no guesses.
    """
    if plan.prior_version_id is not None:
        return await _with_beliefs(plan, plan.prior_version_id, versions)
    if plan.link is None or plan.link.bank_version_id is None:
        return plan
    version = await versions.load(plan.link.bank_version_id)
    if version.response_model in SEVERAL_ABILITIES:
        # Its curves hold where the other abilities are those of the average; the curves of one
        # ability are averages over them, and less steep.
        detail = (
            f"version {version.number} of bank {version.bank_name!r} measures several abilities "
            f"({version.response_model}), and a calibration of one cannot land on its scale"
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
            "`banks import --provisional` made, or one that goes on from such a version"
        )
        raise InvalidInputError(
            f"{detail[0].upper()}{detail[1:]}.",
            problems=[FieldProblem("/prior_version_id", detail)],
        )
    beliefs = ItemBeliefs.from_dict(known["beliefs"])
    return replace(plan, model=beliefs.family.value, beliefs=beliefs)


def require_family(version: LoadedVersion) -> None:
    """Refuse to look for drift where answers are not right or wrong by one ability.

    Raises:
        InvalidInputError: A version of another response model than 1PL to 4PL.
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
    """What is published as the next version on the scale of `before`, going on as that one did.

    Overrides and knowledge of the old version hold on; an item that it had quarantined for its
    drift, and that has no other parameters now, stays quarantined.

    Args:
        request: The parameters and what is known of them.
        before: The version that the calibration checked for drift.
        findings: Of that version.
        settings: Of the calibration.
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
        # The old items may have parameters that the model of the new ones has not.
        response_model=max(settings["model"], before.response_model),
        findings=[*request.findings, *old],
        allow={*request.allow, *before.lint["allow"]},
        keep={*request.keep, *kept},
        knowledge=request.knowledge or before.knowledge,
        unparsed_policy=request.unparsed_policy or before.knowledge.get(UNPARSED_POLICY),
        asked=request.asked or before.knowledge.get(ASKED, {}),
    )


def revised(request: BankImport, before: BankVersion) -> BankImport:
    """What is published of a calibration that started from the beliefs of a version."""
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
    """The fitted items, and after them those that only the target has, parameters as they are.

    Args:
        fitted: On the target's scale.
        target: The version that the fit was linked to.
        dropped: Items that the fit had answers to but left out; they stay out.
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
    """A version says what the one before it says: nothing of it is to be written."""

    def __init__(self, version: BankVersion) -> None:
        self.version = version


def require_news(made: BankVersion, earlier: BankVersion | None) -> None:
    """See to it that a version differs from the one before it in more than its number.

    Raises:
        NothingNewError: It does not.
    """
    if earlier is None:
        return
    told = ("id", "number", "created_by", "created_at")
    named = {name: getattr(earlier, name) for name in told}
    if replace(made, **named) == earlier:
        raise NothingNewError(earlier)
