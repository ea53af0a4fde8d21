"""Projects. They are the operator's: whoever is no admin over all meets their own alone."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, func, or_, select, text, update

from app.acting import DEFAULT_PROJECT
from app.errors import InvalidStateError, NotFoundError
from app.records.fields import convert, not_none
from app.records.projects import Allotment, Limits, Project, Retention
from app.storage.paging import Page, PageRequest, read_page
from app.storage.revisions import require_revision
from app.storage.room import allotment
from app.storage.rows.projects import ProjectRow
from app.storage.scoping import Repository, of_opened

#: Tables of what belongs to a project, and what people call one row.
_HELD = {
    "sessions": "session",
    "rankings": "ranking",
    "calibrations": "calibration",
    "response_sets": "response set",
    "banks": "bank",
    "endpoints": "endpoint",
    "installations": "installation",
    "gates": "gate",
    "baselines": "baseline",
    "webhooks": "webhook",
}
_COUNTS = text(
    " UNION ALL ".join(
        f"SELECT '{table}', count(*) FROM {table} WHERE project_id = :id"  # noqa: S608 (above)
        for table in _HELD
    )
).execution_options(**of_opened("the project"))


#: A project is held before what is in it, as by all who lock more than one row.
_OLD = """
    JOIN (SELECT id, retention FROM projects FOR KEY SHARE) p ON p.id = o.project_id
        AND o.finished_at < now() - (p.retention ->> '{}')::int * interval '1 day'
