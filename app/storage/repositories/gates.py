"""Gates: comparisons of a session with a threshold."""

from dataclasses import asdict

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert

from app.acting import maker, owner
from app.records.fields import convert, restored, shallow
from app.records.gates import Baseline, GateRecord, GateSpec, NamedBaseline
from app.storage.paging import Page, PageRequest
from app.storage.repositories.projects import require_space
from app.storage.rows.banks import BankVersionRow
from app.storage.rows.sessions import BaselineRow, GateRow, SessionRow
from app.storage.scoping import Repository, given


class GateRepository(Repository):
    """Queries and changes of gates, within one transaction."""

    async def add(self, gate_id: str, spec: GateSpec, *, session_id: str) -> GateRecord:
        """Store a new gate on an existing session."""
        stored = {**shallow(spec), "baseline": spec.baseline and asdict(spec.baseline)}
        row = GateRow(id=gate_id, session_id=session_id, **stored)
        self._db.add(row)
        await self._db.flush()
        await self._db.refresh(row)
        return _gate(row)

    async def get(self, gate_id: str) -> GateRecord:
        """One gate."""
        return _gate(await self._by_id(GateRow, gate_id, "gate"))

    async def list_page(
        self, request: PageRequest, *, session_id: str | None = None, bank_id: str | None = None
    ) -> Page[GateRecord]:
        """One page of gates that pass all given filters."""
        query = select(GateRow).where(*given((GateRow.session_id, session_id)))
        if bank_id is not None:
            asked = (
                select(SessionRow.id)
                .join(BankVersionRow, SessionRow.bank_version_id == BankVersionRow.id)
                .where(BankVersionRow.bank_id == bank_id)
            )
            query = query.where(GateRow.session_id.in_(asked))
        return await self._page(query, request, GateRow.id, "gate", _gate)


def _gate(row: GateRow) -> GateRecord:
    return convert(GateRecord, row, baseline=row.baseline and restored(Baseline, row.baseline))


class BaselineRepository(Repository):
    """Queries and changes of baselines, within one transaction."""

    async def put(self, name: str, baseline: Baseline, *, is_admin: bool) -> NamedBaseline | None:
        """Store a baseline under a name, replacing the one of that name; its maker stays the same.

        Returns:
            None if another key made the old one, unless `is_admin`.

        Raises:
            StorageFullError: The project, or this key of it, has reached its storage limit.
        """
        await require_space(self._db)
        stored = asdict(baseline)
        is_own = BaselineRow.created_by.is_not_distinct_from(maker())
        moved = await self._db.scalar(
            insert(BaselineRow)
            .values(project_id=owner(), created_by=maker(), name=name, baseline=stored)
            .on_conflict_do_update(
                index_elements=["project_id", "name"],
                set_={"baseline": stored, "set_at": func.now()},
                where=None if is_admin else is_own,
            )
            .returning(BaselineRow.name)
        )
        return None if moved is None else await self.get(name)

    async def get(self, name: str) -> NamedBaseline:
        """The baseline with a name."""
        query = select(BaselineRow).where(BaselineRow.name == name)
        return _baseline(await self._one(query, "baseline", name))

    async def page(self, request: PageRequest) -> Page[NamedBaseline]:
        """One page of the project's baselines in order of name; `after` is a name."""
        statement = select(BaselineRow).order_by(BaselineRow.name).limit(request.limit + 1)
        if request.after is not None:
            statement = statement.where(BaselineRow.name > request.after)
        found = [_baseline(row) for row in await self._db.scalars(statement)]
        return Page(tuple(found[: request.limit]), has_more=len(found) > request.limit)

    async def delete(self, name: str) -> None:
        """Delete a baseline; gates that were made against it stay as they are."""
        await self._db.execute(delete(BaselineRow).where(BaselineRow.name == name))


def _baseline(row: BaselineRow) -> NamedBaseline:
    return convert(NamedBaseline, row, baseline=restored(Baseline, row.baseline))
