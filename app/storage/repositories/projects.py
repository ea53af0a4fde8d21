"""Projects, and the limits of projects and keys, which are checked before new work is started.

Projects are managed by the operator: callers other than global admins see only their own project.
"""

import time
from collections.abc import Mapping
from typing import Any

from cachetools import TTLCache
from sqlalchemy import and_, bindparam, delete, func, select, text, true
from sqlalchemy.ext.asyncio import AsyncSession

from app.acting import DEFAULT_PROJECT, maker, owner
from app.errors import InvalidStateError, NotFoundError, StorageFullError, TooManySessionsError
from app.records.fields import convert, not_none, restored, shallow
from app.records.projects import Allotment, Limits, Project, Retention
from app.storage.paging import Page, PageRequest
from app.storage.repositories.removals import many
from app.storage.rows.projects import ApiKeyRow, ProjectRow
from app.storage.rows.sessions import SessionRow
from app.storage.scoping import Repository, of_opened, require_revision

#: Tables of the resources of a project.
_HELD = (
    *("sessions", "rankings", "calibrations", "response_sets", "banks", "endpoints"),
    *("installations", "gates", "baselines", "webhooks"),
)
_COUNTS = text(
    " UNION ALL ".join(
        f"SELECT '{table}', count(*) FROM {table} WHERE project_id = :id"  # noqa: S608 (above)
        for table in _HELD
    )
).execution_options(**of_opened("the project"))


