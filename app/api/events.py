"""Server-sent events over a stored sequence of events.

The event's id is its stored sequence number, so a client that reconnects, even after the server
restarted, says with Last-Event-ID where it was. Once the last event was delivered, a reconnect gets
204, which makes an EventSource stop. Polling with `?after=<seq>` gives the same events.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from fastapi import Request, Response
from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse, format_sse_event

from app.api.schemas.common import EventList, EventRead
from app.deps import identify
from app.errors import (
    DatabaseUnavailableError,
    FieldProblem,
    InvalidInputError,
    NotFoundError,
    UnauthenticatedError,
)

RETRY_MS: Final = 3000
HEARTBEAT_S: Final = 15.0
POLL_S: Final = 0.25
#: How long a stream goes on before it asks again whether its reader may still read.
RECHECK_S: Final = 5.0
_MAX_SEQ: Final = 2**31 - 1


class StoredEvent(Protocol):
    """What is streamed."""

    @property
    def seq(self) -> int:
        """Place in the sequence, from 1; the event's id."""

    @property
    def type(self) -> str:
        """What happened."""

    @property
    def data(self) -> dict[str, Any]:
        """JSON object that describes it."""

    @property
    def created_at(self) -> datetime | None:
        """When."""


Fetch = Callable[[int], Awaitable[Sequence[StoredEvent]]]
IsTerminal = Callable[[StoredEvent], bool]
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
    },
}


async def events_for(
    request: Request, fetch: Fetch, is_terminal: IsTerminal, *, after: int
) -> Response | EventList:
    """A page of events, or the stream of them where the client asks for one.

    As `event_stream`, which ends once the reader's key is revoked or expired.
    """
    if wants_stream(request):
        return await event_stream(
            request, fetch, is_terminal, after=after, check=lambda: identify(request)
        )
    return await event_list(fetch, is_terminal, after=after)


async def event_list(fetch: Fetch, is_terminal: IsTerminal, *, after: int) -> EventList:
    """The events after `after`, for clients that poll."""
    events = await fetch(after)
    return EventList(
        data=[EventRead.read(event) for event in events],
        last_seq=events[-1].seq if events else after,
        ended=is_terminal(events[-1]) if events else await _saw_end(fetch, is_terminal, after),
    )


async def _saw_end(fetch: Fetch, is_terminal: IsTerminal, after: int) -> bool:
    """Whether the event numbered `after`, if there is one, was the last."""
    known = await fetch(max(after - 1, 0))
    return bool(known) and known[0].seq <= after and is_terminal(known[0])


async def event_stream(
    request: Request,
    fetch: Fetch,
    is_terminal: IsTerminal,
    *,
    after: int = 0,
    check: Check | None = None,
) -> Response:
    """Stream events until the terminal one, the client's or the server's end.

    Args:
        request: Its Last-Event-ID, if any, wins over `after`.
        fetch: Returns stored events with a sequence number above its argument, in order; may
            return only the first of many.
        is_terminal: Whether no event can follow this one.
        after: Sequence number to start behind.
        check: Raises `UnauthenticatedError` once the reader's key is revoked or expired, which
            ends the stream.

    Returns:
        204 when the client has seen the terminal event already, else the stream.

    Raises:
        InvalidInputError: Last-Event-ID is not a sequence number.
    """
    after = _last_event_id(request, after)
    if await _saw_end(fetch, is_terminal, after):
        return Response(status_code=204)
    closing: asyncio.Event = request.app.state.closing
    return EventSourceResponse(
        _frames(fetch, is_terminal, after, closing, check),
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


async def _frames(
    fetch: Fetch,
    is_terminal: IsTerminal,
    after: int,
    closing: asyncio.Event,
    check: Check | None,
) -> AsyncIterator[bytes]:
    """Frames of one connection. A client that leaves cancels this generator."""
    yield format_sse_event(retry=RETRY_MS)
    clock = asyncio.get_running_loop().time
    last_frame = checked = clock()
    while not closing.is_set():
        try:
            if check is not None and clock() - checked >= RECHECK_S:
                await check()
                checked = clock()
            events = await fetch(after)
        except (DatabaseUnavailableError, UnauthenticatedError, NotFoundError):
            return  # a client that may reconnects and goes on behind its last event
        for event in events:
            yield format_sse_event(
                data_str=json.dumps(event.data, ensure_ascii=False, allow_nan=False),
                event=event.type,
                id=str(event.seq),
            )
            if is_terminal(event):
                return
            after = event.seq
            last_frame = clock()
        if events:
            continue
        if clock() - last_frame >= HEARTBEAT_S:
            yield KEEPALIVE_COMMENT
            last_frame = clock()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(closing.wait(), POLL_S)


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
