"""Server-sent events from a stored sequence of events.

The id of an event is its stored sequence number. A client that reconnects, even after a restart of
the server, sends Last-Event-ID to continue from there. A reconnect after the last event gets 204,
which makes an EventSource stop. Polling with `?after=<seq>` gives the same events.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Annotated, Any, Final, Protocol, TypeVar

from cachetools import LRUCache
from fastapi import Query, Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from app.acting import owner
from app.api.disconnects import while_connected
from app.api.rates import turn_given_up
from app.api.routing import allow
from app.api.schemas.events import EventList, EventRead
from app.deps import identify
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    InvalidInputError,
    NotFoundError,
    TooManyStreamsError,
    UnauthenticatedError,
)
from app.fair_semaphore import Owner
from app.records.leased import StoredEvent
from app.services.event_feed import EventFeed, Topic
from app.services.visibility import View
from app.shapes import Int32
from app.storage.repositories.events import Kind

RETRY_MS: Final = 3000
HEARTBEAT_S: Final = 15.0
#: Seconds after which a stream checks again whether its reader may still read.
RECHECK_S: Final = 5.0
_MAX_SEQ: Final = 2**31 - 1
#: Last words of the event types that end a sequence, unless a ranking is joined later.
_LAST: Final = frozenset({"completed", "failed", "cancelled"})


class Happening(Protocol):
    """An event that can be streamed."""

    @property
    def seq(self) -> int:
        """Position in the sequence, from 1; the event's id."""

    @property
    def type(self) -> str:
        """Type of the event."""

    @property
    def data(self) -> dict[str, Any]:
        """JSON object that describes the event."""


E = TypeVar("E", bound=Happening)
Fetch = Callable[[int], Awaitable[Sequence[E]]]
#: Raises `UnauthenticatedError` once a reader's key is revoked or expired.
Check = Callable[[], Awaitable[object]]


def wants_stream(request: Request) -> bool:
    """Whether the client asked for `text/event-stream`."""
    return "text/event-stream" in request.headers.get("accept", "")


#: Options of a route of an event sequence.
EVENTS: Final[dict[str, Any]] = {
    "response_model": EventList,
    **allow(
        "read",
        TooManyStreamsError,
        also={
            200: {
                "content": {"text/event-stream": {"schema": {"type": "string"}}},
                "description": "A page of events, or with `Accept: text/event-stream` a stream.",
            },
            204: {"description": "The stream ended, and the client has seen its last event."},
        },
    ),
}


AfterEvent = Annotated[Int32, Query(ge=0, description="Start after this event.")]
#: Query parameter: seconds that a read waits for the end of the work.
Wait = Annotated[
    int,
    Query(
        ge=0,
        le=60,
        description="Wait up to this many seconds for the work to end before answering.",
    ),
]


async def wait_for_end(
    request: Request, feed: EventFeed, kind: Kind, resource_id: str, seconds: int
) -> None:
    """Return after the last event, or after `seconds`; the wait counts as an open stream.

    Raises:
        ClientDisconnect: The client hung up.
        TooManyStreamsError: The caller, or the project, has too many streams.
    """
    fetch = partial(feed.since, kind, resource_id)
    newest = await feed.newest(kind, resource_id)
    if await _has_ended(fetch, _is_last, newest):
        return
    reader = Owner(owner(), request.state.caller.key_id)
    await feed.require_room(reader)

    async def ended() -> None:
        with feed.watching(kind, resource_id, newest, reader) as topic:
            told = _follow(topic, fetch, _is_last, newest, lambda: identify(request))
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds), aclosing(told):
                    async for _ in told:
                        pass

    async with turn_given_up(request):
        await while_connected(request, ended())


async def events_for(
    request: Request, feed: EventFeed, kind: Kind, resource_id: str, view: View, *, after: int
) -> Response | EventList:
    """Return a page of events after a sequence number, or a stream if the client asks for one.

    The caller may read the resource; a stream ends once its key is revoked or expired.

    Raises:
        InvalidInputError: Last-Event-ID is not a sequence number.
        NotFoundError: No such resource.
        TooManyStreamsError: The caller, or the project, has too many streams.
    """
    read = feed.story if wants_stream(request) else feed.since

    async def fetch(seen: int) -> list[StoredEvent]:
        return [view.event(event) for event in await read(kind, resource_id, seen)]

    if not wants_stream(request):
        return await _page(fetch, after=after, newest=await feed.newest(kind, resource_id))
    return await event_stream(
        request,
        feed,
        kind,
        resource_id,
        fetch,
        _is_last,
        after=after,
        check=lambda: identify(request),
    )


