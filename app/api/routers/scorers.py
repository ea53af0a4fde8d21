"""Scorers: what is installed, and a trial of one."""

from typing import Annotated, Any

from fastapi import Path, Request

from app import scorers
from app.api.bodies import MEDIUM, up_to
from app.api.disconnects import while_connected
from app.api.errors import errors
from app.api.routing import allow, make_router
from app.api.schemas.scorers import MarkRead, ScorerRead, ScorerTest
from app.deps import AllServices, Caller, caller
from app.errors import InvalidInputError, NotFoundError, SecretsError
from app.items import Answer, FinishReason, ItemContent, ScorerSpec
from app.shapes import Listed
from app.validation import SCORER_NAME

router = make_router("/scorers", tag="scorers")

ScorerName = Annotated[str, Path(pattern=SCORER_NAME, examples=["numeric"])]


@router.get("", **allow("read"))
async def list_scorers() -> Listed[ScorerRead]:
    """List all installed scorers with their parameters."""
    return Listed(data=[ScorerRead(**entry) for entry in scorers.describe()])


@router.get("/{name}", **allow("read"))
async def get_scorer(name: ScorerName) -> ScorerRead:
    """One scorer."""
    return ScorerRead(**_described(name))


@router.post(
    "/{name}:test", responses=errors(InvalidInputError, SecretsError), openapi_extra=up_to(MEDIUM)
)
async def try_scorer(
    name: ScorerName,
    body: ScorerTest,
    who: Annotated[Caller, caller("run")],
    opened: AllServices,
    request: Request,
) -> MarkRead:
    """Score one answer, to try out a scorer. Nothing is stored.

    A judge, or another scorer that makes calls, is really called and paid. If the client
    disconnects, the call ends.
    """
    _described(name)
    spec = ScorerSpec(name=name, params=body.params)
    item = body.item
    choices, target = tuple(item.choices), tuple(item.target)
    content = ItemContent(prompt=item.prompt, choices=choices, target=target)
    answer = Answer(text=body.answer, raw=body.answer, finish=FinishReason(body.finish))
    marking = opened.scorer_trials.mark(spec, content, answer)
    return MarkRead.read(await while_connected(request, marking))


def _described(name: str) -> dict[str, Any]:
    for entry in scorers.describe():
        if entry["name"] == name:
            return entry
    raise NotFoundError("scorer", name)
