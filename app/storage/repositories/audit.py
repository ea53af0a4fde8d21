"""The audit trail, as it is read; `app.storage.auditing` writes it."""

from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import Select, delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession

from app.records.audit import AuditEntry, AuditFilter
from app.records.fields import made_of
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows.projects import AuditRow, ProjectRow

_BATCH = 1000


class AuditRepository:
    """Questions about the audit trail, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def page(self, request: PageRequest, wanted: AuditFilter) -> Page[AuditEntry]:
        """One page of the entries that pass the filter.

        Raises:
            NotFoundError: `request.after` is no entry.
        """
        return await read_page(
            self._db, _where(wanted), request, key=AuditRow.id, kind="audit entry", read=_read
        )

    async def all(self, wanted: AuditFilter) -> AsyncIterator[AuditEntry]:
        """All entries that pass the filter, the oldest first."""
        query = _where(wanted).order_by(AuditRow.id).execution_options(yield_per=_BATCH)
        async for row in await self._db.stream_scalars(query):
            yield _read(row)

    async def purge(self) -> None:
        """Remove entries that are older than their project keeps them."""
        await self._db.execute(
            delete(AuditRow).where(
                AuditRow.project_id == ProjectRow.id,
                text("at < now() - (retention ->> 'audit_days')::int * interval '1 day'"),
            )
        )


def _where(wanted: AuditFilter) -> Select[Any]:
    query = select(AuditRow)
    for column, value in (
        (AuditRow.project_id, wanted.project_id),
        (AuditRow.key_id, wanted.key_id),
        (AuditRow.action, wanted.action),
    ):
        if value is not None:
            query = query.where(column == value)
    if wanted.resource is not None:
        query = query.where(
            AuditRow.resources.contains([wanted.resource]) | AuditRow.path.contains(wanted.resource)
        )
    if wanted.since is not None:
        query = query.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditRow.at < wanted.until)
    return query


def _read(row: AuditRow) -> AuditEntry:
    return made_of(AuditEntry, row, resources=tuple(row.resources))
