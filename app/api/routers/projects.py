"""Projects: whose everything is. Made and changed by admins of all projects."""

from typing import Annotated

from fastapi import Response

from app.api.errors import CONDITIONAL, errors
from app.api.etags import ExpectedRevision, etag
from app.api.parameters import Erase, Paging, list_of, name_path
from app.api.routing import IDEMPOTENT, make_router
from app.api.schemas.projects import ProjectCreate, ProjectSpendRead, ProjectUpdate, UseRead
from app.deps import OVER_ALL, AllServices, Caller, caller
from app.errors import AlreadyExistsError, InvalidStateError, NotFoundError
from app.records.projects import Project
from app.shapes import ListRead

router = make_router("/projects", tag="projects")

ProjectRef = Annotated[str, name_path("project", "default")]


@router.post(
    "", status_code=201, dependencies=[OVER_ALL, IDEMPOTENT], responses=errors(AlreadyExistsError)
)
async def create_project(body: ProjectCreate, response: Response, opened: AllServices) -> Project:
    """Create a project, without any content or keys."""
    project = await opened.projects.create(
        body.name, description=body.description, limits=body.limits, retention=body.retention
    )
    response.headers["Location"] = f"/v1/projects/{project.id}"
    response.headers["ETag"] = etag(project.revision)
    return project


@router.get("", dependencies=[OVER_ALL], responses=errors(NotFoundError))
async def list_projects(page: Paging, opened: AllServices) -> ListRead[Project]:
    """List all projects, the newest first."""
    return list_of(await opened.projects.page(page))


@router.get("/{project}")
async def get_project(
    project: ProjectRef,
    response: Response,
    opened: AllServices,
    who: Annotated[Caller, caller("read")],
) -> Project:
    """One project, by id or name.

    A key of one project can only see its own.
    """
    found = await opened.projects.find(project)
    if not who.is_over_all and found.id != who.project_id:
        raise NotFoundError("project", project)
    response.headers["ETag"] = etag(found.revision)
    return found


@router.get("/{project}/spend")
async def get_project_spend(
    project: ProjectRef, opened: AllServices, who: Annotated[Caller, caller("read")]
) -> ProjectSpendRead:
    """Usage of today's budgets and of storage, by a project and by the calling key.

    A key of one project can only see its own; others answer 404.
    """
    found, today, stored = await opened.projects.spend(project)
    if not who.is_over_all and found.id != who.project_id:
        raise NotFoundError("project", project)
    used = ProjectSpendRead.of_limits(found.limits, today, stored)
    if who.is_over_all:  # such keys have no limits
        return used
    key, today, stored = await opened.api_keys.spend(who.key_id)
    return used.model_copy(update={"key": UseRead.of_limits(key.limits, today, stored)})


@router.patch(
    "/{project}", dependencies=[OVER_ALL], responses=errors(AlreadyExistsError, *CONDITIONAL)
)
async def update_project(
    project: ProjectRef,
    body: ProjectUpdate,
    revision: ExpectedRevision,
    response: Response,
    opened: AllServices,
) -> Project:
    """Change a project. `limits` and `retention` are replaced as a whole."""
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    changed = await opened.projects.update(project, revision, changes)
    response.headers["ETag"] = etag(changed.revision)
    return changed


@router.delete(
    "/{project}",
    status_code=204,
    dependencies=[OVER_ALL],
    responses=errors(InvalidStateError, *CONDITIONAL),
)
async def delete_project(
    project: ProjectRef, revision: ExpectedRevision, opened: AllServices, erase: Erase = False
) -> None:
    """Delete an empty project with its keys. Its audit trail is kept."""
    await opened.projects.delete(project, revision, erases=erase)