async def event_stream(
    request: Request,
    feed: EventFeed,
    kind: Kind,
    resource_id: str,
    fetch: Fetch[E],
    is_last: Callable[[E], bool],
    *,
    after: int,
    check: Check,
) -> Response:
    """Stream the events of a resource, as `fetch` returns them, until the last one.

    The stream ends early when the process stops, the resource is deleted, its reader may no longer
    read, or events outside memory cannot be read. A client that still may read then reconnects and
    continues after its last event.

    Args:
        request: The request of a known caller; its Last-Event-ID overrides `after`.
        feed: Reports new events.
        kind: Kind of the resource.
        resource_id: Id of the resource, which the reader may read.
        fetch: Returns the events after a sequence number, in order; may return only the first of
            many.
        is_last: Whether nothing follows the event that `fetch` returned last.
        after: Sequence number after which to start.
        check: Raises `UnauthenticatedError` once the reader may no longer read; called every few
            seconds.

    Returns:
        204 if the client has seen the last event already, else the stream.

    Raises:
        InvalidInputError: Last-Event-ID is not a sequence number.
        NotFoundError: No such resource.
        TooManyStreamsError: The key, or its project, has as many open streams as it may have.
    """
    newest = await feed.newest(kind, resource_id)
    seen = min(_last_event_id(request, after), newest)
    if seen == newest and await _has_ended(fetch, is_last, newest):
        return Response(status_code=204)
    reader = Owner(owner(), request.state.caller.key_id)
    await feed.require_room(reader)

    async def frames() -> AsyncIterator[bytes]:
        with feed.watching(kind, resource_id, newest, reader) as topic:
            told = _follow(topic, fetch, is_last, seen, check)
            begins = f"retry: {RETRY_MS}\n".encode()  # alone it would be an empty message
            async with aclosing(told):
                async for news in told:
                    if not news:
                        yield KEEPALIVE_COMMENT
                    else:
                        yield begins + b"".join(map(_frame, news))
                        begins = b""

    return EventSourceResponse(
        frames(), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


async def _follow(
    topic: Topic, fetch: Fetch[E], is_last: Callable[[E], bool], seen: int, check: Check
) -> AsyncGenerator[Sequence[E], None]:
    """Yield the events after number `seen`, as they are stored; empty lists keep it alive."""
    clock = asyncio.get_running_loop().time
    told = checked = clock()
    while True:
        try:
            if clock() - checked >= RECHECK_S:
                await check()
                checked = clock()
            news = await fetch(seen)
        except (DatabaseUnavailableError, NotFoundError, UnauthenticatedError):
            return
        if news or clock() - told >= HEARTBEAT_S:
            yield news  # in one piece, since each part that is sent takes time
            told = clock()
        if topic.gone or (news and is_last(news[-1])):
            return
        if news:
            seen = news[-1].seq
        else:
            await topic.news(seen, timeout_s=min(RECHECK_S, HEARTBEAT_S))


def _is_last(event: Happening) -> bool:
    return event.type.rpartition(".")[2] in _LAST


async def _has_ended(fetch: Fetch[E], is_last: Callable[[E], bool], seen: int) -> bool:
    """Whether nothing follows event `seen`; events that arrived meanwhile were not seen."""
    return any(event.seq == seen and is_last(event) for event in await fetch(seen - 1))


async def _page(fetch: Fetch[StoredEvent], *, after: int, newest: int) -> EventList:
    """Page of the events after `after`, for clients that poll."""
    events = await fetch(after) if after < newest else []
    ended = _is_last(events[-1]) if events else await _has_ended(fetch, _is_last, newest)
    return EventList(
        data=[{name: getattr(event, name) for name in EventRead.model_fields} for event in events],
        last_seq=events[-1].seq if events else after,
        ended=ended,
    )


#: Encoded events by identity, because all watchers of a resource get the same ones.
_frames: LRUCache[int, tuple[Happening, bytes]] = LRUCache(1000)


def _frame(event: Happening) -> bytes:
    known = _frames.get(id(event))
    if known is None or known[0] is not event:
        made = format_sse_event(
            data_str=json.dumps(event.data, ensure_ascii=False, allow_nan=False),
            event=event.type,
            id=str(event.seq),
        )
        known = _frames[id(event)] = event, made
    return known[1]


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
