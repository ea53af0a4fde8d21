"""Calibrations: their row, fitted items, and the lease of the worker that runs them."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, delete, func, null, select, update
from sqlalchemy.orm import aliased
from typing_extensions import override

from app.errors import InvalidStateError, NotFoundError
from app.items import JsonValue
from app.records.calibrations import COLUMNS, CalibrationRecord, FittedExaminees, FittedItems
from app.records.fields import convert
from app.records.leased import UNDERWAY, Failure
from app.records.sessions import SessionEvent
from app.storage.leased import LeasedRepository
from app.storage.paging import Page, PageRequest
from app.storage.repositories.events import note_events
from app.storage.rows.banks import CalibrationRow
from app.storage.rows.base import Json
from app.storage.scoping import given

_PART = aliased(CalibrationRow)
_LIVE_PARTS = (
    select(_PART.id)
    .where(_PART.parent_id == CalibrationRow.id, _PART.status.in_(UNDERWAY))
    .correlate(CalibrationRow)
)


class CalibrationRepository(LeasedRepository[CalibrationRecord]):
    """Queries and changes of calibrations, within one transaction."""

    row = CalibrationRow
    kind = "Calibration"

    ready = (~_LIVE_PARTS.exists(),)

    async def add(
        self,
        calibration_id: str,
        *,
        response_set_id: str,
        settings: Mapping[str, JsonValue],
        part_ids: Sequence[str] = (),
        publication: Mapping[str, JsonValue] | None = None,
    ) -> CalibrationRecord:
        """Store a new calibration, queued, and the parts that it consists of, if any.

        Each part is queued separately; the calibration can be claimed when all are completed.
        `publication` says how to publish it then.
        """
        told = {"settings": dict(settings), "status": "queued"}
        shared = {"response_set_id": response_set_id, **told}
        n_parts = len(part_ids) or None
        row = CalibrationRow(id=calibration_id, n_parts=n_parts, publication=publication, **shared)
        self._db.add(row)
        await self._db.flush()
        self._db.add_all(
            CalibrationRow(id=part_id, parent_id=calibration_id, part=part, **shared)
            for part, part_id in enumerate(part_ids)
        )
        await self._db.flush()
        await self._note(calibration_id, "queued", {"n_parts": n_parts})
        return _read(row)

    @override
    async def get(
        self, calibration_id: str, *, for_update: bool = False, or_part: bool = False
    ) -> CalibrationRecord:
        """One calibration, or optionally a part of one; `for_update` locks its row."""
        query = select(CalibrationRow).where(CalibrationRow.id == calibration_id)
        row = await self._one(query, "calibration", calibration_id, for_update=for_update)
        if row.parent_id is not None and not or_part:
            raise NotFoundError("calibration", calibration_id)
        return _read(row)

    async def parts(self, calibration_id: str) -> list[CalibrationRecord]:
        """The parts of a calibration that is not completed yet, in order."""
        query = select(CalibrationRow).where(CalibrationRow.parent_id == calibration_id)
        query = query.order_by(CalibrationRow.part).execution_options(populate_existing=True)
        return [_read(row) for row in (await self._db.execute(query)).scalars()]

    async def list_page(
        self, request: PageRequest, *, status: str | None = None, response_set_id: str | None = None
    ) -> Page[CalibrationRecord]:
        """One page of calibrations that pass all given filters."""
        query = select(CalibrationRow).where(
            CalibrationRow.parent_id.is_(None),
            *given(
                (CalibrationRow.status, status), (CalibrationRow.response_set_id, response_set_id)
            ),
        )
        return await self._page(query, request, CalibrationRow.id, "calibration", _read)

    async def using(self, response_set_id: str) -> str | None:
        """Id of any calibration of a response set; None if there is none."""
        query = select(CalibrationRow.id).where(CalibrationRow.response_set_id == response_set_id)
        return (await self._db.scalars(query.limit(1))).one_or_none()

    async def fitted(self, calibration_id: str) -> FittedItems | None:
        """The items of a completed calibration; None if it is not completed."""
        query = select(
            CalibrationRow.item_keys, CalibrationRow.item_columns, CalibrationRow.item_values
        )
        row = (await self._db.execute(query.where(CalibrationRow.id == calibration_id))).one()
        if row.item_keys is None:
            return None
        names = row.item_columns or COLUMNS
        table = np.frombuffer(row.item_values, "<f8").reshape(len(names), -1)
        return FittedItems(tuple(row.item_keys), dict(zip(names, table, strict=True)))

    async def examinees(self, calibration_id: str) -> FittedExaminees | None:
        """The abilities of a completed calibration's examinees; None if it stored none."""
        query = select(CalibrationRow.examinee_names, CalibrationRow.examinee_values)
        row = (await self._db.execute(query.where(CalibrationRow.id == calibration_id))).one()
        if row.examinee_names is None:
            return None
        table = np.frombuffer(row.examinee_values, "<f8").reshape(3, -1)
        return FittedExaminees(tuple(row.examinee_names), *table)

    @override
    async def claim(
        self, calibration_id: str, *, worker_id: str, lease: timedelta
    ) -> CalibrationRecord | None:
        """Claim this calibration or part for a worker.

        None if it has ended, another worker has it, or its parts are not completed.
        """
        query = select(CalibrationRow.parent_id).where(CalibrationRow.id == calibration_id)
        parent_id = (await self._db.scalars(query)).one_or_none()
        await self._hold(parent_id)
        if await self._take(calibration_id, worker_id=worker_id, lease=lease) is None:
            return None
        record = await self.get(calibration_id, or_part=True)
        attempt = {"attempt": record.lease_epoch}
        if parent_id is None:
            await self._note(calibration_id, "started", attempt)
        else:
            begun = func.coalesce(CalibrationRow.started_at, func.now())
            await self._set(CalibrationRow, parent_id, status="running", started_at=begun)
            await self._note(parent_id, "part_started", {"part": record.part, **attempt})
        return record

    async def report(self, claimed: CalibrationRecord, progress: Mapping[str, JsonValue]) -> None:
        """Write the progress of a calibration or of a part."""
        await self._write(claimed.id, claimed.lease_epoch, progress=dict(progress), lapses=0)
        if claimed.parent_id is None:
            await self._note(claimed.id, "progress", progress)

    async def complete(
        self,
        claimed: CalibrationRecord,
        result: Mapping[str, JsonValue],
        items: FittedItems,
        examinees: FittedExaminees | None = None,
    ) -> str | None:
        """Write the whole result at once.

        Returns:
            Id of the calibration that can be claimed now because this was its last part.
        """
        parent_id = claimed.parent_id
        await self._hold(parent_id)
        table = np.array(list(items.columns.values()))
        abilities: dict[str, list[str] | bytes] = {}
        if examinees is not None:
            columns = np.array([examinees.theta, examinees.se, examinees.score])
            abilities["examinee_names"] = list(examinees.names)
            abilities["examinee_values"] = columns.astype("<f8").tobytes()
        await self._finish(
            claimed.id,
            claimed.lease_epoch,
            "completed",
            result=dict(result),
            item_keys=list(items.keys),
            item_columns=list(items.columns),
            item_values=table.astype("<f8").tobytes(),
            **abilities,
        )
        if parent_id is None:
            if claimed.n_parts:  # the result of the whole contains the results of its parts
                await self._db.execute(
                    delete(CalibrationRow).where(CalibrationRow.parent_id == claimed.id)
                )
            await self._note(claimed.id, "completed", {"converged": result["converged"]})
            return None
        parts = await self.parts(parent_id)
        done = sum(part.status == "completed" for part in parts)
        progress: Json = {"phase": "calibrating", "n_parts": len(parts), "parts_done": done}
        await self._set(CalibrationRow, parent_id, progress=progress)
        await self._note(parent_id, "progress", progress)
        return parent_id if done == len(parts) else None

    async def fail(self, claimed: CalibrationRecord, failure: Failure) -> None:
        """Write the cause of a failure; a failed part fails its calibration and all other parts."""
        parent_id = claimed.parent_id
        await self._hold(parent_id)
        await self._finish(claimed.id, claimed.lease_epoch, "failed", failure=dict(failure))
        if parent_id is not None:
            await self._end(CalibrationRow.id == parent_id, "failed", failure=dict(failure))
            await self._end(CalibrationRow.parent_id == parent_id, "cancelled")
        await self._note(parent_id or claimed.id, "failed", failure)

    async def cancel(self, calibration_id: str) -> CalibrationRecord:
        """Cancel a calibration from outside; workers that run it or its parts lose their leases.

        Raises:
            InvalidStateError: It has ended.
        """
        record = await self.get(calibration_id, for_update=True)
        self._require_underway(record)
        await self._end(CalibrationRow.id == calibration_id, "cancelled")
        await self._end(CalibrationRow.parent_id == calibration_id, "cancelled")
        await self._note(calibration_id, "cancelled", {})
        return await self.get(calibration_id)

    async def note_published(
        self, calibration_id: str, *, bank_id: str, bank_version_id: str
    ) -> None:
        """Note the version as which a calibration was published."""
        published = {"bank_id": bank_id, "bank_version_id": bank_version_id}
        await self._set(CalibrationRow, calibration_id, **published, publication_failure=null())

    async def note_unpublished(self, calibration_id: str, failure: Failure) -> None:
        """Note why a completed calibration was not published as a version."""
        await self._set(CalibrationRow, calibration_id, publication_failure=dict(failure))

    async def delete(self, calibration_id: str) -> None:
        """Remove a calibration that has ended and was not published as a bank version.

        Raises:
            InvalidStateError: It has not ended, or a bank version was made from it.
        """
        record = await self.get(calibration_id, for_update=True)
        self._require_ended(record)
        if record.bank_version_id is not None:
            raise InvalidStateError(
                f"Calibration {calibration_id} cannot be deleted: bank version "
                f"{record.bank_version_id} was made from it."
            )
        await self._db.execute(delete(CalibrationRow).where(CalibrationRow.id == calibration_id))

    async def _end(self, which: ColumnElement[bool], status: str, **values: Any) -> None:
        """End the matching calibrations that have not ended, and take away their leases."""
        await self._db.execute(
            update(CalibrationRow)
            .where(which, CalibrationRow.status.in_(UNDERWAY))
            .values(self._taken_away() | {"status": status, **values})
        )

    async def _hold(self, parent_id: str | None) -> None:
        """Lock a part's calibration before the part itself, to prevent deadlocks."""
        if parent_id is not None:
            row = select(CalibrationRow.id).where(CalibrationRow.id == parent_id)
            await self._db.execute(row.with_for_update())

    async def _note(self, calibration_id: str, what: str, data: Mapping[str, object]) -> None:
        event = SessionEvent(f"calibration.{what}", dict(data))
        await note_events(self._db, "calibration", calibration_id, [event])


def _read(row: CalibrationRow) -> CalibrationRecord:
    return convert(CalibrationRecord, row)
