"""First answers to creating calls, kept for a day, so that a repeated call gets the same."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    ScalarSelect,
    delete,
    func,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from app.acting import present
from app.errors import (
    IdempotencyAnswerLostError,
    IdempotencyInFlightError,
    IdempotencyMismatchError,
)
from app.storage.identifiers import new_id
from app.storage.rows.projects import AuditRow, IdempotencyRow
from app.storage.scoping import Repository

#: How long an answer is kept.
KEEP = timedelta(hours=24)
#: A call without a sign of life for this long was lost with its process; a repeat takes it over,
#: unless the call was carried out.
ABANDONED_AFTER = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """The answer to the first call."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class IdempotencyRepository(Repository):
    """One row for each (principal, Idempotency-Key).

    A call consists of `begin` in its own transaction, the work, and `finish`, or `forget` if the
    work failed and may be repeated. A process may die before the end, or not learn whether its
    commit succeeded. Then the audit trail, which is written with the work, tells what happened.
    """

    async def begin(self, principal: str, key: str, request_hash: str) -> StoredResponse | None:
        """Reserve the key for this call.

        Returns:
            None if the call shall be carried out; the first call's answer if it was already.

        Raises:
            IdempotencyMismatchError: The key was used with another request.
            IdempotencyInFlightError: The first call has no answer yet.
            IdempotencyAnswerLostError: The call was carried out, but its answer was lost.
        """
        audit_id = new_id("aud")
        fresh = {
            "request_hash": request_hash,
            "audit_id": audit_id,
            "created_at": func.clock_timestamp(),
        }
        inserted = await self._db.scalar(
            insert(IdempotencyRow)
            .values(principal=principal, key=key, **fresh)
            .on_conflict_do_update(
                index_elements=["principal", "key"],
                set_=fresh
                | {"response_status": None, "response_headers": None, "response_body": None},
                where=_expired() | (_abandoned(request_hash) & _made().is_(None)),
            )
            .returning(IdempotencyRow.key)
        )
        if inserted is not None:
            if (what := present().audit_entry) is not None:
                what.audit_id = audit_id
            return None
        row = await self._db.scalar(select(IdempotencyRow).filter_by(principal=principal, key=key))
        if row is None:  # deleted between the two statements, as the other call has just failed
            raise IdempotencyInFlightError(
                f"The first call with Idempotency-Key {key!r} has just failed: repeat the call."
            )
        if row.request_hash != request_hash:
            raise IdempotencyMismatchError(
                f"Idempotency-Key {key!r} was used with another request; take a new key."
            )
        if row.response_status is None:
            made = await self._db.scalar(
                select(_made())
                .select_from(IdempotencyRow)
                .where(_abandoned(request_hash))
                .filter_by(principal=principal, key=key)
            )
            if made is not None:
                raise IdempotencyAnswerLostError(
                    f"The first call with Idempotency-Key {key!r} was carried out, and its answer "
                    f"was lost with its server. Look at what it made or changed "
                    f"({', '.join(made) or 'nothing with an id'}), or repeat it with a new key."
                )
            raise IdempotencyInFlightError(
                f"The first call with Idempotency-Key {key!r} is still being worked on."
            )
        return StoredResponse(
            status=row.response_status,
            headers=row.response_headers or {},
            body=row.response_body or b"",
        )

    async def count_from_now(self, principal: str, key: str) -> None:
        """Set the start of a call to now if it lies in the future, because the clock was set back.

        Otherwise the key of a lost call would stay in use until that time is reached again.
        """
        lies_ahead = IdempotencyRow.created_at > func.clock_timestamp()
        await self._write(principal, key, lies_ahead, created_at=func.clock_timestamp())

    async def keep_alive(self, principal: str, key: str) -> None:
        """Note that the call is still running, so that no repeat takes it over."""
        await self._write(principal, key, created_at=func.clock_timestamp())

    async def finish(self, principal: str, key: str, response: StoredResponse) -> None:
        """Store the answer; a first answer stays even if an abandoned call ends later."""
        await self._write(
            principal,
            key,
            response_status=response.status,
            response_headers=dict(response.headers),
            response_body=response.body,
        )

    async def forget(self, principal: str, key: str) -> None:
        """Free the key of a failed call; a stored answer stays.

        A call that failed after it was carried out keeps its key, and its answer is lost.
        """
        mine = {"principal": principal, "key": key, "response_status": None}
        await self._db.execute(delete(IdempotencyRow).filter_by(**mine).where(_made().is_(None)))
        await self._write(principal, key, created_at=func.clock_timestamp() - ABANDONED_AFTER)

    async def _write(
        self, principal: str, key: str, *conditions: ColumnElement[bool], **values: Any
    ) -> None:
        """Change the row of a call without an answer."""
        await self._db.execute(
            update(IdempotencyRow)
            .filter_by(principal=principal, key=key, response_status=None)
            .where(*conditions)
            .values(**values)
        )

    async def purge(self) -> None:
        """Delete answers older than a day."""
        place = tuple_(IdempotencyRow.principal, IdempotencyRow.key)
        expired = (
            select(IdempotencyRow.principal, IdempotencyRow.key)
            .where(_expired())
            .order_by(IdempotencyRow.principal, IdempotencyRow.key)
            .with_for_update()
        )
        await self._db.execute(delete(IdempotencyRow).where(place.in_(expired)))


def _expired() -> ColumnElement[bool]:
    return IdempotencyRow.created_at < func.clock_timestamp() - KEEP


def _abandoned(request_hash: str) -> ColumnElement[bool]:
    return (
        IdempotencyRow.response_status.is_(None)
        & (IdempotencyRow.request_hash == request_hash)
        & (IdempotencyRow.created_at < func.clock_timestamp() - ABANDONED_AFTER)
    )


def _made() -> ScalarSelect[list[str]]:
    """Ids of what the first call made or changed; null if it was not carried out."""
    # Correlated with the row of the enclosing statement, of whatever kind that is.
    first: ColumnElement[str] = literal_column("idempotency_keys.audit_id")
    return select(AuditRow.resources).where(AuditRow.id == first).scalar_subquery()
