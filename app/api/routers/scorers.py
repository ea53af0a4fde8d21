"""Scorers: what is installed, and a trial of one."""

from typing import Annotated, Any

from fastapi import Path

from app import scorers
from app.api.errors import errors
from app.api.routing import router as make_router
from app.api.schemas.scorers import MarkRead, ScorerList, ScorerRead, ScorerTest
from app.deps import caller
from app.errors import InvalidInputError, NotFoundError
from app.items import ScorerSpec

router = make_router("/scorers", tag="scorers")

ScorerName = Annotated[str, Path(pattern=r"^[a-z][a-z0-9_.-]{0,63}$", examples=["numeric"])]


@router.get("", dependencies=[caller("read")])
async def list_scorers() -> ScorerList:
    """Every installed scorer with its parameters."""
    return ScorerList(data=[ScorerRead(**entry) for entry in scorers.describe()])


@router.get("/{name}", dependencies=[caller("read")])
async def get_scorer(name: ScorerName) -> ScorerRead:
    """One scorer."""
    return ScorerRead(**_described(name))


@router.post("/{name}:test", dependencies=[caller("read")], responses=errors(InvalidInputError))
async def try_scorer(name: ScorerName, body: ScorerTest) -> MarkRead:
    """Mark one answer, to see what the scorer makes of it. Nothing is stored."""
    _described(name)
    item = body.item.to_domain()
    scorer = scorers.build(ScorerSpec(name=name, params=body.params))
    return MarkRead.of(await scorers.mark(scorer, item, body.to_answer()))


def _described(name: str) -> dict[str, Any]:
    for entry in scorers.describe():
        if entry["name"] == name:
            return entry
    raise NotFoundError("scorer", name)
