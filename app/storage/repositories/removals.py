"""Permanent removal: what is past its retention, unused banks and endpoints, whole projects.

A deleted bank or endpoint is only hidden while sessions use it. Its rows are removed, with all
texts and secrets, together with the last of these sessions.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.sql.elements import TextClause

from app.records.endpoints import SELF_REPORTED
from app.storage.scoping import Repository, of_opened

#: Largest number of user ids listed in a message; of further users only the number is given.
_NAMED = 10

_ON_BANK = """
    SELECT '{noun}', o.id, o.project_id FROM {table} o JOIN bank_versions v
        ON v.id = o.bank_version_id WHERE v.bank_id = :id
"""


def _statement(sql: str, what: str) -> TextClause:
    return text(sql).execution_options(**of_opened(what))


_USERS_OF_BANK = _statement(
    f"{_ON_BANK.format(noun='session', table='sessions')} UNION ALL "
    f"{_ON_BANK.format(noun='ranking', table='rankings')} ORDER BY 1 DESC, 2",
    "the bank",
)
_MARKS_FOR = """
    jsonb_path_exists(s.provenance, '$.scorer_endpoints.*.id ? (@ == $wanted)',
        jsonb_build_object('wanted', e.id))
"""
_USERS_OF_ENDPOINT = _statement(
    f"""
    SELECT 'session', s.id, s.project_id FROM sessions s JOIN endpoints e ON e.id = :id
        WHERE s.endpoint_id = e.id OR {_MARKS_FOR} ORDER BY 2
    """,  # noqa: S608 (a constant above)
    "the endpoint",
)

_UNUSED_BANKS = _statement(
    """
    SELECT b.id FROM banks b WHERE b.archived_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM bank_versions v WHERE v.bank_id = b.id AND (
            EXISTS (SELECT FROM sessions s WHERE s.bank_version_id = v.id)
            OR EXISTS (SELECT FROM rankings r WHERE r.bank_version_id = v.id)))
    ORDER BY b.id FOR UPDATE OF b
    """,
    "what nobody uses any more",
)
#: Endpoints that lists do not show: deleted, unnamed (they came with a session), or by hand.
_HIDDEN = f"(e.archived_at IS NOT NULL OR e.name IS NULL OR e.kind = '{SELF_REPORTED}')"
_NOT_ASKED = "NOT EXISTS (SELECT FROM sessions s WHERE s.endpoint_id = e.id)"
_MAYBE_UNUSED, _MAYBE_UNUSED_OF_THESE = (
    _statement(
        f"SELECT e.id FROM endpoints e WHERE {_HIDDEN} AND {which} ORDER BY e.id FOR UPDATE OF e",  # noqa: S608 (constants)
        "what nobody uses any more",
    )
    for which in (_NOT_ASKED, "e.id = ANY(:ids)")
)
#: Runs after the endpoints are locked, so that no session is added or removed concurrently.
_DROP_UNUSED = _statement(
    f"""
    WITH hidden AS MATERIALIZED (
        SELECT e.id FROM endpoints e WHERE e.id = ANY(:ids) AND {_NOT_ASKED}
    )
    DELETE FROM endpoints e USING hidden WHERE e.id = hidden.id
        AND NOT EXISTS (SELECT FROM sessions s WHERE {_MARKS_FOR})
    """,  # noqa: S608 (constants)
    "what nobody uses any more",
)
_ENDPOINTS_OF = _statement(
    """
    SELECT endpoint_id FROM sessions WHERE (id = :id OR ranking_id = :id)
        AND endpoint_id IS NOT NULL
    UNION SELECT jsonb_path_query(provenance, '$.scorer_endpoints.*.id') #>> '{}'
        FROM sessions WHERE id = :id OR ranking_id = :id
    """,
    "the session or ranking, which is opened next",
)
#: A calibration published in several banks refers to the latest version; another one replaces it.
_UNPUBLISH = _statement(
    """
    UPDATE calibrations c SET (bank_id, bank_version_id) = (
        SELECT v.bank_id, v.id FROM bank_versions v
        WHERE v.extras #>> '{calibration,id}' = c.id AND v.bank_id <> ALL(:ids)
        ORDER BY v.id DESC LIMIT 1)
    WHERE c.bank_id = ANY(:ids)
    """,
    "what nobody uses any more",
)
_DROP_BANKS = _statement("DELETE FROM banks WHERE id = ANY(:ids)", "what nobody uses any more")
_DROP_CALIBRATIONS = _statement(
    """
    DELETE FROM calibrations c USING bank_versions own
    WHERE own.bank_id = :id AND own.extras #>> '{calibration,id}' = c.id
        AND c.bank_id = :id  -- looked at again should it be published elsewhere meanwhile
        AND NOT EXISTS (
        SELECT FROM bank_versions v
        WHERE v.extras #>> '{calibration,id}' = c.id AND v.bank_id <> :id)
    """,
    "the bank",
)
_DROP_OF_ANSWERS = """
    DELETE FROM idempotency_keys k USING (
        SELECT principal, key FROM idempotency_keys WHERE {}
        ORDER BY principal, key FOR UPDATE
    ) gone WHERE (k.principal, k.key) = (gone.principal, gone.key)
"""
_DROP_ANSWERS = _statement(
    _DROP_OF_ANSWERS.format(
        """
        EXISTS (SELECT FROM unnest(CAST(:ids AS text[])) told
            WHERE strpos(response_headers ->> 'location', told) > 0)
        """
    ),
    "the answer that told of it",
)

_UNDERWAY = _statement(
    """
    SELECT noun, id, :id FROM (
        SELECT 'session' AS noun, id FROM sessions WHERE project_id = :id AND finished_at IS NULL
        UNION ALL SELECT 'ranking', id FROM rankings WHERE project_id = :id AND finished_at IS NULL
        UNION ALL SELECT 'calibration', id FROM calibrations
            WHERE project_id = :id AND finished_at IS NULL AND parent_id IS NULL
        UNION ALL SELECT 'installation', id FROM installations
            WHERE project_id = :id AND finished_at IS NULL
    ) o ORDER BY 1, 2
    """,
    "the project",
)
_FROM_ELSEWHERE = _statement(
    """
    SELECT 'session', s.id, s.project_id FROM sessions s
        JOIN bank_versions v ON v.id = s.bank_version_id JOIN banks b ON b.id = v.bank_id
        WHERE b.project_id = :id AND s.project_id <> :id
    """,
    "the project",
)
#: Removal of a project's rows, in an order in which no foreign key refers to a removed row.
_OF_PROJECT = [
    # The same lock that counting of spending takes.
    _statement("SELECT pg_advisory_xact_lock(hashtextextended(:id, 0))", "the project"),
    _statement("DELETE FROM reservations WHERE project_id = :id", "the project"),
    _statement(
        "DELETE FROM spend WHERE owner_id = :id "
        "OR owner_id IN (SELECT id FROM endpoints WHERE project_id = :id) "
        "OR owner_id IN (SELECT id FROM api_keys WHERE project_id = :id)",
        "the project",
    ),
    # In the order in which a rotation of the secret key locks them.
    _statement(
        "SELECT id FROM endpoints WHERE project_id = :id ORDER BY id FOR UPDATE", "the project"
    ),
    *(
        _statement(f"DELETE FROM {name} WHERE project_id = :id", "the project")  # noqa: S608 (below)
        for name in (
            *("sessions", "rankings", "calibrations", "response_sets", "banks", "endpoints"),
            *("installations", "webhooks"),
        )
    ),
    # Stored answers to calls in the project, made with its own keys or with keys of all projects.
    _statement(_DROP_OF_ANSWERS.format("split_part(principal, '@', 2) = :id"), "the project"),
]

#: A project is locked before its resources, as by all transactions that lock several rows.
_OLD = """
    JOIN (SELECT id, retention FROM projects FOR KEY SHARE) p ON p.id = o.project_id
        AND o.finished_at < now() - (p.retention ->> '{}')::int * interval '1 day'
"""
#: Run in this order. Texts are removed together with what quotes them. The last event stays, which
#: says that no others follow. Sessions from which others were made stay as long as those.
_PAST_RETENTION = [
    _statement(statement, "all that is too old")
    for statement in (
        """
        WITH gone AS (
            UPDATE administrations a SET answer_text = NULL, raw_text = NULL, reasoning = NULL,
                extracted = NULL, reason = NULL,
                marking = CASE WHEN a.marking ? 'judgements' THEN
                    jsonb_set(a.marking, '{{judgements}}', (
                        SELECT jsonb_agg(j || '{{"reason": null}}')
                        FROM jsonb_array_elements(a.marking -> 'judgements') j
                    )) ELSE a.marking END,
                method = CASE WHEN a.method ? 'repeats' THEN
                    jsonb_set(a.method, '{{repeats}}', (
                        SELECT jsonb_agg(
                            r - '{{answer_text,raw_text,reasoning,extracted,reason}}'::text[]
                        )
                        FROM jsonb_array_elements(a.method -> 'repeats') r
                    )) ELSE a.method END
            FROM sessions o {texts} WHERE a.session_id = o.id
                AND (num_nonnulls(
                        a.answer_text, a.raw_text, a.reasoning, a.extracted, a.reason) > 0
                    OR a.marking @? '$.judgements[*] ? (@.reason != null)'
                    OR a.method @? '$.repeats[*] ? (exists (@.extracted))')
            RETURNING a.session_id
        )
        UPDATE session_events e SET data = e.data || '{{"extracted": null, "reason": null}}'
        WHERE e.type = 'response.received' AND e.session_id IN (SELECT session_id FROM gone)
        """,
        """
        DELETE FROM kept_answers a USING projects p WHERE p.id = a.project_id
            AND a.created_at < now() - (p.retention ->> 'texts_days')::int * interval '1 day'
        """,
        "DELETE FROM session_events e USING sessions o {events} "
        "WHERE e.session_id = o.id AND e.seq < o.event_seq",
        "DELETE FROM ranking_events e USING rankings o {events} "
        "WHERE e.ranking_id = o.id AND e.seq < o.event_seq",
        "DELETE FROM calibration_events e USING calibrations o {events} "
        "WHERE e.calibration_id = o.id AND e.seq < o.event_seq",
        """
        DELETE FROM sessions s USING sessions o {sessions} WHERE s.id = o.id
            AND o.ranking_id IS NULL AND NOT EXISTS (
                SELECT FROM sessions made WHERE made.parent_id = o.id
            )
        """,
        """
        DELETE FROM sessions s USING rankings o {sessions} WHERE s.ranking_id = o.id
            AND NOT EXISTS (
                SELECT FROM sessions member JOIN sessions made ON made.parent_id = member.id
                WHERE member.ranking_id = o.id
            )
        """,
        """
        DELETE FROM rankings r USING rankings o {sessions} WHERE r.id = o.id
            AND NOT EXISTS (SELECT FROM sessions s WHERE s.ranking_id = o.id)
        """,
    )
    for statement in [
        statement.format(
            **{what: _OLD.format(f"{what}_days") for what in ("texts", "events", "sessions")}
        )
    ]
]


class RemovalRepository(Repository):
    """Removes rows permanently, within one transaction."""

    async def users_of_bank(self, bank_id: str, project_id: str) -> str:
        """Sessions and rankings that use a bank, in words; empty if there are none."""
        return await self._listed(_USERS_OF_BANK, bank_id, project_id)

    async def users_of_endpoint(self, endpoint_id: str, project_id: str) -> str:
        """Sessions that asked an endpoint or were scored by it, in words."""
        return await self._listed(_USERS_OF_ENDPOINT, endpoint_id, project_id)

    async def keeping_project(self, project_id: str) -> str:
        """A project's unfinished work, and other projects' sessions on its banks, in words."""
        underway = await self._listed(_UNDERWAY, project_id, project_id)
        elsewhere = await self._listed(_FROM_ELSEWHERE, project_id, project_id)
        return ", ".join(filter(None, (underway, elsewhere)))

    async def published_from(self, bank_id: str) -> None:
        """Remove the calibrations that were published as versions of only this bank."""
        await self._db.execute(_DROP_CALIBRATIONS, {"id": bank_id})

    async def endpoints_of(self, resource_id: str) -> list[str]:
        """Ids of endpoints that a session or ranking asked, or that scored its answers."""
        return list((await self._db.scalars(_ENDPOINTS_OF, {"id": resource_id})).all())

    async def unused(
        self, *gone: str, endpoints: Sequence[str] | None = None, banks: bool = True
    ) -> None:
        """Remove unused banks and endpoints that were deleted, or that came with a session.

        Calibrations published as versions of only such a bank count as unpublished again.

        Args:
            gone: Ids of resources just removed; stored answers to the calls that created them are
                removed as well.
            endpoints: Ids of endpoints that may have become unused; None: any.
            banks: Whether to remove banks. False after locking an endpoint: banks are locked first.
        """
        found = (await self._db.scalars(_UNUSED_BANKS)).all() if banks else []
        if found:
            await self._db.execute(_UNPUBLISH, {"ids": list(found)})
            await self._db.execute(_DROP_BANKS, {"ids": list(found)})
        hidden: Sequence[str] = ()
        if endpoints is None:
            hidden = (await self._db.scalars(_MAYBE_UNUSED)).all()
        elif endpoints:
            given = {"ids": list(endpoints)}
            hidden = (await self._db.scalars(_MAYBE_UNUSED_OF_THESE, given)).all()
        if hidden:
            await self._db.execute(_DROP_UNUSED, {"ids": list(hidden)})
        ids = [*gone, *found]
        if ids:
            await self._db.execute(_DROP_ANSWERS, {"ids": ids})

    async def whole_project(self, project_id: str) -> None:
        """Remove everything that belongs to a project, except its row and its keys."""
        for statement in _OF_PROJECT:
            await self._db.execute(statement, {"id": project_id})

    async def past_retention(self) -> None:
        """Remove, in all projects, what is older than the project's retention time."""
        for statement in _PAST_RETENTION:
            await self._db.execute(statement)

    async def _listed(self, query: TextClause, resource_id: str, project_id: str) -> str:
        rows = (await self._db.execute(query, {"id": resource_id})).all()
        parts = []
        for noun in dict.fromkeys(row[0] for row in rows):
            own = [row[1] for row in rows if row[0] == noun and row[2] == project_id]
            if own:
                parts.append(f"{many(len(own), noun)} ({_list(own)})")
            others = sum(row[0] == noun and row[2] != project_id for row in rows)
            if others:
                parts.append(f"{many(others, noun)} of other projects")
        return ", ".join(parts)


def many(count: int, noun: str) -> str:
    """A number of things, in the singular or plural."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _list(ids: Sequence[Any]) -> str:
    more = ", ..." if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more
