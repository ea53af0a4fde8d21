"""Helpers of the ranking tests."""

from typing import Any

from app.records.rankings import RankingRecord
from app.records.sessions import SessionRecord
from app.services.container import Services
from app.services.rankings.service import RankingSpec
from tests.services.sessions import scripted
from tests.waiting import reached

THETAS = (-1.6, 1.6, 0.0)


def contest(*thetas: float, **changes: Any) -> RankingSpec:
    """Return simulated examinees on the demo bank."""
    given: dict[str, Any] = {
        "bank": "demo",
        "endpoints": [
            scripted(theta=theta, seed=position) for position, theta in enumerate(thetas or THETAS)
        ],
        "seed": 5,
    }
    return RankingSpec(**{**given, **changes})


async def ranked(services: Services, ranking_id: str) -> RankingRecord:
    """Return the ranking once it has ended."""
    return await reached(lambda: services.rankings.get(ranking_id))


def places(record: RankingRecord) -> list[str]:
    """Return session ids of the members, best first."""
    return [entry["session_id"] for entry in record.summary["order"]]


async def members_of(services: Services, ranking_id: str) -> list[SessionRecord]:
    """Return the sessions of the members, in the order in which they were given."""
    async with services.database.reading() as uow:
        return list(await uow.sessions.of_ranking(ranking_id))
