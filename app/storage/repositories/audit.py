"""Read the audit trail, which `app.storage.auditing` writes."""

from typing import Any

from sqlalchemy import Select, Text, any_, bindparam, delete, func, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from app.records.api_keys import AuditEntry, AuditFilter
from app.records.fields import convert
from app.storage.paging import Page, PageRequest
from app.storage.rows.projects import AuditRow, ProjectRow
from app.storage.scoping import Repository, given

#: Up to this number, matching entries are sorted; more frequent names are quickly found in order.
_FEW = 10_000


class AuditRepository(Repository):
    """Queries of the audit trail, within one transaction."""

    async def page(self, request: PageRequest, wanted: AuditFilter) -> Page[AuditEntry]:
        """One page of the entries that pass the filter."""
        query = await self._found(wanted)
        return await self._page(query, request, AuditRow.id, "audit entry", _read)

    async def following(
        self, wanted: AuditFilter, after: str | None, limit: int
    ) -> list[AuditEntry]:
        """The first `limit` entries after `after` that pass the filter, the oldest first."""
        query = (await self._found(wanted)).order_by(AuditRow.id).limit(limit)
        if after is not None:
            query = query.where(AuditRow.id > after)
        return [_read(row) for row in await self._db.scalars(query)]

    async def purge(self) -> None:
        """Remove entries that are older than their project's retention time."""
        await self._db.execute(
            delete(AuditRow).where(
                AuditRow.project_id == ProjectRow.id,
                text("at < now() - (retention ->> 'audit_days')::int * interval '1 day'"),
            )
        )

    async def _found(self, wanted: AuditFilter) -> Select[Any]:
        """The entries that pass the filter, without an order.

        For an unknown name, Postgres expects one match in two hundred entries, and would read the
        trail from its end until it has a page of matches. So matching ids are looked up first.
        """
        query = _where(wanted)
        if wanted.resource is None:
            return query
        named = func.audit_names(AuditRow.resources, AuditRow.path, type_=ARRAY(Text)).contains(
            [wanted.resource]
        )
        ids = (await self._db.scalars(select(AuditRow.id).where(named).limit(_FEW + 1))).all()
        return query.where(
            named if len(ids) > _FEW else AuditRow.id == any_(bindparam("ids", ids, ARRAY(Text)))
        )


def _where(wanted: AuditFilter) -> Select[Any]:
    filters = given(
        (AuditRow.project_id, wanted.project_id),
        (AuditRow.key_id, wanted.key_id),
        (AuditRow.action, wanted.action),
    )
    query = select(AuditRow).where(*filters)
    if wanted.since is not None:
        query = query.where(AuditRow.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(AuditRow.at < wanted.until)
    return query


def _read(row: AuditRow) -> AuditEntry:
    return convert(AuditEntry, row, resources=tuple(row.resources))
