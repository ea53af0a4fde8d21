"""The audit trail, for those who look after projects."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from app.fair_semaphore import FairSemaphore
from app.records.api_keys import AuditEntry, AuditFilter
from app.storage.database import Database

#: Entries of one read.
_PAGE = 250
_READING = FairSemaphore(1, waiting=10_000, spare=1)


@dataclass(frozen=True, eq=False)
class AuditService:
    """Reads the audit trail; `app.storage.auditing` writes it."""

    database: Database

    async def all(self, wanted: AuditFilter) -> AsyncIterator[Sequence[AuditEntry]]:
        """All entries that pass the filter, the oldest first, a page at a time.

        However many ask for them, one page is read at a time, and one for another key; nothing is
        held in the database while a page is not taken.
        """
        last: str | None = None
        while True:
            async with _READING.turn(), self.database.reading() as uow:
                page = await uow.audit.following(wanted, last, _PAGE)
            if page:
                yield page
            if len(page) < _PAGE:
                return
            last = page[-1].id
