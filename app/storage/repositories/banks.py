"""Queries and changes of banks and installations; rows of banks, items and versions to values."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from sqlalchemy import Text, bindparam, func, or_, select, text
from typing_extensions import override

from app.errors import NotFoundError
from app.items import ItemContent, JsonValue, ScorerSpec
from app.records.banks import (
    OPEN,
    PRETEST,
    Bank,
    BankVersion,
    InstallationRecord,
    Item,
    VersionItem,
)
from app.records.fields import convert, restored, shallow
from app.records.leased import UNDERWAY, Failure
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest
from app.storage.rows.banks import BankRow, BankVersionRow, InstallationRow, ItemRow, VersionItemRow
from app.storage.scoping import SEEN, Repository, given, of_opened, require_revision

_CONTENT = TypeAdapter(ItemContent)
_SCORER = TypeAdapter[ScorerSpec | None](ScorerSpec | None)
_USED_ELSEWHERE = text("""
    SELECT true FROM sessions s
    JOIN bank_versions v ON v.id = s.bank_version_id JOIN banks b ON b.id = v.bank_id
    WHERE b.id = :bank_id AND s.project_id <> b.project_id LIMIT 1
""").execution_options(**of_opened("the bank"))

_MOST_NAMES = 500  # compared with a name that no bank has
_WANTED = bindparam("wanted", type_=Text())
# Built once, as building costs more than sending. A name may equal another bank's id, or the name
# of another project's shared bank: the id takes precedence, then the bank of the own project.
_FOUND = (
    select(BankRow)
    .where(or_(BankRow.id == _WANTED, BankRow.name == _WANTED), BankRow.archived_at.is_(None))
    .order_by((BankRow.id == _WANTED).desc(), (BankRow.project_id == SEEN).desc(), BankRow.id)
    .limit(1)
    .execution_options(populate_existing=True)
)
_WITH_NEWEST = _FOUND.add_columns(
    select(BankVersionRow.id)
    .where(BankVersionRow.bank_id == BankRow.id)
    .order_by(BankVersionRow.number.desc())
    .limit(1)
    .scalar_subquery()
)


class BankRepository(Repository):
    """Queries and changes of banks, within one transaction.

    Archived banks are found only by the id of one of their versions, to which sessions refer.
    """

    async def add(self, bank: Bank) -> None:
        """Store a new bank."""
        self._db.add(BankRow(**bank_values(shallow(bank))))
        await self._db.flush()

    async def known(self, id_or_name: str, *, for_update: bool = False) -> Bank | None:
        """A bank by its id or its name, if there is one."""
        query = _FOUND.with_for_update() if for_update else _FOUND
        row = (await self._db.execute(query, {"wanted": id_or_name})).scalar_one_or_none()
        return None if row is None else read_bank(row)

    async def find(self, id_or_name: str, *, for_update: bool = False) -> Bank:
        """A bank by its id or its name."""
        bank = await self.known(id_or_name, for_update=for_update)
        if bank is None:
            raise NotFoundError("bank", id_or_name, () if for_update else await self._names())
        return bank

    async def with_newest(self, id_or_name: str) -> tuple[Bank, str | None]:
        """A bank by its id or name, and the id of its latest version; None where it has none."""
        row = (await self._db.execute(_WITH_NEWEST, {"wanted": id_or_name})).one_or_none()
        if row is None:
            raise NotFoundError("bank", id_or_name, await self._names())
        bank, version_id = row
        return read_bank(bank), version_id

    async def _names(self) -> Sequence[str]:
        """Names that a mistyped one may be like."""
        query = select(BankRow.name).where(BankRow.archived_at.is_(None)).limit(_MOST_NAMES)
        return (await self._db.scalars(query)).all()

    async def list_page(self, request: PageRequest) -> Page[Bank]:
        """One page of banks."""
        query = select(BankRow).where(BankRow.archived_at.is_(None))
        return await self._page(query, request, BankRow.id, "bank", read_bank)

    async def update(self, bank_id: str, revision: int, changes: Mapping[str, Any]) -> Bank:
        """Change fields of a bank, if it is still at `revision`."""
        bank = await self.find(bank_id, for_update=True)
        require_revision(f"Bank {bank.name!r}", bank.revision, revision)
        values = bank_values(changes)
        await self._set(BankRow, bank.id, **values, revision=revision + 1, updated_at=func.now())
        return await self.find(bank.id)

    async def archive(self, bank_id: str, revision: int) -> Bank:
        """Take a bank out of use and free its name; sessions keep their versions."""
        bank = await self.find(bank_id, for_update=True)
        require_revision(f"Bank {bank.name!r}", bank.revision, revision)
        await self._set(BankRow, bank.id, archived_at=func.now())
        return bank

    async def used_elsewhere(self, bank_id: str) -> bool:
        """Whether another project has measured on a bank."""
        return await self._db.scalar(_USED_ELSEWHERE, {"bank_id": bank_id}) is not None

    async def withheld_scorers(self) -> list[ScorerSpec]:
        """The different scorers of withheld banks and of their items."""
        withheld = BankRow.visibility != OPEN
        default = select(BankRow.default_scorer).where(withheld)
        own = (
            select(ItemRow.scorer)
            .join(BankRow, BankRow.id == ItemRow.bank_id)
            .where(withheld, ItemRow.scorer.is_not(None))
        )
        rows = (await self._db.execute(default.union(own))).scalars()
        return [restored(ScorerSpec, row) for row in rows]

    async def of_version(self, version_id: str) -> Bank:
        """The bank of a version, even if the bank is archived."""
        query = select(BankRow).join(BankVersionRow, BankVersionRow.bank_id == BankRow.id)
        query = query.where(BankVersionRow.id == version_id)
        return read_bank(await self._one(query, "bank version", version_id))


#: Fields of a `BankVersion` that are stored in one common column.
VERSION_EXTRAS = ("n_calibrated", "has_content", "calibration")


def bank_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a `Bank` as columns of its row."""
    row = dict(values)
    if "metadata" in row:
        row["details"] = row.pop("metadata")
    if "default_scorer" in row:
        row["default_scorer"] = scorer_json(row["default_scorer"])
    return row


