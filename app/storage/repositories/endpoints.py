"""Endpoints of language models: settings, secrets, shared rate limits and cached answers."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from types import EllipsisType
from typing import Any

from sqlalchemy import delete, func, select, text, update
from sqlalchemy.dialects.postgresql import insert

from app.calling import GenerationParams, RetryPolicy
from app.errors import NotFoundError, PreconditionFailedError
from app.items import JsonValue
from app.records.endpoints import (
    SELF_REPORTED,
    CallLimits,
    Endpoint,
    EndpointSettings,
    Price,
    ReasoningTags,
    SealedSecrets,
    StoredEndpoint,
)
from app.records.fields import convert, not_none, restored
from app.storage.paging import Page, PageRequest
from app.storage.rows.projects import EndpointRow, KeptAnswerRow
from app.storage.scoping import Repository, given, of_opened

# GCRA (ITU-T I.371, virtual scheduling) without burst: each call starts at the schedule's present
# time and moves it by its share of a minute. One statement, so all workers share one schedule.
_RESERVE = text("""
    WITH share AS (
        SELECT id, clock_timestamp() AS now,
            interval '60 s' / CAST(limits ->> 'rpm' AS float8) AS request,
            interval '60 s' * CAST(:tokens AS float8) / CAST(limits ->> 'tpm' AS float8) AS tokens
        FROM endpoints WHERE id = :id AND limits ?| array['rpm', 'tpm']
    )
    UPDATE endpoints AS e SET
        next_request_at = greatest(e.next_request_at, e.next_token_at, share.now) + share.request,
        next_token_at = greatest(e.next_request_at, e.next_token_at, share.now) + share.tokens
    FROM share WHERE e.id = share.id
    RETURNING extract(epoch FROM coalesce(
        e.next_request_at - share.request, e.next_token_at - share.tokens
    ) - share.now)
