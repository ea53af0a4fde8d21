"""Projects: made, looked up, changed, removed."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from cachetools import TTLCache

from app.acting import DEFAULT_PROJECT
from app.errors import InvalidStateError
from app.records.projects import DaySpend, Limits, Project, Retention
from app.services.in_progress import InProgress
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.paging import Page, PageRequest

#: For so long a project that was seen is not looked up again, seconds; so many at most.
_KEPT_S, _MOST_KEPT = 1.0, 1000


class ProjectService:
    """Use cases of projects.

    Raises:
        NotFoundError: What is named is not there, of all that name something.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: TTLCache[str, Project] = TTLCache(_MOST_KEPT, _KEPT_S)
        self._looking: InProgress[str, Project] = InProgress()

    async def create(
        self,
        name: str,
        *,
        description: str = "",
        limits: Limits | None = None,
        retention: Retention | None = None,
    ) -> Project:
        """A new project, which holds nothing.

        Raises:
            AlreadyExistsError: Its name is taken.
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
        """A project, what its calls took of today's budgets, and the bytes that it stores."""
        async with self._database.reading() as uow:
            project = await uow.projects.find(id_or_name)
            today = await uow.spend.today(project.id)
            return project, today, await uow.spend.stored_bytes(project.id)

    async def recent(self, id_or_name: str) -> Project:
        """As `find`, as it was a moment ago: for what asks in every request."""
        known = self._seen.get(id_or_name)
        if known is None:
            # A hundred requests that begin at once look once.
            known = await self._looking.once(id_or_name, lambda: self.find(id_or_name))
            self._seen[id_or_name] = known
        return known

    async def page(self, request: PageRequest) -> Page[Project]:
        """One page of the projects.

        Raises:
            NotFoundError: `request.after` is no project.
        """
        async with self._database.reading() as uow:
            return await uow.projects.page(request)

    async def update(self, project: str, revision: int, changes: Mapping[str, Any]) -> Project:
        """Change fields of a project.

        Raises:
            NotFoundError: No such project.
            PreconditionFailedError: It has changed since.
            AlreadyExistsError: The new name is taken.
        """
        async with self._database.unit_of_work() as uow:
            updated = await uow.projects.update(project, revision, changes)
        self._seen.clear()
        return updated

    async def delete(self, project: str, revision: int, *, erases: bool = False) -> None:
        """Remove a project that holds nothing, with its keys.

        Raises:
            NotFoundError: No such project.
            PreconditionFailedError: It has changed since.
            InvalidStateError: It holds something, or is the one that always exists; or, where all
                is to be erased, something is under way or others measure on its banks.
        """
        async with self._database.unit_of_work() as uow:
            found = await uow.projects.find(project, for_update=True)
            await uow.removals.unused()
            if erases and found.id != DEFAULT_PROJECT:
                keeping = await uow.removals.keeping_project(found.id)
                if keeping:
                    raise InvalidStateError(
                        f"Project {found.name!r} cannot be erased because of {keeping}: cancel "
                        "what is under way; what others measured on its shared banks is theirs to "
                        "delete."
                    )
                await uow.removals.whole_project(found.id)
            await uow.projects.delete(found.id, revision)
        self._seen.clear()
