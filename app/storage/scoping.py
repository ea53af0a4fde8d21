"""Restrict statements to the rows of one project: the only place where projects are kept apart.

Before an ORM statement is sent, each ORM class in it gets a condition on the present project
(`app.acting.present()`), so no repository can forget a filter. Other statements (a text, or bare
columns of a table) must name by `of_opened` a row that was found under these conditions before and
to which their rows belong; otherwise they are refused.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Select,
    String,
    TextClause,
    bindparam,
    event,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute, ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.orm.interfaces import CriteriaOption
from sqlalchemy.orm.util import LoaderCriteriaOption
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.visitors import InternalTraversal
from typing_extensions import override

from app.acting import present
from app.errors import NotFoundError, PreconditionFailedError
from app.items import JsonValue
from app.storage.identifiers import may_name
from app.storage.paging import Page, PageRequest
from app.storage.rows.banks import (
    AnswerSheetRow,
    BankRow,
    BankVersionRow,
    CalibrationEventRow,
    CollectedSessionRow,
    ItemRow,
    ResponseItemRow,
    VersionItemRow,
)
from app.storage.rows.base import LeasedRow, OwnedRow
from app.storage.rows.projects import DeliveryRow
from app.storage.rows.sessions import AdministrationRow, RankingEventRow, SessionEventRow

R = TypeVar("R")
T = TypeVar("T")
#: Rows fetched at a time where there may be tens of thousands; other tasks run in between.
STREAMED: Final = 250
# Rows per statement. They travel as one JSON text: as fast as COPY for these tables, and its errors
# are translated like those of any other statement.
_BATCH: Final = 1000
#: Option of a statement with which users of a shared bank change its data, such as how often its
#: items were drawn: it finds all rows that may be read.
FOR_USERS: Final = {"for_users": True}
#: Option of a statement about all projects: encryption keys belong to the whole database.
FOR_ALL: Final = {"for_all": True}


def of_opened(what: str) -> dict[str, str]:
    """Execution options of a statement that no condition can be added to.

    `what` is the row, found before, to which all rows of the statement belong.
    """
    return {"of_opened": what}


#: The present project, as of when a statement is sent; null for all projects.
SEEN: Final = bindparam("seen_project", callable_=lambda: present().project_id, type_=String())

#: Attributes that distinguish two such conditions in SQLAlchemy's statement cache.
_INTERNALS: Final[list[tuple[str, InternalTraversal]]] = [
    ("column", InternalTraversal.dp_clauseelement),
    ("seen", InternalTraversal.dp_clauseelement),
    ("ids", InternalTraversal.dp_string),
]
_NAMED: Final[list[tuple[str, InternalTraversal]]] = [("name", InternalTraversal.dp_string)]


class _Under(ColumnElement[bool]):
    """Condition that a column is an id from a query on `:seen`; cheap to build and to cache."""

    type = Boolean()
    _traverse_internals = _INTERNALS

    def __init__(self, column: Any, ids: str) -> None:
        self.column = column
        self.seen = SEEN
        self.ids = ids


@compiles(_Under)
def _under(element: _Under, compiler: SQLCompiler, **options: Any) -> str:
    column = compiler.process(element.column, **options)
    seen = compiler.process(element.seen, **options)
    return f"{column} IN ({element.ids.replace(':seen', seen)})"


#: All resources of projects but banks, which may be shared.
_OWNED: Final = [
    row
    for row in (*OwnedRow.__subclasses__(), *LeasedRow.__subclasses__())
    if row not in (LeasedRow, BankRow)
]
_OF_OWNED: Final = {
    AdministrationRow.session_id: "sessions",
    SessionEventRow.session_id: "sessions",
    RankingEventRow.ranking_id: "rankings",
    ResponseItemRow.set_id: "response_sets",
    AnswerSheetRow.set_id: "response_sets",
    CollectedSessionRow.set_id: "response_sets",
    CalibrationEventRow.calibration_id: "calibrations",
    DeliveryRow.webhook_id: "webhooks",
}


_BANKS = "SELECT b.id FROM banks b WHERE b.project_id = :seen"
_VERSIONS = """
    SELECT v.id FROM bank_versions v JOIN banks b ON b.id = v.bank_id WHERE b.project_id = :seen
