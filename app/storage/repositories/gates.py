"""Gates: a session held against a threshold."""

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from app.errors import NotFoundError
from app.records.fields import convert, shallow
from app.records.gates import GateRecord, GateSpec
from app.storage.paging import Page, PageRequest, read_page
from app.storage.rows.banks import BankVersionRow
from app.storage.rows.sessions import GateRow, SessionRow


class GateRepository:
    """Questions and changes about gates, within one transaction."""

    def __init__(self, db: AsyncSession) -> None:
        self._db = db

    async def add(self, gate_id: str, spec: GateSpec, *, session_id: str) -> GateRecord:
        """Store a new gate on a session that is there."""
        row = GateRow(id=gate_id, session_id=session_id, **shallow(spec))
        self._db.add(row)
        await self._db.flush()
        await self._db.refresh(row)
        return convert(GateRecord, row)

    async def get(self, gate_id: str) -> GateRecord:
        """One gate.

        Raises:
            NotFoundError: No such gate.
        """
        row = await self._db.get(GateRow, gate_id)
        if row is None:
            raise NotFoundError("gate", gate_id)
        return convert(GateRecord, row)

    async def list_page(
        self, request: PageRequest, *, session_id: str | None = None, bank_id: str | None = None
    ) -> Page[GateRecord]:
        """One page of gates that pass every filter given.

        Raises:
            NotFoundError: `request.after` is no gate.
        """
        query = select(GateRow)
        if session_id is not None:
            query = query.where(GateRow.session_id == session_id)
        if bank_id is not None:
            asked = (
                select(SessionRow.id)
                .join(BankVersionRow, SessionRow.bank_version_id == BankVersionRow.id)
                .where(BankVersionRow.bank_id == bank_id)
            )
            query = query.where(GateRow.session_id.in_(asked))
        return await read_page(
            self._db,
            query,
            request,
            key=GateRow.id,
            kind="gate",
            read=lambda row: convert(GateRecord, row),
        )