""").execution_options(**of_opened("the endpoint, or that of a session"))

_LIVE = select(EndpointRow).where(
    EndpointRow.archived_at.is_(None), EndpointRow.kind != SELF_REPORTED
)


class EndpointRepository(Repository):
    """Queries and changes of endpoints, within one transaction."""

    async def add(self, new: Endpoint) -> StoredEndpoint:
        """Store a new endpoint.

        Raises:
            AlreadyExistsError: A live endpoint has this name.
        """
        row = EndpointRow(
            id=new.id,
            **_columns(new.settings),
            api_key_cipher=new.sealed.api_key,
            headers_cipher=new.sealed.headers,
            header_names=list(new.sealed.header_names),
        )
        self._db.add(row)
        await self._db.flush()
        return _endpoint(row)

    async def get(self, endpoint_id: str, *, archived: bool = False) -> StoredEndpoint:
        """One endpoint; `archived` finds deleted ones, too, and those that answer by hand."""
        row = await self._by_id(EndpointRow, endpoint_id, "endpoint")
        hidden = row.archived_at is not None or row.kind == SELF_REPORTED
        if hidden and not archived:
            raise NotFoundError("endpoint", endpoint_id)
        return _endpoint(row)

    async def by_name(self, name: str) -> StoredEndpoint:
        """The live endpoint of that name."""
        return _endpoint(await self._one(_LIVE.where(EndpointRow.name == name), "endpoint", name))

    async def by_hand(self, name: str) -> StoredEndpoint | None:
        """The endpoint that answers by hand under that name, if there is one."""
        row = await self._db.scalar(
            select(EndpointRow).filter_by(name=name, kind=SELF_REPORTED, archived_at=None)
        )
        return None if row is None else _endpoint(row)

    async def page(
        self, request: PageRequest, *, kind: str | None = None, name: str | None = None
    ) -> Page[StoredEndpoint]:
        """One page of named live endpoints; unnamed ones belong to the session they came with."""
        filters = given((EndpointRow.kind, kind), (EndpointRow.name, name))
        statement = _LIVE.where(EndpointRow.name.is_not(None), *filters)
        return await self._page(statement, request, EndpointRow.id, "endpoint", _endpoint)

    async def replace(
        self,
        endpoint_id: str,
        settings: EndpointSettings,
        *,
        api_key: bytes | EllipsisType | None,
        headers: tuple[bytes | None, tuple[str, ...]] | EllipsisType,
        expected_revision: int,
    ) -> StoredEndpoint:
        """Write a changed endpoint.

        Key and headers are encrypted, the latter with their names; `...` keeps the stored ones.

        Raises:
            AlreadyExistsError: Another live endpoint has this name.
        """
        # The schedule starts anew, since the limits may have changed.
        secrets: dict[str, Any] = {}
        if api_key is not ...:
            secrets["api_key_cipher"] = api_key
        if headers is not ...:
            secrets["headers_cipher"], secrets["header_names"] = headers[0], list(headers[1])
        schedule = {"next_request_at": None, "next_token_at": None}
        values = _columns(settings) | secrets | schedule
        return await self._change(endpoint_id, values, expected_revision)

    async def archive(self, endpoint_id: str, *, expected_revision: int) -> StoredEndpoint:
        """Delete an endpoint for users; its row stays for the sessions that used it."""
        return await self._change(endpoint_id, {"archived_at": func.now()}, expected_revision)

    async def reserve(self, endpoint_id: str, tokens: float) -> float:
        """Reserve the next call in the endpoint's schedule.

        Returns:
            Seconds to wait before calling; 0 when nothing limits the endpoint.
        """
        wait_s = await self._db.scalar(_RESERVE, {"id": endpoint_id, "tokens": tokens})
        return float(wait_s or 0.0)

    async def _change(
        self, endpoint_id: str, values: Mapping[str, Any], expected_revision: int
    ) -> StoredEndpoint:
        row = await self._db.scalar(
            update(EndpointRow)
            .where(
                EndpointRow.id == endpoint_id,
                EndpointRow.archived_at.is_(None),
                EndpointRow.kind != SELF_REPORTED,
                EndpointRow.revision == expected_revision,
            )
            .values(**values, revision=EndpointRow.revision + 1, updated_at=func.now())
            .returning(EndpointRow)
            .execution_options(populate_existing=True)
        )
        if row is None:
            present = await self.get(endpoint_id)
            raise PreconditionFailedError(
                f"Endpoint {endpoint_id} is at revision {present.revision}, your change is based "
                f"on {expected_revision}: read it again."
            )
        return _endpoint(row)


def _columns(settings: EndpointSettings) -> dict[str, Any]:
    columns = asdict(settings)
    # Unset limits are absent, not null, since `limits ?| ...` above tests which keys exist.
    columns["limits"] = not_none(settings.limits)
    columns["details"] = columns.pop("metadata")
    return columns


def _endpoint(row: EndpointRow) -> StoredEndpoint:
    stop: Any = row.sampling.get("stop", ())
    return convert(
        StoredEndpoint,
        row,
        settings=convert(
            EndpointSettings,
            row,
            sampling=restored(GenerationParams, row.sampling, stop=tuple(stop)),
            reasoning=restored(ReasoningTags, row.reasoning),
            limits=restored(CallLimits, row.limits),
            price=restored(Price, row.price),
            retry=restored(RetryPolicy, row.retry),
            metadata=row.details,
        ),
        sealed=SealedSecrets(
            api_key=row.api_key_cipher,
            headers=row.headers_cipher,
            header_names=tuple(row.header_names),
        ),
    )


#: How long an answer is cached, since the model behind a name may change.
KEEP = timedelta(days=30)


class AnswerRepository(Repository):
    """Queries and changes of cached answers, within one transaction."""

    async def find(self, key: str) -> dict[str, JsonValue] | None:
        """The cached answer to a call, if there is one."""
        query = select(KeptAnswerRow.answer).where(
            KeptAnswerRow.key == key, KeptAnswerRow.created_at >= func.clock_timestamp() - KEEP
        )
        return (await self._db.scalars(query)).one_or_none()

    async def keep(self, key: str, answer: dict[str, JsonValue], *, session_id: str) -> None:
        """Cache an answer until its session is removed; one in the cache stays unless too old."""
        statement = insert(KeptAnswerRow).values(key=key, answer=answer, session_id=session_id)
        await self._db.execute(
            statement.on_conflict_do_update(
                index_elements=[KeptAnswerRow.key],
                set_={
                    "answer": answer,
                    "session_id": session_id,
                    "created_at": func.clock_timestamp(),
                },
                where=KeptAnswerRow.created_at < func.clock_timestamp() - KEEP,
            )
        )

    async def purge(self) -> None:
        """Delete answers that are too old."""
        await self._db.execute(
            delete(KeptAnswerRow).where(KeptAnswerRow.created_at < func.clock_timestamp() - KEEP)
        )
