"""Stored output of a calibration, how to publish it, and whether it can be published."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.acting import owner
from app.calibration.filters import Dropped, Filtered
from app.calibration.pipeline.calibrator import Fitted
from app.calibration.pipeline.plan import CalibrationPlan
from app.errors import FieldProblem, InvalidInputError, NotFoundError
from app.records.banks import BankSpec
from app.records.calibrations import FittedExaminees, FittedItems
from app.records.fields import shallow
from app.records.response_sets import ResponseSet
from app.records.sessions import AskedJson
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

    Args:
        source: The set, as it was when its answers were read.
        filtered: The answers that took part in the calibration.
        fitted: Result of the calibration.
        seconds: Duration of the calibration.
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
    try:
        found: str | None = (await uow.banks.find(publication.bank)).project_id
    except NotFoundError:
        found = None
    if found == owner():  # banks of other projects are shared for measuring only
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
