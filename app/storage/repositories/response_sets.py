"""Response sets: the answers of examinees to items, one row for each examinee and trial.

Also ended sessions as a source of answers, and which of them a set has collected.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    case,
    delete,
    exists,
    false,
    func,
    insert,
    literal,
    null,
    select,
    text,
    update,
)

from app.items import Outcome
from app.records.banks import PRETEST
from app.records.endpoints import SIMULATED
from app.records.fields import convert, shallow
from app.records.leased import ENDED
from app.records.response_sets import (
    EndedSession,
    GivenAnswer,
    ResponseSet,
    Source,
    StoredSheet,
    TakenTest,
    examinee_of,
)
from app.records.sessions import REPEATING
from app.storage.paging import Page, PageRequest
from app.storage.repositories.projects import require_space
from app.storage.repositories.sessions import SessionRepository
from app.storage.rows.banks import (
    AnswerSheetRow,
    BankVersionRow,
    CollectedSessionRow,
    ItemRow,
    ResponseItemRow,
    ResponseSetRow,
    VersionItemRow,
)
from app.storage.rows.projects import EndpointRow
from app.storage.rows.sessions import AdministrationRow, SessionRow
from app.storage.scoping import Repository, of_opened, require_revision

#: Number of rows in memory at a time, and in one writing statement.
_BATCH = 500
#: Largest number of answers in one writing statement, since they are in memory several times.
_BATCH_ANSWERS = 2**22
_REPLACE = text("""
    UPDATE answer_sheets s SET codes = n.codes, fractions = n.fractions
    FROM unnest(
        CAST(:examinee AS text[]), CAST(:trial AS int[]), CAST(:codes AS bytea[]),
        CAST(:fractions AS bytea[])
    ) AS n(examinee, trial, codes, fractions)
    WHERE s.set_id = :set_id AND s.examinee = n.examinee AND s.trial = n.trial
""").execution_options(**of_opened("the set, which is locked"))


#: Each statement writes a whole batch; a statement per row costs several times as much.
_ADD_ITEMS = text("""
    INSERT INTO response_items (set_id, position, key)
    SELECT :set_id, n.* FROM unnest(CAST(:positions AS int[]), CAST(:keys AS text[])) AS n
""").execution_options(**of_opened("the set, which is locked"))
_ADD_SHEETS = text("""
    INSERT INTO answer_sheets (set_id, examinee, trial, position, codes, fractions)
    SELECT :set_id, n.* FROM unnest(
        CAST(:examinee AS text[]), CAST(:trial AS int[]), CAST(:position AS int[]),
        CAST(:codes AS bytea[]), CAST(:fractions AS bytea[])
    ) AS n
