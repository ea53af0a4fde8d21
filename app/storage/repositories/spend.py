"""Spending of calls from daily budgets. Functions of the database make all decisions.

`reserve_spend` locks the project from reading what is spent and reserved until its own reservation
is committed. So calls of any number of processes cannot exceed a budget together.
"""

from collections.abc import Mapping
from datetime import timedelta

from sqlalchemy import delete, func, text

from app.records.fields import shallow
from app.records.projects import DaySpend, Refusal, Taken
from app.storage.repositories.session_statements import as_json
from app.storage.rows.projects import SpendRow
from app.storage.scoping import Repository, of_opened

#: How long days are kept, and reservations whose calls never ended; these count as spent meanwhile.
_KEEP, _KEEP_LAPSED = timedelta(days=100), timedelta(days=1)
_ENDPOINT = of_opened("the endpoint that is called, and its project")

_RESERVE = text("""
    SELECT budget_of, unit, day, cap, spent FROM reserve_spend(
        :id, :project_id, :endpoint_id, CAST(:usd AS float8), CAST(:tokens AS bigint),
        CAST(:lapse AS interval), CAST(:used AS jsonb), :key_id
    )
""").execution_options(**_ENDPOINT)
_SETTLE = text("SELECT settle_spend(:project, CAST(:used AS jsonb))").execution_options(**_ENDPOINT)
_TODAY = text("""
    WITH today AS (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day)
    SELECT today.day, coalesce(s.usd, 0) + h.usd_lost AS usd, h.usd AS usd_reserved,
        coalesce(s.tokens, 0) + h.tokens_lost AS tokens, h.tokens AS tokens_reserved
    FROM today LEFT JOIN spend s ON s.owner_id = :id AND s.day = today.day
    CROSS JOIN LATERAL held_spend(:id, today.day, clock_timestamp()) h
""").execution_options(**of_opened("the project, endpoint or key"))

_SETTLE_LOST = text("""
    SELECT settle_spend(lost.project_id, lost.used) FROM (
        SELECT project_id, jsonb_agg(jsonb_build_object('id', id)) AS used FROM reservations
        WHERE lapses_at < now() - CAST(:kept AS interval) GROUP BY project_id ORDER BY project_id
    ) AS lost
""").execution_options(**of_opened("all that is too old"))


class SpendRepository(Repository):
    """Queries and changes of spending; each is a single statement."""

    async def reserve(
        self,
        reservation_id: str,
        most: Taken,
        *,
        project_id: str,
        endpoint_id: str,
        key_id: str | None,
        lapse: timedelta,
        used: Mapping[str, Taken],
    ) -> Refusal | None:
        """Settle ended calls of a project, and reserve the most that a new call may take.

        Reserving or settling the same reservation twice has no further effect. The budget of the
        key counts if it is a key of the project. After the time `lapse` the call must be over, and
        its reservation counts as spent. `used` says what ended calls took, by the ids of their
        reservations.

        Returns:
            Why the call is refused; None if it may be made.
        """
        whose = {"project_id": project_id, "endpoint_id": endpoint_id, "key_id": key_id}
        told = {"id": reservation_id, **whose, **shallow(most), "lapse": lapse, "used": _json(used)}
        found = await self._db.execute(_RESERVE, told)
        row = found.mappings().one_or_none()
        return None if row is None else Refusal(**row)

    async def settle(self, project_id: str, used: Mapping[str, Taken]) -> None:
        """Count what calls of a project took, by the ids of their reservations."""
        await self._db.execute(_SETTLE, {"project": project_id, "used": _json(used)})

    async def today(self, owner_id: str) -> DaySpend:
        """Today's spending and reservations of a project, an endpoint or a key."""
        found = await self._db.execute(_TODAY, {"id": owner_id})
        return DaySpend(**found.mappings().one())

    async def purge(self) -> None:
        """Delete old days; reservations of calls that never ended become permanently spent."""
        await self._db.execute(delete(SpendRow).where(SpendRow.day < func.now() - _KEEP))
        await self._db.execute(_SETTLE_LOST, {"kept": _KEEP_LAPSED})


def _json(used: Mapping[str, Taken]) -> str:
    return as_json([{"id": id_, **shallow(taken)} for id_, taken in used.items()])
