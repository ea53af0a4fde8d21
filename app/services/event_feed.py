"""New events of sessions, rankings and calibrations, read once for all streams of a process.

However many streams are open, a process asks the database every tenth of a second for the numbers
of the latest events of all watched resources, and once more for the events where there are new
ones. Without streams it asks nothing. Writers of events do not know about the feed: a step of a
session costs the same for no watchers and for two hundred. A notification for each commit would
cost more, as Postgres commits only one transaction with notifications at a time. The feed also
needs no lasting connection: while Postgres is away, streams wait, and then continue after the last
event that they sent.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import structlog

from app.acting import EVERYBODY, acting_for
from app.errors import DatabaseUnavailableError, NotFoundError, TooManyStreamsError
from app.fair_semaphore import Owner
from app.records.leased import StoredEvent
from app.services.waiting import Recent
from app.storage.database import Database
from app.storage.repositories.events import Kind

#: Seconds between two looks, and before the next look while the database is away.
LOOK_S, AWAY_S = 0.1, 1.0
#: Latest events of a resource kept for its streams; a stream further behind reads its own.
_KEPT = 100
#: Most events that one look takes; the rest comes with the next look.
_TAKEN = 2000
#: Streams that are woken in one pass of the event loop.
_WOKEN = 8
#: Seconds for which streams that begin at the same event share one answer of the database, and
#: most answers that are kept for that.
_SHARED_S, _MOST_SHARED = 1.0, 8

_log = structlog.get_logger(__name__)


class Topic:
    """A watched resource.

    Attributes:
        newest: Number of its last stored event at the last look.
        gone: Whether no more events will come: it was deleted, or the process ends.
    """

    def __init__(self, newest: int) -> None:
        self.newest = newest
        self.gone = False
        self.watchers = 0
        self.taken = newest
        self.recent: deque[StoredEvent] = deque(maxlen=_KEPT)
        self._waiting: dict[asyncio.Future[None], None] = {}

    async def news(self, seen: int, *, timeout_s: float) -> None:
        """Wait until there are events after number `seen`, none will come, or time is up."""
        if self.taken > seen or self.gone:
            return
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting[waiter] = None
        timer = loop.call_later(timeout_s, _wake, [waiter])
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.pop(waiter, None)

    def kept(self, seen: int) -> list[StoredEvent] | None:
        """Events after number `seen`; None where some of them are no longer kept."""
        if seen >= self.taken:
            return []
        if not self.recent or self.recent[0].seq > seen + 1:
            return None
        return [event for event in self.recent if event.seq > seen]

    def take(self, events: Sequence[StoredEvent]) -> None:
        """Keep the events of one look, and wake the waiting streams."""
        self.recent.extend(events)
        self.taken = events[-1].seq
        self.newest = max(self.newest, self.taken)
        self._wake_all()

    def end(self) -> None:
        """Tell the waiting streams that no more events will come."""
        self.gone = True
        self._wake_all()

    def _wake_all(self) -> None:
        woken, self._waiting = list(self._waiting), {}
        _wake(woken)


def _wake(waiters: list[asyncio.Future[None]]) -> None:
    """Wake a few streams in each pass of the event loop, since each has something to send."""
    for _ in range(min(_WOKEN, len(waiters))):
        waiter = waiters.pop()
        if not waiter.done():
            waiter.set_result(None)
    if waiters:
        asyncio.get_running_loop().call_soon(_wake, waiters)


class EventFeed:
    """The events of one process, for its streams.

    Args:
        streams_per_key: Most open streams of one key, whatever the limit of its project.
    """

    def __init__(self, database: Database, *, streams_per_key: int = 1000) -> None:
        self._database = database
        self._streams_per_key = streams_per_key
        self._open: Counter[Owner] = Counter()
        self._topics: dict[tuple[Kind, str], Topic] = {}
        #: Task that looks repeatedly while any resource is watched.
        self.looking: asyncio.Task[None] | None = None
        self._closed = False
        self._shared = Recent(self._read, _SHARED_S, _MOST_SHARED)

    async def newest(self, kind: Kind, resource_id: str) -> int:
        """Number of the last event of a resource.

        Raises:
            NotFoundError: There is no such resource.
        """
        async with self._database.reading() as uow:
            found = await uow.events.newest(kind, [resource_id])
        if resource_id not in found:
            raise NotFoundError(kind, resource_id)
        return found[resource_id]

    async def since(self, kind: Kind, resource_id: str, seen: int) -> list[StoredEvent]:
        """Events after number `seen`, in order; of many, only the first."""
        kept = self._kept(kind, resource_id, seen)
        return await self._read((kind, resource_id, seen)) if kept is None else kept

    async def story(self, kind: Kind, resource_id: str, seen: int) -> list[StoredEvent]:
        """Like `since`, for streams; events of the last moment may be missing.

        Streams that begin together share one reading, and get the same events.
        """
        kept = self._kept(kind, resource_id, seen)
        return await self._shared.get((kind, resource_id, seen)) if kept is None else kept

    def _kept(self, kind: Kind, resource_id: str, seen: int) -> list[StoredEvent] | None:
        topic = self._topics.get((kind, resource_id))
        return topic.kept(seen) if topic else None

    async def _read(self, asked: tuple[Kind, str, int]) -> list[StoredEvent]:
        kind, resource_id, seen = asked
        async with self._database.reading() as uow:
            return (await uow.events.since(kind, {resource_id: seen})).get(resource_id, [])

    async def require_room(self, reader: Owner) -> None:
        """Refuse a stream to a key that has too many, or whose project has too many.

        Raises:
            TooManyStreamsError: The key, or the project acted for, is at its limit of streams.
        """
        async with self._database.reading() as uow:
            allotment = await uow.projects.allotment("event_streams", reader.key_id)
        own = self._open[reader]
        why = None
        if own >= self._streams_per_key:
            why = (
                f"This key has {own} event streams open at this process, as many as one key may "
                f"have: {self._streams_per_key}."
            )
        elif allotment is not None:
            taken = sum(n for one, n in self._open.items() if one.project_id == reader.project_id)
            why = allotment.refusal("event streams open at this process", own=own, taken=taken)
        if why:
            raise TooManyStreamsError(f"{why} Close some, or poll with ?after=<seq>.")

    @contextmanager
    def watching(self, kind: Kind, resource_id: str, newest: int, reader: Owner) -> Iterator[Topic]:
        """Watch a resource for as long as the block runs.

        `newest` is the number of its last event, from the method of this name; `reader` owns the
        stream (see `require_room`).
        """
        key = (kind, resource_id)
        topic = self._topics.setdefault(key, Topic(newest))
        topic.watchers += 1
        self._open[reader] += 1
        if self._closed:
            topic.end()
        elif self.looking is None or self.looking.done():
            self.looking = asyncio.create_task(self._look_on(), name="event feed")
        try:
            yield topic
        finally:
            self._open[reader] -= 1
            if not self._open[reader]:
                del self._open[reader]
            topic.watchers -= 1
            if not topic.watchers:
                self._topics.pop(key, None)

    def close(self) -> None:
        """End all present and future streams, because the process stops."""
        self._closed = True
        for topic in self._topics.values():
            topic.end()

    async def aclose(self) -> None:
        """Do the same as `close`, and stop looking."""
        self.close()
        if self.looking is not None:
            self.looking.cancel()
            await asyncio.gather(self.looking, return_exceptions=True)

    async def _look_on(self) -> None:
        """Look repeatedly while any resource of any project is watched."""
        is_away = False
        try:
            while self._topics:
                await asyncio.sleep(AWAY_S if is_away else LOOK_S)
                try:
                    for kind in {kind for kind, _ in self._topics}:
                        with acting_for(EVERYBODY):
                            await self._look(kind)
                    is_away = False
                except DatabaseUnavailableError as error:
                    if not is_away:
                        _log.warning("event_streams_wait", reason=error.detail)
                    is_away = True
        finally:
            for topic in self._topics.values():
                topic.end()  # a stream that comes back starts a new task

    async def _look(self, kind: Kind) -> None:
        watched = {found: topic for (of, found), topic in self._topics.items() if of == kind}
        async with self._database.reading() as uow:
            newest = await uow.events.newest(kind, watched)
            for resource_id, topic in watched.items():
                if resource_id in newest:
                    topic.newest = newest[resource_id]
                else:
                    topic.end()
                    self._topics.pop((kind, resource_id), None)
            behind = {
                found: topic.taken
                for found, topic in watched.items()
                if not topic.gone and topic.newest > topic.taken
            }
            if not behind:
                return
            told = await uow.events.since(kind, behind, limit=_TAKEN)
        for resource_id, events in told.items():
            watched[resource_id].take(events)
