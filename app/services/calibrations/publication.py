"""Output of a calibration: as it is stored, and as the import that makes a bank version."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from app.acting import owner
from app.calibration.filters import Dropped, Filtered
from app.calibration.fit.item_fit import misfits
from app.calibration.pipeline.calibrator import Fitted
from app.calibration.pipeline.drift import DRIFT, drift_findings
from app.calibration.pipeline.plan import CalibrationPlan
from app.engine.bank import ItemBank
from app.engine.lint import Finding
from app.errors import FieldProblem, InvalidInputError, NotFoundError
from app.records.banks import BankSpec, BankVersion, Provisional
from app.records.calibrations import CalibrationRecord, FittedExaminees, FittedItems
from app.records.fields import shallow
from app.records.response_sets import UNPARSED_POLICY, ResponseSet, asked_in
from app.records.sessions import AskedJson
from app.services.banks.imports import BankImport
from app.services.banks.origins import ASKED
from app.services.banks.spec import check_spec, is_bank_id
from app.storage.unit_of_work import UnitOfWork


class Output(NamedTuple):
    """The output of a calibration that is stored at its end."""

    result: dict[str, Any]
    items: FittedItems
    source: ResponseSet
    examinees: FittedExaminees | None = None


def output_of(
    source: ResponseSet, filtered: Filtered[Any], fitted: Fitted, seconds: float
) -> Output:
    """The stored output of a calibration of a whole response set.

    `source` is the set as it was when its answers were read; `seconds` is the duration.
    """
    fitted = fitted.warned(filtered.warnings)
    matrix = filtered.matrix
    result = {
        "response_set_revision": source.revision,
        **fitted.figures,
        "knowledge": fitted.knowledge,
        "kept": {"items": matrix.n_items, "examinees": matrix.n_examinees},
        "dropped": {
            "items": [_dropped(item) for item in filtered.items],
            "examinees": [_dropped(examinee) for examinee in filtered.examinees],
        },
        "score_only": [_dropped(item) for item in filtered.score_only],
        "constants": filtered.constants,
        "seconds": seconds,
    }
    return Output(
        result,
        FittedItems(matrix.items, fitted.columns),
        source,
        fitted.abilities and FittedExaminees(matrix.examinees, *fitted.abilities),
    )


def _dropped(dropped: Dropped) -> dict[str, Any]:
    return {"name": dropped.name, "reason": dropped.reason.value, "value": dropped.value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """How a calibration is published as a bank version."""

    bank: str
    notes: str = ""
    allow: Collection[str] = ()
    keep: Collection[str] = ()
    unparsed_policy: str | None = None
    asked: AskedJson = field(default_factory=dict)
    allow_unconverged: bool = False
    carry_over: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The publication as JSON."""
        lists = {"allow": sorted(self.allow), "keep": sorted(self.keep)}
        return {**shallow(self), **lists, "asked": dict(self.asked)}


async def require_publishable(
    uow: UnitOfWork, publication: Publication, plan: CalibrationPlan
) -> None:
    """Refuse, before the calibration runs, a publication that could not be made from it.

    Raises:
        NotFoundError: No bank has the id that the publication names.
        InvalidInputError: A new bank cannot have the name, or nothing can be carried over.
    """
    if publication.carry_over and plan.link is None:
        raise _refusal(
            "carry_over", "expected false: only a linked calibration can carry items over"
        )
    bank = await uow.banks.known(publication.bank)
    if bank is not None and bank.project_id == owner():  # others are shared for measuring only
        return
    if is_bank_id(publication.bank):
        raise NotFoundError("bank", publication.bank)
    try:
        check_spec(BankSpec(name=publication.bank))
    except InvalidInputError as unusable:
        raise _refusal("bank", unusable.problems[0].detail) from None


def _refusal(field_name: str, detail: str) -> InvalidInputError:
    problem = FieldProblem(f"/publish/{field_name}", detail)
    return InvalidInputError(f"publish.{field_name}: {detail}.", problems=[problem])


#: Figures of a calibration that its bank version shows.
_SHOWN_LINK = ("method", "bank_version_id", "scale", "slope", "intercept")
_SHOWN = ("log_likelihood", "n_parameters", "aic", "bic", "converged", "fit")


def import_of(
    record: CalibrationRecord, output: Output, parameters: ItemBank, publication: Publication
) -> BankImport:
    """The import that makes a version from the output of a completed calibration."""
    result, fitted, source = output.result, output.items, output.source
    link = result.get("link")
    said = {name: known for name, known in publication.asked.items() if known is not None}
    return BankImport(
        parameters=parameters,
        scale=link and link["scale"],
        response_model=record.settings["model"],
        allow=publication.allow,
        keep=publication.keep,
        notes=publication.notes,
        unparsed_policy=publication.unparsed_policy or source.unparsed_policy,
        asked={**asked_in(source.imports), **said},
        findings=[
            *misfits(fitted.keys, fitted.columns),
            *drift_findings(fitted.keys, fitted.columns),
        ],
        knowledge=result.get("knowledge", {}),
        calibration={
            "id": record.id,
            "response_set_id": record.response_set_id,
            "n_examinees": result["kept"]["examinees"],
            "scored_answers": result["scored_answers"],
            "link": link
            and {name: link[name] for name in _SHOWN_LINK} | {"n_anchors": len(link["anchors"])},
            "drift": result.get("drift"),
            **{name: result[name] for name in _SHOWN},
        },
    )


def continued(
    request: BankImport, before: BankVersion, findings: Sequence[Finding], model: str
) -> BankImport:
    """The import for the next version on the scale of `before`.

    It keeps overrides and knowledge of the old version, which the calibration checked for drift. An
    item that was quarantined for drift there stays quarantined, unless it has other parameters now.
    """
    judged = {finding.item_id for finding in request.findings if finding.code == DRIFT}
    judged |= set(before.lint["keep"])
    old = [one for one in findings if one.code == DRIFT and one.item_id not in judged]
    return replace(
        _as_before(request, before),
        # The old items may have parameters that the model of the new items does not have.
        response_model=max(model, before.response_model),
        findings=[*request.findings, *old],
        knowledge=request.knowledge or before.knowledge,
    )


def revised(request: BankImport, before: BankVersion) -> BankImport:
    """The import of a calibration that started from the prior beliefs of a provisional version."""
    known = Provisional.of(request.knowledge)
    is_provisional = known is not None and known.matters
    return replace(_as_before(request, before), provisional=is_provisional)


def _as_before(request: BankImport, before: BankVersion) -> BankImport:
    """The import with the overrides of an earlier version, and its way of asking where unknown."""
    return replace(
        request,
        allow={*request.allow, *before.lint["allow"]},
        keep={*request.keep, *before.lint["keep"]},
        unparsed_policy=request.unparsed_policy or before.knowledge.get(UNPARSED_POLICY),
        asked=request.asked or before.knowledge.get(ASKED, {}),
    )


def carried_over(fitted: ItemBank, target: ItemBank, dropped: frozenset[str]) -> ItemBank:
    """The fitted items, followed by unchanged items that only the target has.

    The fit is linked to `target`. Items in `dropped`, which have answers but were left out, stay
    out.
    """
    known = dropped.union(fitted.item_ids)
    rest = [j for j, item_id in enumerate(target.item_ids) if item_id not in known]
    if not rest:
        return fitted
    others = target.take(np.array(rest))
    columns = {
        name: np.concatenate([values, others.columns[name]])
        for name, values in fitted.columns.items()
    }
    keys = fitted.item_ids + others.item_ids
    return ItemBank.from_columns(keys, columns, scale=target.scale)