class ProjectRepository(Repository):
    """Queries and changes of projects, within one transaction."""

    async def allotment(
        self, limit: str, key_id: str | None, *, for_update: bool = False
    ) -> Allotment | None:
        """A limit of the present project, and of a key of it; None where there is no limit."""
        others = select(ApiKeyRow.id).where(
            ApiKeyRow.project_id == ProjectRow.id,
            ApiKeyRow.id != key_id,
            ApiKeyRow.revoked_at.is_(None),
            func.coalesce(ApiKeyRow.expires_at > func.now(), true()),
        )
        own = select(ApiKeyRow.limits[limit].as_integer()).where(
            ApiKeyRow.project_id == ProjectRow.id, ApiKeyRow.id == key_id
        )
        asked = select(
            ProjectRow.name,
            ProjectRow.limits[limit].as_integer(),
            own.scalar_subquery(),
            others.exists(),
        ).where(ProjectRow.id == owner())
        if for_update:
            asked = asked.with_for_update(key_share=True, of=ProjectRow)
        name, most, own_most, are_shared = (await self._db.execute(asked)).one()
        if most is None and own_most is None:
            return None
        return Allotment(
            limit=limit, project=name, most=most, own_most=own_most, are_shared=are_shared
        )

    async def limits(self, project_id: str, key_id: str | None) -> tuple[Limits, Limits]:
        """Limits of a project and of a key; a key of no or another project has no limits."""
        of = {"project_id": project_id, "key_id": key_id}
        found = (await self._db.execute(_LIMITS, of)).one_or_none()
        if found is None:
            raise NotFoundError("project", project_id)
        limits, own = found
        return restored(Limits, limits), restored(Limits, own or {})

    async def add(self, project: Project) -> Project:
        """Store a new project."""
        self._db.add(ProjectRow(**_columns(shallow(project))))
        await self._db.flush()
        return await self.find(project.id)

    async def find(self, id_or_name: str, *, for_update: bool = False) -> Project:
        """A project by its id or its name."""
        name = ProjectRow.name
        return _read(await self._named(name, id_or_name, "project", for_update=for_update))

    async def page(self, request: PageRequest) -> Page[Project]:
        """One page of the projects."""
        return await self._page(select(ProjectRow), request, ProjectRow.id, "project", _read)

    async def update(self, project_id: str, revision: int, changes: Mapping[str, Any]) -> Project:
        """Change fields of a project, if it is still at `revision`."""
        project = await self.find(project_id)
        # The lock does not conflict with those of transactions that add something to the project,
        # or remove old data.
        row = select(ProjectRow.id).where(ProjectRow.id == project.id)
        await self._db.execute(row.with_for_update(key_share=True))
        project = await self.find(project.id)
        require_revision(f"Project {project.name!r}", project.revision, revision)
        values = {**_columns(changes), "revision": revision + 1, "updated_at": func.now()}
        await self._set(ProjectRow, project.id, **values)
        return await self.find(project.id)

    async def delete(self, project_id: str, revision: int) -> None:
        """Remove an empty project, with its keys.

        Raises:
            InvalidStateError: It is not empty, or it is the project that always exists.
        """
        project = await self.find(project_id, for_update=True)
        require_revision(f"Project {project.name!r}", project.revision, revision)
        if project.id == DEFAULT_PROJECT:
            raise InvalidStateError(f"Project {project.name!r} always exists.")
        held = await self.holds(project.id)
        if held:
            what = ", ".join(many(count, noun) for noun, count in held.items())
            raise InvalidStateError(
                f"Project {project.name!r} holds {what}: delete what it holds first, or erase it "
                "with the project."
            )
        await self._db.execute(delete(ProjectRow).where(ProjectRow.id == project.id))

    async def stored_bytes(self, project_id: str, key_id: str | None = None) -> int:
        """Bytes stored by a project, or what a key of it made; a long count may be minutes old."""
        known = _counted.get((project_id, key_id))
        if known is not None:
            return known
        began = time.monotonic()
        of = {"project": project_id, "key": key_id}
        total = int(await self._db.scalar(_BYTES, of) or 0)
        if time.monotonic() - began > _LONG_COUNT_S:
            _counted[project_id, key_id] = total
        return total

    async def holds(self, project_id: str) -> dict[str, int]:
        """Number of resources of a project by kind, including archived ones."""
        # A table has its resource's name in the plural: `response_sets` has each response set.
        rows = await self._db.execute(_COUNTS, {"id": project_id})
        return {table[:-1].replace("_", " "): count for table, count in rows if count}


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Project` as columns of its row; unset limits are left out."""
    return {
        name: not_none(value) if name in ("limits", "retention") else value
        for name, value in values.items()
    }


def _read(row: ProjectRow) -> Project:
    return convert(
        Project,
        row,
        limits=restored(Limits, row.limits),
        retention=restored(Retention, row.retention),
    )


_OWN_KEY = and_(ApiKeyRow.id == bindparam("key_id"), ApiKeyRow.project_id == ProjectRow.id)
#: Bytes on disk of banks, response sets, baselines and ended sessions.
_BYTES = text("""
    SELECT coalesce(sum(bytes), 0)::bigint FROM (
        SELECT pg_column_size(i.content) AS bytes FROM banks o JOIN items i ON i.bank_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT pg_column_size(a.examinee) + pg_column_size(a.codes)
            + coalesce(pg_column_size(a.fractions), 0)
        FROM response_sets o JOIN answer_sheets a ON a.set_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT pg_column_size(o.baseline) FROM baselines o
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
        UNION ALL
        SELECT coalesce(pg_column_size(a.answer_text), 0) + coalesce(pg_column_size(a.raw_text), 0)
            + coalesce(pg_column_size(a.reasoning), 0) + coalesce(pg_column_size(a.method), 0)
        FROM sessions o JOIN administrations a ON a.session_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
            AND o.finished_at IS NOT NULL
        UNION ALL
        SELECT pg_column_size(k.answer) FROM sessions o JOIN kept_answers k ON k.session_id = o.id
        WHERE o.project_id = :project AND (o.created_by = :key OR CAST(:key AS text) IS NULL)
            AND o.finished_at IS NOT NULL
    ) AS stored
""").execution_options(**of_opened("the project"))
#: A count that took longer than the first value is reused for the time of the second, seconds.
_LONG_COUNT_S, _USED_AGAIN_S = 1.0, 600.0
_counted: TTLCache[tuple[str, str | None], int] = TTLCache(10_000, _USED_AGAIN_S)
_LIMITS = (
    select(ProjectRow.limits, ApiKeyRow.limits)
    .outerjoin(ApiKeyRow, _OWN_KEY)
    .where(ProjectRow.id == bindparam("project_id"))
)


async def require_room(db: AsyncSession) -> None:
    """Refuse a session beyond the limits of the project or of the acting key.

    Raises:
        TooManySessionsError: The project or the key has its largest number of unended sessions.
        StorageFullError: The project or the key has reached its storage limit.
    """
    limits, own = await ProjectRepository(db).limits(owner(), maker())
    if limits.open_sessions is not None or own.open_sessions is not None:
        await _require_few_open(db)
    await _require_below(db, limits.stored_bytes, own.stored_bytes)


async def require_space(db: AsyncSession) -> None:
    """Refuse to store more than the project or the acting key may.

    Raises:
        StorageFullError: The project or the key has reached its storage limit.
    """
    limits, own = await ProjectRepository(db).limits(owner(), maker())
    await _require_below(db, limits.stored_bytes, own.stored_bytes)


async def _require_few_open(db: AsyncSession) -> None:
    """Check the number of open sessions; a lock makes concurrent checks take turns."""
    key_id = maker()
    found = await ProjectRepository(db).allotment("open_sessions", key_id, for_update=True)
    if found is None:
        return
    # The query reads no more rows than the limit, even if more sessions were open when it was set.
    is_open = select(SessionRow.created_by).where(SessionRow.finished_at.is_(None))
    if found.most is None:
        is_open = is_open.where(SessionRow.created_by == key_id)
    most = found.own_most if found.most is None else found.most
    counted = is_open.limit(most).subquery()
    own = func.count().filter(counted.c.created_by == key_id)
    n_taken, n_own = (await db.execute(select(func.count(), own).select_from(counted))).one()
    if why := found.refusal("sessions that have not ended", own=n_own, taken=n_taken):
        raise TooManySessionsError(f"{why} Wait for some to end, or cancel them.")


async def _require_below(db: AsyncSession, most: int | None, own_most: int | None) -> None:
    for whose, cap, key_id in (
        ("This project stores", most, None),
        ("What this key made takes", own_most, maker()),
    ):
        if cap is None:
            continue
        stored = await ProjectRepository(db).stored_bytes(owner(), key_id)
        if stored >= cap:
            raise StorageFullError(
                f"{whose} {stored:,} of the {cap:,} bytes allowed: delete sessions, banks, "
                f"baselines or response sets{' of it' if key_id else ''}, or have its limit "
                "stored_bytes raised."
            )
