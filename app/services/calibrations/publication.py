"""What came out of a calibration as it is stored, what is made of it, and whether it can be."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.acting import owner
from app.calibration.filters import Dropped, Filtered
from app.calibration.pipeline.fitted import Fitted
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
    """What is stored of a calibration in the end."""

    result: dict[str, Any]
    items: FittedItems
    source: ResponseSet
    examinees: FittedExaminees | None = None


def output_of(
    source: ResponseSet, filtered: Filtered[Any], fitted: Fitted, seconds: float
) -> Output:
    """What is stored of a calibration of a whole response set.

    Args:
        source: The set, as it was when its answers were read.
        filtered: Of them, what took part.
        fitted: What came out.
        seconds: How long it took.
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
    """What is made of a calibration."""

    bank: str
    notes: str = ""
    allow: Collection[str] = ()
    keep: Collection[str] = ()
    unparsed_policy: str | None = None
    asked: AskedJson = field(default_factory=dict)
    allow_unconverged: bool = False
    carry_over: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        lists = {"allow": sorted(self.allow), "keep": sorted(self.keep)}
        return {**shallow(self), **lists, "asked": dict(self.asked)}


async def require_publishable(
    uow: UnitOfWork, publication: Publication, plan: CalibrationPlan
) -> None:
    """Refuse before the numbers are made what could not be published with them.

    Raises:
        NotFoundError: There is no bank of the id that is named.
        InvalidInputError: A new bank cannot have the name, or nothing can be carried over.
    """
    if publication.carry_over and plan.link is None:
        raise _refusal("carry_over", "expected false: only what is linked can carry items over")
    try:
        found: str | None = (await uow.banks.find(publication.bank)).project_id
    except NotFoundError:
        found = None
    if found == owner():  # a bank of others is lent to be measured on alone
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
