"""Ended sessions as a source of recorded answers, and which of them a set has collected."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, exists, false, func, insert, literal, select, text

from app.records.banks import PRETEST
from app.records.leased import ENDED
from app.records.response_sets import SIMULATED, EndedSession, GivenAnswer, Source, examinee_of
from app.storage.rows.banks import BankVersionRow, ItemRow, VersionItemRow
from app.storage.rows.calibrations import CollectedSessionRow
from app.storage.rows.endpoints import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow
from app.storage.scoping import Repository, of_opened

_BATCH = 2000
_WHO = [
    SessionRow.provenance[name].label(name)
    for name in ("asked", "endpoint", "prompt_template_hash")
]

#: Excludes cached answers, which were given in another session and count there.
_OWN = ~func.coalesce(AdministrationRow.method.has_key("cached"), false())
#: Relations of sessions that repeat the answers of others.
_REPEATING = ("replay", "rescore")


class CollectedRepository(Repository):
    """Queries and changes of sessions as sources of answers, within one transaction."""

    async def waiting(self, set_id: str, source: Source, limit: int) -> list[EndedSession]:
        """Sessions that the set has not collected yet, the oldest first."""
        query = (
            _of(source, [SessionRow.id, *_WHO])
            .where(*_wanted(source), ~_taken(set_id))
            .order_by(SessionRow.id)
            .limit(limit)
        )
        rows = (await self._db.execute(query)).mappings().all()
        roots = await self._roots([row["id"] for row in rows])
        return [
            EndedSession(row["id"], roots[row["id"]], examinee_of(row), row["asked"] or {})
            for row in rows
        ]

    async def n_examinees(self, source: Source) -> int:
        """Number of examinees over all sessions that can be collected."""
        has_answer = exists(literal(1)).where(
            AdministrationRow.session_id == SessionRow.id,
            AdministrationRow.score.is_not(None),
            _OWN,
        )
        query = _of(source, [SessionRow.id, *_WHO]).where(
            *_wanted(source), SessionRow.parent_id.is_(None), has_answer
        )
        rows = await self._db.stream(query.execution_options(yield_per=_BATCH))
        return len({examinee_of(row) or row["id"] async for row in rows.mappings()})

    async def latest(self, source: Source, limit: int) -> list[str]:
        """Sessions with answers of their own, the latest first."""
        query = _of(source, [SessionRow.id]).where(*_wanted(source))
        return list(await self._db.scalars(query.order_by(SessionRow.id.desc()).limit(limit)))

    async def left_out(self, set_id: str, source: Source) -> dict[str, int]:
        """Number of sessions that are not collected, by reason."""
        ended = SessionRow.status.in_(ENDED)
        is_replay = func.coalesce(SessionRow.relation, "").in_(_REPEATING)
        is_simulated = func.coalesce(EndpointRow.kind, "") == SIMULATED
        reasons: dict[str, ColumnElement[bool]] = {
            "taken_before": _taken(set_id),
            "not_ended": ~ended,
            "replay": ended & is_replay,
        }
        if not source.simulated:
            reasons["simulated"] = ended & ~is_replay & is_simulated
        counts = [
            func.count().filter(condition).label(reason) for reason, condition in reasons.items()
        ]
        row = (await self._db.execute(_of(source, counts))).mappings().one()
        return {reason: count for reason, count in row.items() if count}

    async def answers(self, session_ids: Sequence[str]) -> AsyncIterator[GivenAnswer]:
        """Closed items of some sessions, in order of asking."""
        query = (
            select(
                AdministrationRow.session_id,
                AdministrationRow.step,
                ItemRow.key,
                AdministrationRow.outcome,
                AdministrationRow.score,
                AdministrationRow.method["repeats"].label("repeats"),
                (VersionItemRow.status == PRETEST).label("is_pretest"),
            )
            .join(SessionRow, SessionRow.id == AdministrationRow.session_id)
            .join(
                VersionItemRow,
                (VersionItemRow.version_id == SessionRow.bank_version_id)
                & (VersionItemRow.position == AdministrationRow.position),
            )
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(
                AdministrationRow.session_id == func.any(list(session_ids)),
                AdministrationRow.outcome.is_not(None),
                _OWN,
            )
            .order_by(AdministrationRow.session_id, AdministrationRow.step)
            .execution_options(yield_per=_BATCH)
        )
        async for row in await self._db.stream(query):
            yield GivenAnswer(
                row.session_id,
                row.step,
                row.key,
                row.outcome or "",
                _first(row.repeats, row.score),
                row.is_pretest,
            )

    async def mark(self, set_id: str, session_ids: Sequence[str]) -> None:
        """Note that the set has collected these sessions."""
        rows = [{"set_id": set_id, "session_id": session_id} for session_id in session_ids]
        await self._db.execute(insert(CollectedSessionRow), rows)

    async def _roots(self, session_ids: Sequence[str]) -> dict[str, str]:
        query = text("""
            WITH RECURSIVE line AS (
                SELECT id AS session_id, id AS root_id, parent_id FROM sessions WHERE id = ANY(:ids)
                UNION ALL
                SELECT line.session_id, above.id, above.parent_id
                FROM line JOIN sessions AS above ON above.id = line.parent_id
            )
            SELECT session_id, root_id FROM line WHERE parent_id IS NULL
        """).execution_options(**of_opened("the sessions"))
        rows = await self._db.execute(query, {"ids": list(session_ids)})
        return {row.session_id: row.root_id for row in rows}


def _first(
    repeats: Sequence[Mapping[str, float | None]] | None, score: float | None
) -> float | None:
    """The score of one answer; for an item asked repeatedly, the first score that exists."""
    if not repeats:
        return score
    return next((each["score"] for each in repeats if each["score"] is not None), None)


def _of(source: Source, columns: Sequence[ColumnElement[Any] | Any]) -> Select[Any]:
    query = (
        select(*columns)
        .select_from(SessionRow)
        .join(BankVersionRow, BankVersionRow.id == SessionRow.bank_version_id)
        .outerjoin(EndpointRow, EndpointRow.id == SessionRow.endpoint_id)
        .where(BankVersionRow.bank_id == source.bank_id)
    )
    if source.version_id is not None:
        query = query.where(SessionRow.bank_version_id == source.version_id)
    if source.since is not None:
        query = query.where(SessionRow.finished_at >= source.since)
    return query


def _wanted(source: Source) -> list[ColumnElement[bool]]:
    """Conditions for ended sessions with answers of their own."""
    conditions: list[ColumnElement[bool]] = [
        SessionRow.status.in_(ENDED),
        func.coalesce(SessionRow.relation, "").not_in(_REPEATING),
    ]
    if not source.simulated:
        conditions.append(func.coalesce(EndpointRow.kind, "") != SIMULATED)
    return conditions


def _taken(set_id: str) -> ColumnElement[bool]:
    return exists(literal(1)).where(
        CollectedSessionRow.set_id == set_id, CollectedSessionRow.session_id == SessionRow.id
    )