""").execution_options(**of_opened("the set, which is locked"))


class ResponseSetRepository(Repository):
    """Queries and changes of response sets, within one transaction."""

    async def add(self, response_set: ResponseSet) -> None:
        """Store a new set."""
        self._db.add(ResponseSetRow(**_values(response_set)))
        await self._db.flush()

    async def find(self, id_or_name: str, *, for_update: bool = False) -> ResponseSet:
        """A set by its id or its name."""
        name = ResponseSetRow.name
        return _read(await self._named(name, id_or_name, "response set", for_update=for_update))

    async def list_page(self, request: PageRequest) -> Page[ResponseSet]:
        """One page of sets."""
        return await self._page(
            select(ResponseSetRow), request, ResponseSetRow.id, "response set", _read
        )

    async def delete(self, set_id: str, revision: int) -> None:
        """Remove a set with all its answers."""
        found = await self.find(set_id, for_update=True)
        require_revision(f"Response set {found.name!r}", found.revision, revision)
        await self._db.execute(delete(ResponseSetRow).where(ResponseSetRow.id == found.id))

    async def item_keys(self, set_id: str) -> list[str]:
        """Keys of the items in order of position."""
        query = (
            select(ResponseItemRow.key)
            .where(ResponseItemRow.set_id == set_id)
            .order_by(ResponseItemRow.position)
        )
        return list((await self._db.scalars(query)).all())

    async def sheets(
        self, set_id: str, examinees: Sequence[str] | None = None
    ) -> AsyncIterator[StoredSheet]:
        """The sheets of a set, or of some examinees; trials of one examinee are adjacent."""
        query = _sheets(set_id).execution_options(yield_per=_BATCH)
        if examinees is not None:
            query = query.where(AnswerSheetRow.examinee == func.any(list(examinees)))
        async for row in await self._db.stream(query):
            yield StoredSheet(*row)

    async def codes_of(self, set_id: str, key: str) -> tuple[int, dict[int, int]] | None:
        """Position of an item, and its number of answers by code; None if the set lacks the item.

        Sheets that end before the item contain no answer to it and are not counted.
        """
        found = ResponseItemRow
        position = await self._db.scalar(
            select(found.position).where(found.set_id == set_id, found.key == key)
        )
        if position is None:
            return None
        code = _code_at(position).label("code")
        query = select(code, func.count()).where(AnswerSheetRow.set_id == set_id).group_by(code)
        counted = await self._db.execute(query)
        return position, {int(at): n for at, n in counted if at is not None}

    async def sheets_with(
        self, set_id: str, position: int, *, but: int, limit: int, skip: int
    ) -> list[StoredSheet]:
        """Sheets that reach to the item at a position, in order, without those with code `but`."""
        query = _sheets(set_id).where(_code_at(position) != but).offset(skip).limit(limit)
        return [StoredSheet(*row) for row in await self._db.execute(query)]

    async def extend(
        self,
        response_set: ResponseSet,
        *,
        items: Mapping[int, str],
        added: Sequence[tuple[int, StoredSheet]],
        changed: Sequence[StoredSheet],
    ) -> ResponseSet:
        """Write an import into a locked set, and raise the revision of the set.

        Only new answers or items change `updated_at`.

        Args:
            response_set: The set after the import.
            items: Keys of new items, by position.
            added: New sheets, each with the position of its examinee.
            changed: Sheets that replace those of the same examinee and trial.

        Raises:
            StorageFullError: The project has reached its storage limit.
        """
        set_id = response_set.id
        if items:
            new = {"positions": list(items), "keys": list(items.values())}
            await self._db.execute(_ADD_ITEMS, {"set_id": set_id, **new})
        await require_space(self._db)
        most = min(max(_BATCH_ANSWERS // max(response_set.n_items, 1), 1), _BATCH)
        for start in range(0, len(added), most):
            batch = added[start : start + most]
            values = _columns([sheet for _, sheet in batch])
            values["position"] = [position for position, _ in batch]
            await self._db.execute(_ADD_SHEETS, {"set_id": set_id, **values})
        for start in range(0, len(changed), most):
            values = _columns(changed[start : start + most])
            await self._db.execute(_REPLACE, {"set_id": set_id, **values})
        told = _values(response_set) | {"revision": response_set.revision + 1}
        if items or added or changed:
            told["updated_at"] = func.now()
        written = await self._db.scalars(
            update(ResponseSetRow)
            .where(ResponseSetRow.id == set_id)
            .values(**told)
            .returning(ResponseSetRow)
            .execution_options(populate_existing=True)
        )
        return _read(written.one())

    async def examinee_positions(self, set_id: str, examinees: Sequence[str]) -> dict[str, int]:
        """Positions of the `examinees` that exist in the set, by name."""
        sheet = AnswerSheetRow
        query = (
            select(sheet.examinee, sheet.position)
            .where(sheet.set_id == set_id, sheet.examinee == func.any(list(examinees)))
            .distinct()
        )
        return dict((await self._db.execute(query)).all())


def _sheets(set_id: str) -> Select[str, int, bytes, bytes | None]:
    sheet = AnswerSheetRow
    query = select(sheet.examinee, sheet.trial, sheet.codes, sheet.fractions)
    return query.where(sheet.set_id == set_id).order_by(sheet.position, sheet.trial)


def _columns(sheets: Sequence[StoredSheet]) -> dict[str, list[Any]]:
    return {
        name: [getattr(sheet, name) for sheet in sheets]
        for name in ("examinee", "trial", "codes", "fractions")
    }


def _values(response_set: ResponseSet) -> dict[str, Any]:
    values = shallow(response_set)
    values["details"] = dict(values.pop("metadata"))
    values["outcomes"] = dict(values["outcomes"])
    values["imports"] = list(values["imports"])
    return values


def _read(row: ResponseSetRow) -> ResponseSet:
    return convert(ResponseSet, row, metadata=row.details)


def _code_at(position: int) -> ColumnElement[int | None]:
    """The byte of an item in a sheet; null where the sheet ends before it."""
    codes = AnswerSheetRow.codes
    # Postgres evaluates conditions in any order, and reading beyond the end is an error.
    return case((func.length(codes) > position, func.get_byte(codes, position)), else_=null())


_STREAMED = 2000
_WHO = [
    SessionRow.provenance[name].label(name)
    for name in ("asked", "endpoint", "prompt_template_hash")
]

#: Excludes cached answers, which were given in another session and count there.
_OWN = ~func.coalesce(AdministrationRow.method.has_key("cached"), false())


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
        roots = await SessionRepository(self._db).roots([row["id"] for row in rows])
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
        rows = await self._db.stream(query.execution_options(yield_per=_STREAMED))
        return len({examinee_of(row) or row["id"] async for row in rows.mappings()})

    async def latest(
        self, source: Source, limit: int, ending: Sequence[str] = ()
    ) -> dict[str, TakenTest]:
        """The latest sessions with answers of their own, each to the test that it is part of.

        Those in `ending` count as ended.
        """
        origin = SessionRow.provenance["endpoint"]
        name = func.coalesce(func.nullif(origin["model"].astext, ""), origin["name"].astext)
        query = _of(source, [SessionRow.id, name]).where(*_wanted(source, ending))
        found = await self._db.execute(query.order_by(SessionRow.id.desc()).limit(limit))
        names: dict[str, str | None] = dict(found.all())
        roots = await SessionRepository(self._db).roots(list(names))
        return {id_: TakenTest(root, names[id_] or root) for id_, root in roots.items()}

    async def left_out(self, set_id: str, source: Source) -> dict[str, int]:
        """Number of sessions that are not collected, by reason."""
        ended = SessionRow.status.in_(ENDED)
        is_replay = func.coalesce(SessionRow.relation, "").in_(REPEATING)
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

    async def answers(self, session_ids: Sequence[str]) -> list[GivenAnswer]:
        """Closed items of some sessions, in order of asking.

        Each statement finds few rows beside the answers: of tables without statistics, Postgres
        would join them in an order that takes a minute.
        """
        of_version = select(SessionRow.id, SessionRow.bank_version_id).where(
            SessionRow.id == func.any(list(session_ids))
        )
        version_of: dict[str, str] = dict((await self._db.execute(of_version)).all())
        closed = (AdministrationRow.outcome.is_not(None), _OWN)
        given = (await self._db.execute(_given(list(version_of), *closed))).all()
        is_pretest = (VersionItemRow.status == PRETEST).label("is_pretest")
        asked = (
            select(VersionItemRow.version_id, VersionItemRow.position, ItemRow.key, is_pretest)
            .join(ItemRow, ItemRow.id == VersionItemRow.item_id)
            .where(
                VersionItemRow.version_id == func.any(list({*version_of.values()})),
                VersionItemRow.position == func.any(list({row.position for row in given})),
            )
        )
        items = {row[:2]: row for row in await self._db.execute(asked)}
        return [
            GivenAnswer(
                *(row.session_id, row.step, item.key, row.outcome or ""),
                *(_first(row.repeats, row.score), item.is_pretest),
            )
            for row in given
            if (item := items.get((version_of[row.session_id], row.position))) is not None
        ]

    async def scores(self, session_ids: Sequence[str]) -> AsyncIterator[tuple[str, int, float]]:
        """Session, position and score of the scored answers of some sessions, in order of asking.

        It joins no other table, for the reason that `answers` names.
        """
        is_scored = AdministrationRow.outcome == Outcome.SCORED.value
        query = _given(session_ids, is_scored, _OWN).execution_options(yield_per=_STREAMED)
        found = await self._db.stream(query)
        async for rows in found.partitions():  # one by one they take five times as long
            for row in rows:
                if (score := _first(row.repeats, row.score)) is not None:
                    yield row.session_id, row.position, score

    async def mark(self, set_id: str, session_ids: Sequence[str]) -> None:
        """Note that the set has collected these sessions."""
        rows = [{"set_id": set_id, "session_id": session_id} for session_id in session_ids]
        await self._db.execute(insert(CollectedSessionRow), rows)


def _given(session_ids: Sequence[str], *conditions: ColumnElement[bool]) -> Select[Any]:
    """Items of some sessions as they were answered, in order of asking."""
    return (
        select(
            AdministrationRow.session_id,
            AdministrationRow.step,
            AdministrationRow.position,
            AdministrationRow.outcome,
            AdministrationRow.score,
            AdministrationRow.method["repeats"].label("repeats"),
        )
        .where(AdministrationRow.session_id == func.any(list(session_ids)), *conditions)
        .order_by(AdministrationRow.session_id, AdministrationRow.step)
    )


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


def _wanted(source: Source, ending: Sequence[str] = ()) -> list[ColumnElement[bool]]:
    """Conditions for sessions that ended, or are `ending`, with answers of their own."""
    conditions: list[ColumnElement[bool]] = [
        SessionRow.status.in_(ENDED) | SessionRow.id.in_(ending),
        func.coalesce(SessionRow.relation, "").not_in(REPEATING),
    ]
    if not source.simulated:
        conditions.append(func.coalesce(EndpointRow.kind, "") != SIMULATED)
    return conditions


def _taken(set_id: str) -> ColumnElement[bool]:
    return exists(literal(1)).where(
        CollectedSessionRow.set_id == set_id, CollectedSessionRow.session_id == SessionRow.id
    )
