"""What came out of a calibration, as it is stored."""

from typing import Any, NamedTuple

from app.calibration.filters import Dropped, Filtered
from app.calibration.pipeline.fitted import Fitted
from app.records.calibrations import FittedExaminees, FittedItems
from app.records.response_sets import ResponseSet


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
