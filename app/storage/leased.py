"""Work under a lease: one worker runs it until it ends, or the lease expires or is taken away."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from sqlalchemy import (
    ColumnElement,
    Interval,
    Select,
    Text,
    all_,
    bindparam,
    case,
    func,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import ARRAY

from app.errors import InvalidStateError, LeaseLostError
from app.fair_semaphore import Owner
from app.records.leased import ENDED, UNDERWAY, LeasedRecord
from app.storage.rows.base import LeasedRow
from app.storage.scoping import Repository

#: A lease that ends later than this multiple of its length was given before the clock was set back,
#: and counts as expired. A live holder renews it at once.
_CREDIBLE = 10
#: How often in a row a lease may expire without a step: work that is restarted again and again
#: without progress must end.
MAX_LAPSES = 3
#: Stalled work that is found at a time.
_STALLED = 100


R = TypeVar("R", bound=LeasedRecord)


@cache
def _owner(row: type[LeasedRow]) -> Select[str, str | None]:
    """Select project and key of a resource; cached, as building costs more than sending."""
    return select(row.project_id, row.created_by).where(row.id == bindparam("wanted"))


class LeasedRepository(Repository, ABC, Generic[R]):
    """Base of repositories of tables whose rows are run under leases, within one transaction.

    A claim increments the row's `lease_epoch`. Later writes name the epoch of their claim, so that
    a worker that lost its lease can write nothing.

    Attributes:
        row: ORM class of the table.
        kind: Noun for one row, for messages.
        claimable: States in which a worker may hold a lease.
        held: States in which a worker holds a lease.
        ready: Further conditions on a row that may be claimed by itself.
        moved: Further columns to set when a lease is claimed, released or found abandoned.

    Raises:
        LeaseLostError: From methods that write: the work was cancelled, or another worker has it.
    """

    row: ClassVar[type[LeasedRow]]
    kind: ClassVar[str]
    claimable: ClassVar[Sequence[str]] = UNDERWAY
    held: ClassVar[Sequence[str]] = ("running",)
    ready: ClassVar[Sequence[ColumnElement[bool]]] = ()
    moved: ClassVar[Mapping[str, Any]] = {}

    @abstractmethod
    async def get(self, resource_id: str, /) -> R:
        """One resource of the table."""

    async def claim(self, resource_id: str, /, *, worker_id: str, lease: timedelta) -> R | None:
        """Take the lease; None if the work has ended or another worker has it."""
        epoch = await self._take(resource_id, worker_id=worker_id, lease=lease)
        return None if epoch is None else await self.get(resource_id)

    async def _take(self, resource_id: str, *, worker_id: str, lease: timedelta) -> int | None:
        """Claim a row; return the epoch of the lease, or None if it has ended or is leased."""
        row = self.row
        epoch: int | None = await self._db.scalar(
            update(row)
            .where(
                row.id == resource_id,
                row.status.in_(self.claimable),
                self._is_over(row.lease_expires_at, _CREDIBLE * lease),
                *self.ready,
            )
            .values(
                status="running",
                lease_epoch=row.lease_epoch + 1,
                lease_expires_at=func.now() + lease,
                worker_id=worker_id,
                started_at=func.coalesce(row.started_at, func.now()),
                **self.moved,
            )
            .returning(row.lease_epoch)
        )
        return epoch

    def _require_underway(self, record: R) -> None:
        if record.status not in UNDERWAY:
            raise InvalidStateError(f"{self.kind} {record.id} is {record.status}; it has ended.")

    def _require_ended(self, record: R) -> None:
        if record.status not in ENDED:
            raise InvalidStateError(
                f"{self.kind} {record.id} is {record.status}; cancel it before deleting it."
            )

    async def owner_of(self, resource_id: str) -> Owner | None:
        """Project and API key of a resource; None if it was removed."""
        found = (await self._db.execute(_owner(self.row), {"wanted": resource_id})).one_or_none()
        return None if found is None else Owner(found.project_id, found.created_by)

    async def renew(self, leases: Mapping[str, int], *, lease: timedelta) -> set[str]:
        """Prolong the leases (id -> epoch) that this worker still has; return their ids."""
        rows = await self._db.scalars(
            update(self.row)
            .where(self.row.id.in_(self._ours(leases)))
            .values(lease_expires_at=func.now() + lease)
            .returning(self.row.id)
        )
        return set(rows)

    async def release(self, leases: Mapping[str, int]) -> None:
        """Give up leases (id -> epoch) so that another worker can continue at once."""
        await self._db.execute(
            update(self.row)
            .where(self.row.id.in_(self._ours(leases)))
            .values(status="queued", lease_expires_at=None, worker_id=None, **self.moved)
        )

    async def stalled(
        self,
        *,
        grace: timedelta,
        lease: timedelta,
        counts: bool = True,
        besides: Collection[str] = (),
    ) -> list[str]:
        """Ids of unended work that nobody runs, as its lease or its time in the queue ran out.

        The work is marked as queued from now, so that it is reported once per grace period. A lapse
        is counted only for work that a worker was running, not for work that waited for a rate
        limit or in the queue, or was given back.

        Args:
            grace: Time that must have passed since the lease or queue time ran out.
            lease: Duration of a lease.
            counts: False if leases may have expired because the database was unavailable.
            besides: Ids of work that waits for its turn in the calling worker, and is not lost.
        """
        row = self.row
        asked = {"besides": list(besides), "grace": grace, "longest": _CREDIBLE * lease}
        ids = list(await self._db.scalars(self._due(), asked))
        was_run = (row.status == "running") & row.worker_id.is_not(None)
        values: dict[str, Any] = {
            "status": "queued",
            "lease_expires_at": func.now(),  # over: the next worker may claim it
            "worker_id": None,
            **self.moved,
        }
        if counts:
            values["lapses"] = case((was_run, row.lapses + 1), else_=row.lapses)
        if ids:
            await self._db.execute(update(row).where(row.id.in_(ids)).values(**values))
        return ids

    @classmethod
    @cache
    def _due(cls) -> Select[str]:
        """Select abandoned work; cached, since every worker runs it at each heartbeat."""
        row = cls.row
        until = func.coalesce(row.lease_expires_at, row.created_at)
        return (
            select(row.id)
            .where(
                row.status.in_(cls.claimable),
                row.finished_at.is_(None),  # lets Postgres use a short partial index
                row.id != all_(bindparam("besides", type_=ARRAY(Text()))),
                cls._is_over(
                    until + bindparam("grace", type_=Interval()),
                    bindparam("longest", type_=Interval()),
                ),
                *cls.ready,
            )
            .order_by(row.id)
            .limit(_STALLED)
            .with_for_update(skip_locked=True)
        )

    @staticmethod
    def _is_over(until: Any, longest: Any) -> ColumnElement[bool]:
        """Whether a lease has expired, or ends later than a lease of the `longest` time can."""
        end = func.coalesce(until, func.now())
        over: ColumnElement[bool] = (end <= func.now()) | (end > func.now() + longest)
        return over

    async def _write(self, resource_id: str, epoch: int, **values: Any) -> None:
        """Write columns, if the lease `epoch` is still the present one."""
        written = await self._db.execute(
            update(self.row)
            .where(self.row.id.in_(self._ours({resource_id: epoch})))
            .values(**values)
            .returning(self.row.id)
        )
        if written.one_or_none() is None:
            raise LeaseLostError(
                f"{self.kind} {resource_id} was cancelled, or another worker has it."
            )

    async def _finish(self, resource_id: str, epoch: int, status: str, **values: Any) -> None:
        """Write the result of the work, and give up the lease."""
        ended = {"status": status, "lease_expires_at": None, "finished_at": func.now()}
        await self._write(resource_id, epoch, **ended, **values)

    def _taken_away(self) -> dict[str, Any]:
        """Column values that end work from outside, so that its worker can write no more."""
        return {
            "lease_epoch": self.row.lease_epoch + 1,
            "lease_expires_at": None,
            "worker_id": None,
            "finished_at": func.now(),
        }

    def _ours(self, leases: Mapping[str, int]) -> Select[str]:
        """Select ids of leases that this worker still has, locked in order to avoid deadlocks."""
        return (
            select(self.row.id)
            .where(
                tuple_(self.row.id, self.row.lease_epoch).in_(list(leases.items())),
                self.row.status.in_(self.held),
            )
            .order_by(self.row.id)
            .with_for_update(key_share=True)
        )
