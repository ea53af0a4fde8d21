"""The audit trail, for those who look after projects."""

from collections.abc import AsyncIterator

from app.records.audit import AuditEntry, AuditFilter
from app.storage.database import Database
from app.storage.paging import Page, PageRequest


class AuditService:
    """Reads the audit trail; `app.storage.auditing` writes it.

    Args:
        database: Where it is.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, request: PageRequest, wanted: AuditFilter) -> Page[AuditEntry]:
        """One page of the entries that pass the filter.

        Raises:
            NotFoundError: `request.after` is no entry.
        """
        async with self._database.reading() as uow:
            return await uow.audit.page(request, wanted)

    async def all(self, wanted: AuditFilter) -> AsyncIterator[AuditEntry]:
        """All entries that pass the filter, the oldest first, as of now."""
        async with self._database.unit_of_work() as uow:
            async for entry in uow.audit.all(wanted):
                yield entry
