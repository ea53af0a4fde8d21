"""The leaderboard of a bank."""

from typing import Annotated

from fastapi import Query

from app.api.errors import errors
from app.api.references import BankRef
from app.api.routing import router as make_router
from app.api.schemas.common import MetricName, Name
from app.api.schemas.leaderboards import LeaderboardRead
from app.deps import AllServices, caller
from app.errors import NotFoundError
from app.services.results.leaderboards import Wanted

router = make_router("/banks", tag="banks")


@router.get("/{bank}/leaderboard", dependencies=[caller("read")], responses=errors(NotFoundError))
async def get_leaderboard(
    bank: BankRef,
    opened: AllServices,
    metric: Annotated[
        MetricName, Query(description="What ranks: the score, or the ability.")
    ] = "score",
    confidence: Annotated[float, Query(gt=0.5, lt=1)] = 0.95,
    model: Annotated[Name | None, Query(description="Of this model alone.")] = None,
    scaffold: Annotated[Name | None, Query(description="Of agents on this scaffold.")] = None,
    self_reported: Annotated[
        bool | None, Query(description="Of clients alone, or of endpoints alone.")
    ] = None,
) -> LeaderboardRead:
    """The newest precise session of each examinee, in tie groups with rank ranges.

    Examinees are endpoints, and those who answer by hand under a name (`self_reported`).

    Thetas compare on one scale only: results on other scales than the latest version's are listed
    apart. Endpoints in one group cannot be told apart at the confidence.
    """
    wanted = Wanted(model=model, scaffold=scaffold, self_reported=self_reported)
    return LeaderboardRead.of_bank(
        await opened.leaderboards.of_bank(bank, metric=metric, confidence=confidence, wanted=wanted)
    )
