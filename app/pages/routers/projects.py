"""Projects: the list, and the choice of the one in which a key of all projects works."""

from typing import Annotated

from fastapi import Query, Request, Response

from app.api.schemas.projects import ProjectRead
from app.deps import AllServices
from app.errors import MissingScopeError
from app.pages.access import Form, Visit, Visitor, set_project
from app.pages.rendering import page
from app.pages.routing import router as make_router
from app.pages.routing import see
from app.storage.paging import PageRequest

router = make_router()

_LISTED = 50
After = Annotated[str | None, Query(pattern=r"^prj_[0-9a-z]{26}$")]


@router.get("/projects")
async def project_list(
    request: Request, visit: Visit, opened: AllServices, after: After = None
) -> Response:
    """All projects, the newest first."""
    _require_all(visit)
    found = await opened.projects.page(PageRequest(limit=_LISTED, after=after))
    rows = [ProjectRead.of(project) for project in found.items]
    return await page(request, "projects.html", rows=rows, more=found.has_more)


@router.post("/projects")
async def choose(request: Request, visit: Visit, form: Form, opened: AllServices) -> Response:
    """Choose the project in which this browser works from now on."""
    _require_all(visit)
    chosen = await opened.projects.recent(form.get("project", ""))
    response = see(request, "/")
    set_project(request, response, chosen.id)
    return response


def _require_all(visit: Visitor) -> None:
    visit.require("admin")
    if visit.works_in is None:
        raise MissingScopeError(
            "This needs a key with the scope 'admin' of all projects; yours is for one project."
        )