"""
_OR_SHARED = " OR b.shared"


def _bank_conditions(*, shared: bool) -> list[LoaderCriteriaOption]:
    rest = _OR_SHARED if shared else ""
    own = BankRow.project_id == SEEN
    return [
        _condition(BankRow, (own | BankRow.shared) if shared else own),
        _condition(ItemRow, _Under(ItemRow.bank_id, _BANKS + rest)),
        _condition(BankVersionRow, _Under(BankVersionRow.bank_id, _BANKS + rest)),
        _condition(VersionItemRow, _Under(VersionItemRow.version_id, _VERSIONS + rest)),
    ]


def _condition(row: Any, condition: ColumnElement[bool]) -> LoaderCriteriaOption:
    return with_loader_criteria(row, condition, include_aliases=True)


def _parent(column: InstrumentedAttribute[str], table: str) -> LoaderCriteriaOption:
    ids = f"SELECT o.id FROM {table} o WHERE o.project_id = :seen"  # noqa: S608 (names above)
    return _condition(column.class_, _Under(column, ids))


_ALIKE: Final = [
    *(_condition(row, row.project_id == SEEN) for row in _OWNED),
    *(_parent(column, table) for column, table in _OF_OWNED.items()),
]


class _Together(CriteriaOption):
    """Conditions that are always applied together, so that one name is their cache key.

    Otherwise SQLAlchemy's cache compares all parts of all conditions for every statement, which
    took a third of a request's CPU time. `SEEN` is evaluated when a statement is sent.
    """

    __slots__ = ("conditions", "name")
    _traverse_internals = _NAMED
    propagate_to_loaders = True

    def __init__(self, name: str, conditions: Sequence[LoaderCriteriaOption]) -> None:
        self.name = name
        self.conditions = conditions

    @override
    def process_compile_state(self, compile_state: Any) -> None:
        for condition in self.conditions:
            condition.process_compile_state(compile_state)

    @override
    def process_compile_state_replaced_entities(
        self, compile_state: Any, mapper_entities: Any
    ) -> None:
        self.process_compile_state(compile_state)

    @override
    def get_global_criteria(self, attributes: dict[Any, Any]) -> None:
        for condition in self.conditions:
            condition.get_global_criteria(attributes)


#: Conditions for reading, and for changing: only the owning project may change a shared bank.
_READING: Final = _Together("reading", [*_ALIKE, *_bank_conditions(shared=True)])
_WRITING: Final = _Together("writing", [*_ALIKE, *_bank_conditions(shared=False)])


_HOLD: Final = text("SELECT id FROM projects WHERE id = :id FOR KEY SHARE").execution_options(
    **of_opened("the present project")
)
_HELD: Final = "project_held"
_LOCKED_AFTER_IT: Final = (*_OWNED, BankRow, ItemRow, BankVersionRow)


class ScopedSession(Session):
    """A database session whose statements find only rows of the present project."""


@dataclass(frozen=True, eq=False)
class Repository:
    """Queries and changes of one kind of resource, within one transaction.

    Raises:
        NotFoundError: A named resource, or the `after` of a page, does not exist.
        PreconditionFailedError: The resource to be changed is not at the named revision.
    """

    _db: AsyncSession
    """The transaction, of a `ScopedSession`."""

    async def _one(self, query: Select[R], kind: str, name: str, *, for_update: bool = False) -> R:
        """The present state of the one row that a query finds; `for_update` locks it."""
        query = query.execution_options(populate_existing=True)
        rows = await self._db.execute(query.with_for_update() if for_update else query)
        row = rows.scalar_one_or_none()
        if row is None:
            raise NotFoundError(kind, name)
        return row

    async def _by_id(self, kind: type[R], row_id: str, noun: str) -> R:
        """The row with an id, or an error that says which `noun` is not there."""
        row = await self._db.get(kind, row_id)
        if row is None:
            raise NotFoundError(noun, row_id)
        return row

    async def _named(
        self,
        name: InstrumentedAttribute[str],
        wanted: str,
        kind: str,
        *conditions: ColumnElement[bool],
        for_update: bool,
    ) -> Any:
        """The row with an id or a name; where a name looks like another row's id, the id wins."""
        row: Any = name.class_
        query = select(row).where((row.id == wanted) | (name == wanted), *conditions)
        query = query.order_by((row.id == wanted).desc()).limit(1)
        return await self._one(query, kind, wanted, for_update=for_update)

    async def _page(
        self,
        statement: Select[Any],
        request: PageRequest,
        key: InstrumentedAttribute[str],
        kind: str,
        read: Callable[[Any], T],
    ) -> Page[T]:
        """Run a statement for one page of entries of a `kind`, ordered by their ids, the `key`.

        The statement selects one ORM class, or columns, with filters but without an order. `read`
        converts a row, or a mapping of columns, to a domain value.

        Raises:
            NotFoundError: No resource can have had the id `after`. An entry is accepted if it no
                longer passes the filter, or was deleted since the page before.
        """
        if request.after is not None:
            if await self._db.scalar(select(key).where(key == request.after)) is None:
                other = await self._db.scalar(select(key).limit(1))
                if other is None or not may_name(request.after, like=other):
                    raise NotFoundError(kind, request.after)
            statement = statement.where(
                key < request.after if request.descending else key > request.after
            )
        order: Any = key.desc() if request.descending else key.asc()
        found = await self._db.execute(statement.order_by(order).limit(request.limit + 1))
        is_one = len(statement.column_descriptions) == 1
        rows: Sequence[Any] = found.scalars().all() if is_one else found.mappings().all()
        items = tuple(read(row) for row in rows[: request.limit])
        return Page(items, has_more=len(rows) > request.limit)

    async def _set(self, row: Any, row_id: str, **values: Any) -> None:
        await self._db.execute(update(row).where(row.id == row_id).values(**values))

    async def _insert_many(
        self, statement: TextClause, rows: Iterable[Mapping[str, JsonValue]]
    ) -> None:
        """Run `statement` on all rows; its parameter `records` is a JSON array of them."""
        remaining = iter(rows)
        # In a thread, as the iterable makes rows lazily, and thousands of them take 0.1 s.
        while records := await asyncio.to_thread(_next_batch, remaining):
            await self._db.execute(statement, {"records": records})