def read_bank(row: BankRow) -> Bank:
    """Row to value."""
    scorer = restored(ScorerSpec, row.default_scorer)
    return convert(Bank, row, metadata=row.details, default_scorer=scorer)


def read_item(row: ItemRow) -> Item:
    """Row to value."""
    return convert(
        Item,
        row,
        content=_CONTENT.validate_python(row.content),
        scorer=read_scorer(row.scorer),
        tags=tuple(row.tags),
        group=row.group_key,
    )


def read_version(row: BankVersionRow) -> BankVersion:
    """Row to value."""
    extras = {name: row.extras[name] for name in VERSION_EXTRAS if name in row.extras}
    return convert(BankVersion, row, **extras)


def read_version_item(row: VersionItemRow, key: str, pretest_sessions: int) -> VersionItem:
    """Row to value."""
    said = dict.fromkeys(("a", "intercept", "c", "d")) if row.status == PRETEST else {}
    flags = tuple(row.flags)
    return convert(
        VersionItem, row, key=key, flags=flags, pretest_sessions=pretest_sessions, **said
    )


def scorer_json(scorer: ScorerSpec) -> dict[str, JsonValue]:
    """Scorer as stored."""
    return {"name": scorer.name, "params": dict(scorer.params)}


def read_scorer(value: object) -> ScorerSpec | None:
    """Stored scorer to value; `None` where none is chosen."""
    return _SCORER.validate_python(value)


class InstallationRepository(LeasedRepository[InstallationRecord]):
    """Queries and changes of installations, within one transaction."""

    row = InstallationRow
    kind = "Installation"

    async def add(self, installation_id: str, entry: str) -> InstallationRecord:
        """Store a new installation, queued."""
        self._db.add(InstallationRow(id=installation_id, entry=entry, status="queued"))
        await self._db.flush()
        return await self.get(installation_id)

    @override
    async def get(self, installation_id: str, *, for_update: bool = False) -> InstallationRecord:
        """One installation; `for_update` locks its row until the transaction ends."""
        query = select(InstallationRow).where(InstallationRow.id == installation_id)
        return _read(await self._one(query, "installation", installation_id, for_update=for_update))

    async def underway(self, entry: str) -> InstallationRecord | None:
        """The installation of an entry that has not ended, if there is one."""
        query = (
            select(InstallationRow)
            .where(InstallationRow.entry == entry, InstallationRow.status.in_(UNDERWAY))
            .order_by(InstallationRow.id)
            .limit(1)
        )
        row = (await self._db.execute(query)).scalar_one_or_none()
        return None if row is None else _read(row)

    async def list_page(
        self, request: PageRequest, *, status: str | None = None
    ) -> Page[InstallationRecord]:
        """One page of installations."""
        query = select(InstallationRow).where(*given((InstallationRow.status, status)))
        return await self._page(query, request, InstallationRow.id, "installation", _read)

    async def report(self, claimed_id: str, epoch: int, progress: Mapping[str, JsonValue]) -> None:
        """Write the progress of an installation."""
        await self._write(claimed_id, epoch, progress=dict(progress), lapses=0)

    async def complete(self, claimed_id: str, epoch: int, result: Mapping[str, JsonValue]) -> None:
        """Complete an installation and write its result."""
        await self._finish(claimed_id, epoch, "completed", result=dict(result))

    async def fail(self, claimed_id: str, epoch: int, failure: Failure) -> None:
        """Mark an installation as failed and write the cause."""
        await self._finish(claimed_id, epoch, "failed", failure=dict(failure))

    async def cancel(self, installation_id: str) -> InstallationRecord:
        """Cancel an installation from outside; its worker loses the lease.

        Raises:
            InvalidStateError: It has ended.
        """
        record = await self.get(installation_id, for_update=True)
        self._require_underway(record)
        taken_away = self._taken_away()
        await self._set(InstallationRow, installation_id, **taken_away, status="cancelled")
        return await self.get(installation_id)


def _read(row: InstallationRow) -> InstallationRecord:
    return convert(InstallationRecord, row)
