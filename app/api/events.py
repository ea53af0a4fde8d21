"""Server-sent events over a stored sequence of events.

The event's id is its stored sequence number, so a client that reconnects, even after the server
restarted, says with Last-Event-ID where it was. Once the last event was delivered, a reconnect gets
204, which makes an EventSource stop. Polling with `?after=<seq>` gives the same events.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Final

from fastapi import Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from app.api.errors import errors
from app.api.schemas.common import EventList, EventRead
from app.deps import authenticate, identify
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    InvalidInputError,
    TooManyStreamsError,
    UnauthenticatedError,
)
from app.records.events import StoredEvent
from app.services.event_feed import EventFeed
from app.services.visibility import Sight
from app.storage.repositories.events import Kind

RETRY_MS: Final = 3000
HEARTBEAT_S: Final = 15.0
#: How long a stream goes on before it asks again whether its reader may still read.
RECHECK_S: Final = 5.0
_MAX_SEQ: Final = 2**31 - 1
#: Ends of the types of events behind which nothing follows, unless a ranking is joined.
_LAST: Final = frozenset({"completed", "failed", "cancelled"})

#: Raises `UnauthenticatedError` once a reader's key is revoked or expired.
Check = Callable[[], Awaitable[object]]


def wants_stream(request: Request) -> bool:
    """Whether the client asked for `text/event-stream`."""
    return "text/event-stream" in request.headers.get("accept", "")


#: What the route of an event sequence documents.
EVENTS: Final[dict[str, Any]] = {
    "response_model": EventList,
    "responses": {
        200: {
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
            "description": "A page of events, or with `Accept: text/event-stream` a stream.",
        },
        204: {"description": "The stream ended and the client has seen its last event."},
        **errors(TooManyStreamsError),
    },
}


async def events_for(
    request: Request, feed: EventFeed, kind: Kind, resource_id: str, sight: Sight, *, after: int
) -> Response | EventList:
    """A page of events, or the stream of them where the client asks for one.

    Args:
        request: A stream's Last-Event-ID, if any, wins over `after`. A stream ends once the key of
            the request is revoked or expired.
        feed: Has the events.
        kind: Of what happens.
        resource_id: Its id; the caller may read it.
        sight: What the caller sees of withheld banks.
        after: Sequence number to start behind.

    Returns:
        The page; the stream, or 204 when the client has seen the last event already.

    Raises:
        InvalidInputError: Last-Event-ID is not a sequence number.
        NotFoundError: No such resource.
        TooManyStreamsError: The caller has too many streams.
    """
    newest = await feed.newest(kind, resource_id)
    if not wants_stream(request):
        return await _page(feed, kind, resource_id, sight, after=after, newest=newest)
    seen = min(_last_event_id(request, after), newest)
    if seen == newest and await _has_ended(feed, kind, resource_id, newest):
        return Response(status_code=204)
    owner = (await authenticate(request)).key_id
    feed.require_room(owner)

    async def frames() -> AsyncIterator[bytes]:
        told = follow(
            feed, kind, resource_id, seen, newest, owner=owner, check=lambda: identify(request)
        )
        begins = f"retry: {RETRY_MS}\n".encode()  # a frame of its own would be an empty message
        async with aclosing(told):
            async for news in told:
                if not news:
                    yield KEEPALIVE_COMMENT
                else:
                    yield begins + b"".join(_frame(event, sight) for event in news)
                    begins = b""

    return EventSourceResponse(
        frames(), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


async def follow(
    feed: EventFeed,
    kind: Kind,
    resource_id: str,
    seen: int,
    newest: int,
    *,
    owner: str,
    check: Check,
) -> AsyncGenerator[Sequence[StoredEvent], None]:
    """Events of a resource as they are stored, until its last one; nothing as a sign of life.

    Ends before that, so that a client which may comes again and goes on behind its last event, when
    the process stops, the resource is deleted, the reader may no longer read, or events that are
    not kept in memory cannot be read.

    Args:
        feed: Has the events.
        kind: Of what happens.
        resource_id: Its id.
        seen: Number of the event to start behind.
        newest: Number of the last event, as of `EventFeed.newest`.
        owner: Who follows.
        check: Asked every few seconds.
    """
    clock = asyncio.get_running_loop().time
    told = checked = clock()
    with feed.watching(kind, resource_id, newest, owner) as topic:
        while True:
            try:
                if clock() - checked >= RECHECK_S:
                    await check()
                    checked = clock()
                events = await feed.since(kind, resource_id, seen)
            except (DatabaseUnavailableError, UnauthenticatedError):
                return
            if events or clock() - told >= HEARTBEAT_S:
                yield events  # at once, for each part that is sent costs its time
                told = clock()
            if events:
                seen = events[-1].seq
                if is_last(events[-1], topic.newest):
                    return
            if topic.gone:
                return
            if not events:
                await topic.news(seen, timeout_s=min(RECHECK_S, HEARTBEAT_S))


def is_last(event: StoredEvent, newest: int) -> bool:
    """Whether nothing follows an event, of which `newest` is the number of the last one stored."""
    return event.seq >= newest and event.type.rpartition(".")[2] in _LAST


async def _page(
    feed: EventFeed, kind: Kind, resource_id: str, sight: Sight, *, after: int, newest: int
) -> EventList:
    """The events after `after`, for clients that poll."""
    events = [] if after >= newest else await feed.since(kind, resource_id, after)
    return EventList(
        data=[EventRead.read(sight.event(event)) for event in events],
        last_seq=events[-1].seq if events else after,
        ended=is_last(events[-1], newest)
        if events
        else await _has_ended(feed, kind, resource_id, newest),
    )


async def _has_ended(feed: EventFeed, kind: Kind, resource_id: str, newest: int) -> bool:
    """Whether the last stored event is one behind which nothing follows."""
    return any(is_last(event, newest) for event in await feed.since(kind, resource_id, newest - 1))


def _frame(event: StoredEvent, sight: Sight) -> bytes:
    shown = sight.event(event)
    return format_sse_event(
        data_str=json.dumps(shown.data, ensure_ascii=False, allow_nan=False),
        event=shown.type,
        id=str(shown.seq),
    )


def _last_event_id(request: Request, after: int) -> int:
    given = request.headers.get("last-event-id")
    if given is None:
        return after
    if not (given.isascii() and given.isdigit() and int(given[:11]) <= _MAX_SEQ):
        raise InvalidInputError(
            f"Last-Event-ID must be the id of an event, a whole number, got {given!r}.",
            problems=[FieldProblem("/header/Last-Event-ID", "must be a whole number")],
        )
    return int(given)