"""
#: In this order. With the texts goes what quotes them. Events go but for the last, which says that
#: no others follow; sessions from which others were made stay as long as those do.
_FORGET = [
    text(statement).execution_options(**of_opened("all that is too old"))
    for statement in (
        """
        WITH gone AS (
            UPDATE administrations a SET answer_text = NULL, raw_text = NULL, reasoning = NULL,
                extracted = NULL, reason = NULL,
                marking = CASE WHEN a.marking ? 'judgements' THEN
                    jsonb_set(a.marking, '{{judgements}}', (
                        SELECT jsonb_agg(j || '{{"reason": null}}')
                        FROM jsonb_array_elements(a.marking -> 'judgements') j
                    )) ELSE a.marking END,
                method = CASE WHEN a.method ? 'repeats' THEN
                    jsonb_set(a.method, '{{repeats}}', (
                        SELECT jsonb_agg(
                            r - '{{answer_text,raw_text,reasoning,extracted,reason}}'::text[]
                        )
                        FROM jsonb_array_elements(a.method -> 'repeats') r
                    )) ELSE a.method END
            FROM sessions o {texts} WHERE a.session_id = o.id
                AND (num_nonnulls(
                        a.answer_text, a.raw_text, a.reasoning, a.extracted, a.reason) > 0
                    OR a.marking @? '$.judgements[*] ? (@.reason != null)'
                    OR a.method @? '$.repeats[*] ? (exists (@.extracted))')
            RETURNING a.session_id
        )
        UPDATE session_events e SET data = e.data || '{{"extracted": null, "reason": null}}'
        WHERE e.type = 'response.received' AND e.session_id IN (SELECT session_id FROM gone)
        """,
        """
        DELETE FROM kept_answers a USING projects p WHERE p.id = a.project_id
            AND a.created_at < now() - (p.retention ->> 'texts_days')::int * interval '1 day'
        """,
        "DELETE FROM session_events e USING sessions o {events} "
        "WHERE e.session_id = o.id AND e.seq < o.event_seq",
        "DELETE FROM ranking_events e USING rankings o {events} "
        "WHERE e.ranking_id = o.id AND e.seq < o.event_seq",
        "DELETE FROM calibration_events e USING calibrations o {events} "
        "WHERE e.calibration_id = o.id AND e.seq < o.event_seq",
        """
        DELETE FROM sessions s USING sessions o {sessions} WHERE s.id = o.id
            AND o.ranking_id IS NULL AND NOT EXISTS (
                SELECT FROM sessions made WHERE made.parent_id = o.id
            )
        """,
        """
        DELETE FROM sessions s USING rankings o {sessions} WHERE s.ranking_id = o.id
            AND NOT EXISTS (
                SELECT FROM sessions member JOIN sessions made ON made.parent_id = member.id
                WHERE member.ranking_id = o.id
            )
        """,
        """
        DELETE FROM rankings r USING rankings o {sessions} WHERE r.id = o.id
            AND NOT EXISTS (SELECT FROM sessions s WHERE s.ranking_id = o.id)
        """,
    )
    for statement in [
        statement.format(
            **{what: _OLD.format(f"{what}_days") for what in ("texts", "events", "sessions")}
        )
    ]
]


class ProjectRepository(Repository):
    """Questions and changes about projects, within one transaction."""

    async def allotment(self, limit: str, key_id: str | None) -> Allotment | None:
        """What the project that is acted for, and a key of it, may have; None: all there is.

        Args:
            limit: Name among its limits.
            key_id: Who asks.
        """
        return await allotment(self._db, limit, key_id)

    async def add(self, project: Project) -> Project:
        """Store a new project.

        Raises:
            AlreadyExistsError: Its name is taken (from the unit of work).
        """
        values = asdict(project)
        values["limits"], values["retention"] = (
            not_none(project.limits),
            not_none(project.retention),
        )
        self._db.add(ProjectRow(**values))
        await self._db.flush()
        return await self.find(project.id)

    async def find(self, id_or_name: str, *, for_update: bool = False) -> Project:
        """A project by its id or its name.

        Raises:
            NotFoundError: No such project.
        """
        query = (
            select(ProjectRow)
            .where(or_(ProjectRow.id == id_or_name, ProjectRow.name == id_or_name))
            .order_by((ProjectRow.id == id_or_name).desc())
            .limit(1)
            .execution_options(populate_existing=True)
        )
        row = await self._db.scalar(query.with_for_update() if for_update else query)
        if row is None:
            raise NotFoundError("project", id_or_name)
        return _read(row)

    async def page(self, request: PageRequest) -> Page[Project]:
        """One page of the projects.

        Raises:
            NotFoundError: `request.after` is no project.
        """
        return await read_page(
            self._db, select(ProjectRow), request, key=ProjectRow.id, kind="project", read=_read
        )

    async def update(self, project_id: str, revision: int, changes: Mapping[str, Any]) -> Project:
        """Change fields of a project that is still at `revision`.

        Raises:
            NotFoundError: No such project.
            PreconditionFailedError: It has changed since.
            AlreadyExistsError: The new name is taken (from the unit of work).
        """
        project = await self.find(project_id)
        # Whoever makes something in it, or removes what is old, need not wait for this, nor this
        # for them.
        row = select(ProjectRow.id).where(ProjectRow.id == project.id)
        await self._db.execute(row.with_for_update(key_share=True))
        project = await self.find(project.id)
        require_revision(f"Project {project.name!r}", project.revision, revision)
        values = dict(changes)
        for name in ("limits", "retention"):
            if name in values:
                values[name] = not_none(values[name])
        await self._db.execute(
            update(ProjectRow)
            .where(ProjectRow.id == project.id)
            .values(**values, revision=revision + 1, updated_at=func.now())
        )
        return await self.find(project.id)

    async def delete(self, project_id: str, revision: int) -> None:
        """Remove a project that holds nothing, with its keys.

        Raises:
            NotFoundError: No such project.
            PreconditionFailedError: It is not at `revision` any more.
            InvalidStateError: It holds something, or is the one that always exists.
        """
        project = await self.find(project_id, for_update=True)
        require_revision(f"Project {project.name!r}", project.revision, revision)
        if project.id == DEFAULT_PROJECT:
            raise InvalidStateError(f"Project {project.name!r} always exists.")
        held = await self.holds(project.id)
        if held:
            what = ", ".join(f"{count} {noun}{'s' * (count > 1)}" for noun, count in held.items())
            raise InvalidStateError(
                f"Project {project.name!r} holds {what}: delete what it holds first, or erase it "
                "with the project."
            )
        await self._db.execute(delete(ProjectRow).where(ProjectRow.id == project.id))

    async def forget(self) -> None:
        """Remove what is older than its project keeps it, of all projects."""
        for statement in _FORGET:
            await self._db.execute(statement)

    async def holds(self, project_id: str) -> dict[str, int]:
        """What a project holds: how many of each kind, archived ones included."""
        rows = await self._db.execute(_COUNTS, {"id": project_id})
        return {_HELD[table]: count for table, count in rows if count}


def _read(row: ProjectRow) -> Project:
    return convert(Project, row, limits=Limits(**row.limits), retention=Retention(**row.retention))
