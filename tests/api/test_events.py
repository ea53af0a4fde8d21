"""Event streams: they resume, end, match polling, and share their database reads."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from app.api import errors, events
from app.api.schemas.events import EventList
from app.deps import enter_as, identify
from app.errors import DatabaseUnavailableError, TooManyStreamsError, UnauthenticatedError
from app.fair_semaphore import Owner
from app.main import ApiServer
from app.records.leased import StoredEvent
from app.records.projects import Allotment, Limits
from app.services import event_feed
from app.services.event_feed import EventFeed, Topic
from app.services.visibility import View
from app.storage.database import Database
from tests.api.calls import got

POLL = {"Accept": "application/json"}
THEN = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Story:
    """Events of one session in place of a database; it records who reads."""

    events: list[StoredEvent] = field(default_factory=list)
    closed_to_readers: bool = False
    is_away: bool = False
    refused: asyncio.Event = field(default_factory=asyncio.Event)
    fetches: list[int] = field(default_factory=list)
    deleted: bool = False
    may_have: Allotment | None = None
    happens_after: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, **data: Any) -> None:
        self.events.append(StoredEvent(kind, data, len(self.events) + 1, THEN, withheld=False))

    def reading(self) -> Any:
        @asynccontextmanager
        async def opened() -> AsyncIterator[Any]:
            yield SimpleNamespace(events=self, projects=self)

        return opened()

    async def allotment(self, limit: str, key_id: str | None) -> Allotment | None:
        assert (limit, key_id is None) == ("event_streams", False)
        return self.may_have

    async def newest(self, kind: str, ids: Any) -> dict[str, int]:
        if self.is_away:
            self.refused.set()
            raise DatabaseUnavailableError("The database is away.")
        counted = {} if self.deleted else {"ses_1": len(self.events)}
        self._goes_on("newest")
        return counted

    async def since(
        self, kind: str, seen: Mapping[str, int], *, limit: int = 500
    ) -> dict[str, list[StoredEvent]]:
        self.fetches.append(seen["ses_1"])
        after = seen["ses_1"]
        read = {"ses_1": self.events[after : after + 3]}  # among other sessions
        self._goes_on("since")
        return read

    def _goes_on(self, read: str) -> None:
        for kind in self.happens_after.pop(read, []):
            self.add(kind)

    async def authenticate(self, secret: str) -> Any:
        if self.closed_to_readers:
            raise UnauthenticatedError("The API key was revoked.")
        return SimpleNamespace(
            id=f"key of {secret}", scopes=frozenset(), project_id="prj_1", limits=Limits()
        )


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "LOOK_S", 0.005)
    monkeypatch.setattr(event_feed, "AWAY_S", 0.005)


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def app(story: Story) -> FastAPI:
    app = FastAPI()
    feed = EventFeed(cast(Database, story), streams_per_key=3)
    app.state.feed = feed
    app.state.services = SimpleNamespace(settings=SimpleNamespace(auth="on"), api_keys=story)
    errors.install(app)

    @app.get("/events", response_model=None)
    async def told(request: Request, after: int = 0) -> Response | EventList:
        enter_as(request, await identify(request))  # as each route of the API does
        return await events.events_for(
            request, feed, "session", "ses_1", View(is_whole=True), after=after
        )

    return app


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
async def server(app: FastAPI, listener: socket.socket) -> AsyncIterator[ApiServer]:
    """Run the application on a real server, which lets clients of streams disconnect."""
    server = ApiServer(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=30), app)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield server
    server.should_exit = True
    await asyncio.wait_for(task, 60)


@pytest.fixture
async def client(server: ApiServer, listener: socket.socket) -> AsyncIterator[httpx2.AsyncClient]:
    port = listener.getsockname()[1]
    headers = {"Authorization": "Bearer one", "Accept": "text/event-stream"}
    async with httpx2.AsyncClient(
        base_url=f"http://127.0.0.1:{port}", timeout=60, headers=headers
    ) as client:
        yield client


def frames(text: str) -> list[str]:
    return [frame for frame in text.split("\n\n") if frame]


async def test_a_stream_ends_with_the_last_event(client: httpx2.AsyncClient, story: Story) -> None:
    for number in range(7):
        story.add("step", number=number, text="zwei\nZeilen")
    story.add("session.completed")
    response = await client.get("/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    first = 'retry: 3000\nevent: step\ndata: {"number": 0, "text": "zwei\\nZeilen"}\nid: 1'
    told = frames(response.text)
    assert told[0] == first  # no empty message comes first
    assert [frame.rsplit("id: ")[1] for frame in told] == [str(n) for n in range(1, 9)]


async def test_a_reconnect_continues_where_it_was(client: httpx2.AsyncClient, story: Story) -> None:
    for _ in range(5):
        story.add("step")
    story.add("session.completed")
    response = await client.get("/events", headers={"Last-Event-ID": "4"})
    assert [frame.rsplit("id: ")[1] for frame in frames(response.text)] == ["5", "6"]
    same = await client.get("/events?after=4")
    assert same.text == response.text
    for seen in ("6", "9"):  # after the end; nine: an event of another database
        response = await client.get("/events", headers={"Last-Event-ID": seen})
        assert response.status_code == 204


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 40])
async def test_an_id_that_was_never_sent_is_refused(client: httpx2.AsyncClient, given: str) -> None:
    response = await client.get("/events", headers={"Last-Event-ID": given})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/header/Last-Event-ID"


async def test_later_events_come_at_once(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    async with begun(client) as lines:
        story.add("session.completed")
        assert "event: session.completed" in [line async for line in lines]


async def _until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


@asynccontextmanager
async def begun(client: httpx2.AsyncClient) -> AsyncIterator[AsyncIterator[str]]:
    """Open a stream; yield its lines after those of the first event."""
    async with client.stream("GET", "/events") as response:
        lines = response.aiter_lines()
        assert [line async for line in _until(lines, "id: 1")]
        yield lines


async def test_a_silent_stream_is_kept_alive_by_comments(
    client: httpx2.AsyncClient, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)
    async with client.stream("GET", "/events") as response:
        seen = [line async for line in _until(response.aiter_lines(), ": ping")]
    assert seen[-1] == ": ping"


async def test_streams_share_reads_and_only_read_for_clients(
    client: httpx2.AsyncClient, story: Story, app: FastAPI
) -> None:
    story.add("step")
    feed: EventFeed = app.state.feed
    async with begun(client) as one, begun(client) as other:
        fetched = len(story.fetches)
        story.add("session.completed")
        for lines in (one, other):
            assert "id: 2" in [line async for line in lines]
    assert story.fetches[fetched:] == [1]  # once for both
    assert feed.looking is not None
    await asyncio.wait_for(feed.looking, 60)  # without readers the polling stops


async def test_streams_that_start_together_share_reads_and_events(
    client: httpx2.AsyncClient, story: Story, app: FastAPI
) -> None:
    for _ in range(4):
        story.add("step")
    feed: EventFeed = app.state.feed
    told = await asyncio.gather(*(feed.story("session", "ses_1", 0) for _ in range(3)))
    assert [event.seq for event in told[0]] == [1, 2, 3]
    assert told[0] == told[1] == told[2] == await feed.story("session", "ses_1", 0)
    assert story.fetches == [0]
    story.add("session.completed")
    assert len(await feed.since("session", "ses_1", 3)) == 2  # polling returns the current events
    response = await client.get("/events")
    assert [line for line in response.text.splitlines() if line.startswith("id: ")] == [
        f"id: {number}" for number in range(1, 6)
    ]


async def test_waiting_clients_are_woken_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "_WOKEN", 2)
    topic, n_woken = Topic(0), 0

    async def reader() -> None:
        nonlocal n_woken
        await topic.news(0, timeout_s=600)
        n_woken += 1

    readers = [asyncio.create_task(reader()) for _ in range(5)]
    readers[0].cancel()
    await asyncio.sleep(0)
    topic.take([StoredEvent("step", {}, 1, THEN, withheld=False)])
    seen = 0
    while n_woken < 4:
        await asyncio.sleep(0)
        assert n_woken <= seen + 2
        seen = n_woken
    await topic.news(1, timeout_s=0)  # nothing comes, and the wait keeps its timeout


async def test_streams_outlast_an_outage(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    async with begun(client) as lines:
        story.is_away = True
        for _ in range(5):
            story.add("step")
        await asyncio.wait_for(story.refused.wait(), 60)
        story.is_away = False
        story.add("session.completed")
        told = [line for line in [line async for line in lines] if line.startswith("id: ")]
    assert told == [f"id: {number}" for number in range(2, 8)]


async def test_a_stream_ends_with_its_session(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    async with begun(client) as lines:
        story.deleted = True
        assert not [line async for line in lines if line.startswith("event")]


async def test_streams_of_a_key_are_limited(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    async with AsyncExitStack() as streams:
        held = []  # dropping the reader closes its stream
        for _ in range(3):
            opened = await streams.enter_async_context(client.stream("GET", "/events"))
            held.append(opened.aiter_lines())
            assert [line async for line in _until(held[-1], "id: 1")]
        refused = await client.get("/events")
        assert refused.status_code == 429
        assert "This key has 3 event streams open" in refused.json()["detail"]
        assert refused.headers["retry-after"]
        asking = client.stream("GET", "/events", headers={"Authorization": "Bearer other"})
        opened = await streams.enter_async_context(asking)
        assert opened.status_code == 200


@pytest.mark.parametrize(("are_shared", "most_of_one"), [(False, 3), (True, 2)])
async def test_one_key_leaves_streams_to_other_keys_of_its_project(
    story: Story, are_shared: bool, most_of_one: int
) -> None:
    story.may_have = Allotment(
        limit="event_streams", project="search", most=3, are_shared=are_shared
    )
    feed = EventFeed(cast(Database, story), streams_per_key=100)
    greedy, modest, elsewhere = Owner("prj_1", "one"), Owner("prj_1", "two"), Owner("prj_2", "x")
    with ExitStack() as streams:

        async def opened(reader: Owner) -> None:
            await feed.require_room(reader)
            streams.enter_context(feed.watching("session", "ses_1", 0, reader))

        for _ in range(most_of_one):
            await opened(greedy)
        whose = "This key" if are_shared else "Project 'search'"
        refusal = f"{whose} has {most_of_one} event streams open.*limit event_streams: 3"
        with pytest.raises(TooManyStreamsError, match=refusal):
            await opened(greedy)
        await opened(elsewhere)
        if are_shared:
            await opened(modest)
        with pytest.raises(TooManyStreamsError, match="Project 'search' has 3"):
            await opened(modest)
    await feed.aclose()
    await feed.require_room(greedy)


async def test_a_server_that_stops_ends_its_streams_at_once(
    server: ApiServer, client: httpx2.AsyncClient, story: Story
) -> None:
    story.add("step")
    async with begun(client) as lines:
        server.should_exit = True
        # The server ends it cleanly: a cut connection would raise here.
        rest = [line async for line in lines]
    assert not [line for line in rest if line.startswith("event")]


async def polled(client: httpx2.AsyncClient) -> list[str]:
    """Return the kinds of all events."""
    after, types, over = 0, list[str](), False
    while not over:
        page = await got(client, "/events", params={"after": after}, headers=POLL)
        types += [event["type"] for event in page["data"]]
        after, over = page["last_seq"], page["ended"]
    return types


async def test_polling_returns_the_same_events(client: httpx2.AsyncClient, story: Story) -> None:
    for _ in range(4):
        story.add("step")
    story.add("session.completed")
    assert await polled(client) == ["step"] * 4 + ["session.completed"]
    again = await got(client, "/events", params={"after": 5}, headers=POLL)
    assert (again["data"], again["last_seq"], again["ended"]) == ([], 5, True)


async def test_polling_misses_no_late_event(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    story.happens_after["since"] = ["step", "session.completed"]
    assert await polled(client) == ["step", "step", "session.completed"]


async def test_a_reconnect_gets_a_late_last_event(client: httpx2.AsyncClient, story: Story) -> None:
    story.add("step")
    story.happens_after["newest"] = ["session.completed"]
    response = await client.get("/events", headers={"Last-Event-ID": "1"})
    assert [frame.rsplit("id: ")[1] for frame in frames(response.text)] == ["2"]


async def test_a_stream_ends_soon_after_its_readers_key_was_revoked(
    client: httpx2.AsyncClient, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RECHECK_S", 0.01)
    story.add("step")
    async with begun(client) as lines:
        story.closed_to_readers = True
        assert not [line async for line in lines if line.startswith("event")]