def _next_batch(remaining: Iterator[Mapping[str, JsonValue]]) -> str | None:
    batch = list(islice(remaining, _BATCH))
    return json.dumps(batch, ensure_ascii=False, allow_nan=False) if batch else None


def require_revision(what: str, actual: int, expected: int) -> None:
    """Require that a change is based on the present revision, as named by If-Match.

    `what` is the start of the error message, such as `Bank 'sums'`.

    Raises:
        PreconditionFailedError: The revisions differ.
    """
    if actual != expected:
        raise PreconditionFailedError(
            f"{what} is at revision {actual}, If-Match names {expected}: read it again."
        )


def given(*wanted: tuple[Any, object | None]) -> list[ColumnElement[bool]]:
    """Conditions that columns equal the wanted values, except where the value is None."""
    return [column == value for column, value in wanted if value is not None]


def _hold_project(session: Session, seen: str) -> None:
    """Lock the present project against deletion until the transaction ends.

    Rows refer to their project, so a transaction that adds one waits for a deletion of the project,
    and the deletion waits for locked rows. Locking the project before its rows prevents a
    deadlock between the two.
    """
    if session.info.get(_HELD) != seen:
        if session.execute(_HOLD, {"id": seen}).one_or_none() is None:
            raise NotFoundError("project", seen)
        session.info[_HELD] = seen


@event.listens_for(ScopedSession, "do_orm_execute")
def _scope(state: ORMExecuteState) -> None:
    options, seen = state.execution_options, present().project_id
    if seen is None or state.is_insert or "for_all" in options:
        return
    if not state.is_orm_statement:
        if "of_opened" not in options:
            raise RuntimeError(
                "a statement that is none of ORM classes must say whose rows it finds: of_opened"
            )
        return
    locked = getattr(state.statement, "_for_update_arg", None)
    if locked is not None and state.bind_mapper and state.bind_mapper.class_ in _LOCKED_AFTER_IT:
        _hold_project(state.session, seen)
    locks_all = locked is not None and not locked.key_share and locked.of is None
    changes = (state.is_update or state.is_delete or locks_all) and "for_users" not in options
    state.statement = state.statement.options(_WRITING if changes else _READING)
