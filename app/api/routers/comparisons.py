"""Comparisons of two examinees."""

from app.api.errors import errors
from app.api.routing import router as make_router
from app.api.schemas.comparisons import ComparisonCreate, ComparisonRead
from app.deps import AllServices, caller
from app.errors import InvalidInputError, InvalidStateError, NotFoundError, ScaleMismatchError

router = make_router("/comparisons", tag="comparisons")


@router.post(
    "",
    dependencies=[caller("read")],
    responses=errors(NotFoundError, InvalidStateError, InvalidInputError, ScaleMismatchError),
)
async def compare(body: ComparisonCreate, opened: AllServices) -> ComparisonRead:
    """Compare two ended sessions on one scale, or two examinees of a response set.

    The result is the mean difference on the items that both answered, paired by item (items of one
    group count as one), and for sessions the difference of theta. Each has a standard error, an
    interval, a p-value, and the number of further items that would decide it. Nothing is stored.
    """
    if body.session_ids is not None:
        first, second = body.session_ids
        found = await opened.comparisons.sessions(first, second, confidence=body.confidence)
    else:
        first, second = body.examinees or ("", "")
        found = await opened.comparisons.examinees(
            body.response_set or "", first, second, confidence=body.confidence
        )
    return ComparisonRead.of(found)
