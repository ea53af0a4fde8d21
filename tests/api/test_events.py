"""Event streams resume, end, and are the same to those who poll."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI, Request, Response

from app.api import errors, events
from app.api.schemas.common import EventList
from app.errors import UnauthenticatedError
from app.main import ApiServer


@dataclass(frozen=True)
class Event:
    seq: int
    type: str
    data: dict[str, Any] = field(default_factory=dict)
    created_at: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Story:
    """What happened so far, and who looks."""

    events: list[Event] = field(default_factory=list)
    fetches: int = 0
    closed_to_readers: bool = False
    #: Set: looks beyond the first one never end.
    hangs: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, kind: str, **data: Any) -> None:
        self.events.append(Event(len(self.events) + 1, kind, data))

    async def fetch(self, after: int) -> Sequence[Event]:
        self.fetches += 1
        if self.hangs and self.fetches > 1:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.left.set()
                raise
        return [event for event in self.events if event.seq > after][:3]  # a part of many

    async def check(self) -> None:
        if self.closed_to_readers:
            raise UnauthenticatedError("The API key was revoked.")


def ended(event: events.StoredEvent) -> bool:
    return event.type == "done"


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.fixture
def app(story: Story) -> FastAPI:
    app = FastAPI()
    app.state.closing = asyncio.Event()
    errors.install(app)

    @app.get("/events")
    async def stream(request: Request, after: int = 0) -> Response:
        return await events.event_stream(
            request, story.fetch, ended, after=after, check=story.check
        )

    @app.get("/list")
    async def listed(after: int = 0) -> EventList:
        return await events.event_list(story.fetch, ended, after=after)

    return app


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
async def server(app: FastAPI, listener: socket.socket) -> AsyncIterator[ApiServer]:
    """The application behind a real server: streams need one that lets clients leave."""
    server = ApiServer(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=30), app)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    yield server
    server.should_exit = True
    await asyncio.wait_for(task, 60)


@pytest.fixture
async def client(server: ApiServer, listener: socket.socket) -> AsyncIterator[httpx2.AsyncClient]:
    port = listener.getsockname()[1]
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        yield client


def frames(text: str) -> list[str]:
    return [frame for frame in text.split("\n\n") if frame]


async def test_a_stream_gives_every_event_and_ends_with_the_last(
    client: httpx2.AsyncClient, story: Story
) -> None:
    for number in range(7):
        story.add("step", number=number, text="zwei\nZeilen")
    story.add("done")
    response = await client.get("/events")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    first, *rest = frames(response.text)
    assert first == "retry: 3000"
    assert rest[0] == 'event: step\ndata: {"number": 0, "text": "zwei\\nZeilen"}\nid: 1'
    assert [frame.rsplit("id: ")[1] for frame in rest] == [str(n) for n in range(1, 9)]


async def test_a_reconnect_goes_on_behind_the_last_event_seen(
    client: httpx2.AsyncClient, story: Story
) -> None:
    for _ in range(5):
        story.add("step")
    story.add("done")
    response = await client.get("/events", headers={"Last-Event-ID": "4"})
    assert [frame.rsplit("id: ")[1] for frame in frames(response.text)[1:]] == ["5", "6"]
    same = await client.get("/events?after=4")
    assert same.text == response.text


async def test_a_reconnect_after_the_end_is_told_to_stop(
    client: httpx2.AsyncClient, story: Story
) -> None:
    story.add("step")
    story.add("done")
    response = await client.get("/events", headers={"Last-Event-ID": "2"})
    assert response.status_code == 204


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 40])
async def test_an_id_that_was_never_sent_is_refused(client: httpx2.AsyncClient, given: str) -> None:
    response = await client.get("/events", headers={"Last-Event-ID": given})
    assert response.status_code == 422
    assert response.json()["errors"][0]["pointer"] == "/header/Last-Event-ID"


async def test_events_that_come_later_are_streamed_when_they_come(
    client: httpx2.AsyncClient, story: Story
) -> None:
    story.add("step")
    async with client.stream("GET", "/events") as response:
        lines = response.aiter_lines()
        seen = [line async for line in _until(lines, "id: 1")]
        story.add("done")
        seen += [line async for line in lines]
    assert "event: done" in seen


async def _until(lines: AsyncIterator[str], last: str) -> AsyncIterator[str]:
    async for line in lines:
        yield line
        if line == last:
            return


async def test_a_silent_stream_is_kept_alive_by_comments(
    client: httpx2.AsyncClient, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(events, "POLL_S", 0.01)
    async with client.stream("GET", "/events") as response:
        seen = [line async for line in _until(response.aiter_lines(), ": ping")]
    assert seen[-1] == ": ping"


async def test_a_client_that_leaves_is_no_longer_served(
    client: httpx2.AsyncClient, story: Story
) -> None:
    story.hangs = True
    async with client.stream("GET", "/events") as response:
        async for line in response.aiter_lines():
            if line.startswith("retry"):
                break
    await asyncio.wait_for(story.left.wait(), 60)


async def test_a_server_that_stops_ends_its_streams_at_once(
    server: ApiServer, client: httpx2.AsyncClient, story: Story
) -> None:
    story.add("step")
    async with client.stream("GET", "/events") as response:
        lines = response.aiter_lines()
        async for line in lines:
            if line.startswith("id: 1"):
                break
        server.should_exit = True
        # Ended by the server, and cleanly: a cut connection would raise here.
        rest = [line async for line in lines]
    assert not [line for line in rest if line.startswith("event")]


async def test_those_who_poll_get_the_same_events(client: httpx2.AsyncClient, story: Story) -> None:
    for _ in range(4):
        story.add("step")
    story.add("done")
    after, types, over = 0, [], False
    while not over:
        page = (await client.get("/list", params={"after": after})).json()
        types += [event["type"] for event in page["data"]]
        after, over = page["last_seq"], page["ended"]
    assert types == ["step"] * 4 + ["done"]
    again = (await client.get("/list", params={"after": after})).json()
    assert (again["data"], again["last_seq"], again["ended"]) == ([], 5, True)


async def test_a_stream_ends_soon_after_its_readers_key_was_revoked(
    client: httpx2.AsyncClient, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "RECHECK_S", 0.0)
    story.add("step")
    story.closed_to_readers = True
    response = await client.get("/events")
    assert response.status_code == 200
    assert "done" not in response.text
