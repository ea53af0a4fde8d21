"""Creates, finds, changes and deletes projects."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from app.acting import DEFAULT_PROJECT
from app.errors import InvalidStateError
from app.records.projects import DaySpend, Limits, Project, Retention
from app.services.waiting import Recent
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest

#: Seconds for which a seen project is not looked up again.
_KEPT_S = 1.0


class ProjectService:
    """Creates, finds, changes and deletes projects.

    Raises:
        NotFoundError: A named project does not exist; true of all methods.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        #: Like `find`, but up to a second old: for code that asks in every request.
        self.recent: Final = Recent(self.find, _KEPT_S)

    async def create(
        self,
        name: str,
        *,
        description: str = "",
        limits: Limits | None = None,
        retention: Retention | None = None,
    ) -> Project:
        """Create an empty project.

        Raises:
            AlreadyExistsError: The name is taken.
        """
        now = datetime.now(UTC)
        project = Project(
            id=new_id("prj"),
            name=name,
            description=description,
            limits=limits or Limits(),
            retention=retention or Retention(),
            created_at=now,
            updated_at=now,
        )
        async with self._database.unit_of_work() as uow:
            return await uow.projects.add(project)

    async def find(self, id_or_name: str = DEFAULT_PROJECT) -> Project:
        """A project by its id or its name."""
        async with self._database.reading() as uow:
            return await uow.projects.find(id_or_name)

    async def spend(self, id_or_name: str) -> tuple[Project, DaySpend, int]:
        """A project, the part of today's budgets that it used, and the bytes that it stores."""
        async with self._database.reading() as uow:
            project = await uow.projects.find(id_or_name)
            today = await uow.spend.today(project.id)
            return project, today, await uow.projects.stored_bytes(project.id)

    async def page(self, request: PageRequest) -> Page[Project]:
        """One page of the projects."""
        async with self._database.reading() as uow:
            return await uow.projects.page(request)

    async def update(self, project: str, revision: int, changes: Mapping[str, Any]) -> Project:
        """Change fields of a project.

        Raises:
            PreconditionFailedError: The project has changed since `revision`.
            AlreadyExistsError: The new name is taken.
        """
        async with self._database.unit_of_work() as uow:
            updated = await uow.projects.update(project, revision, changes)
        self.recent.forget(lambda one: one.id == updated.id)
        return updated

    async def delete(self, project: str, revision: int, *, erases: bool = False) -> None:
        """Delete an empty project with its keys, or with `erases` also all that it holds.

        Raises:
            PreconditionFailedError: The project has changed since `revision`.
            InvalidStateError: It holds something, or is the default project; or, with `erases`,
                work of it is in progress, or other projects measure on its banks.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.projects.find(project, for_update=True)
            await uow.removals.unused()
            if erases and found.id != DEFAULT_PROJECT:
                keeping = await uow.removals.keeping_project(found.id)
                if keeping:
                    raise InvalidStateError(
                        f"Project {found.name!r} cannot be erased because of {keeping}: cancel "
                        "what is under way; other projects must delete what they measured on "
                        "its shared banks."
                    )
                await uow.removals.whole_project(found.id)
            await uow.projects.delete(found.id, revision)
        self.recent.forget(lambda one: one.id == found.id)
