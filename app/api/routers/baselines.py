"""Baselines: results that gates hold later ones against, by name."""

from typing import Annotated

from fastapi import Path, Query

from app.api.errors import errors
from app.api.paging import Limit, list_of
from app.api.routing import router as make_router
from app.api.schemas.common import ListRead
from app.api.schemas.gates import BaselineRead, BaselineSet
from app.deps import AllServices, Seen, caller
from app.errors import InvalidStateError, MissingScopeError, NotFoundError
from app.storage.paging import PageRequest
from app.validation import NAME_IN_URL

router = make_router("/baselines", tag="gates")

BaselineName = Annotated[
    str, Path(min_length=1, max_length=200, pattern=NAME_IN_URL, examples=["production"])
]


@router.put(
    "/{name}",
    dependencies=[caller("run")],
    responses=errors(NotFoundError, InvalidStateError, MissingScopeError),
)
async def put_baseline(
    name: BaselineName, body: BaselineSet, opened: AllServices, view: Seen
) -> BaselineRead:
    """Name the result of an ended session, or move the name to it.

    Only the key that made it, or one with the scope `admin`, may move it.
    """
    made = await opened.baselines.put(name, body.session_id, is_admin=view.is_admin)
    return BaselineRead.of(made)


@router.get("", dependencies=[caller("read")])
async def list_baselines(
    opened: AllServices,
    limit: Limit = 20,
    after: Annotated[
        str | None,
        Query(max_length=200, description="Start behind this name: `last_id` of the page before."),
    ] = None,
) -> ListRead[BaselineRead]:
    """Baselines, by name."""
    found = await opened.baselines.page(PageRequest(limit=limit, after=after))
    return list_of(found, BaselineRead.of, identify=lambda one: one.name)


@router.get("/{name}", dependencies=[caller("read")])
async def get_baseline(name: BaselineName, opened: AllServices) -> BaselineRead:
    """The result that a name stands for."""
    return BaselineRead.of(await opened.baselines.get(name))


@router.delete(
    "/{name}", status_code=204, dependencies=[caller("run")], responses=errors(MissingScopeError)
)
async def delete_baseline(name: BaselineName, opened: AllServices, view: Seen) -> None:
    """Forget a name. Gates that were made against it stay as they are."""
    await opened.baselines.delete(name, is_admin=view.is_admin)
