"""The clients: the same methods, synchronously and with asyncio."""

import asyncio
import functools
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import aclosing, closing
from typing import Any, Final, Generic, ParamSpec, Self, TypeVar, overload

import httpx2

from sextant_client import operations
from sextant_client.answering import Loop
from sextant_client.models import Answer, Event, Item, Session
from sextant_client.requests import Flow, Pause, Request, Server, Step

P = ParamSpec("P")
T = TypeVar("T")
H = TypeVar("H", httpx2.Client, httpx2.AsyncClient)

#: Most items that a test by hand has in flight.
_MOST_IN_FLIGHT = 64
_TIMEOUT_S = 60.0
#: Collections by what the ids of their resources begin with.
_COLLECTIONS: Final = {"ses": "sessions", "rnk": "rankings", "cal": "calibrations"}
#: Seconds between two streams that tell nothing: the server cannot read them for now.
_QUIET_S: Final = 1.0


class operation(Generic[P, T]):  # noqa: N801 (stands where a function would)
    """A method of both clients, made from its flow of requests.

    Attributes:
        flow: Creates the requests.
    """

    def __init__(self, flow: Callable[P, Flow[T]]) -> None:
        self.flow = flow

    @overload
    def __get__(self, client: "Sextant", owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: "AsyncSextant", owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> Self: ...

    def __get__(self, client: "Sextant | AsyncSextant | None", owner: object = None) -> Any:
        """The method of a client."""
        if client is None:
            return self

        @functools.wraps(self.flow)
        def method(*args: P.args, **kwargs: P.kwargs) -> Any:
            return client.run(self.flow(*args, **kwargs))

        return method


class Client(Generic[H]):
    """Base of both clients.

    Args:
        url: Address of the server; by default the variable SEXTANT_SERVER.
        api_key: API key; by default SEXTANT_API_KEY. Empty for none.
        project: Project to work in, for keys of all projects; by default SEXTANT_PROJECT.
        retries: How often a request is sent again if no answer comes or the server is busy, after
            pauses that grow from a quarter of a second. Nothing counts twice.
        http: Your own HTTP client, for a proxy, certificates or other timeouts.

    Raises:
        ValueError: The address is missing or not valid, or key or project cannot be a header.
    """

    _kind: type[H]

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        project: str | None = None,
        retries: int = 6,
        http: H | None = None,
    ) -> None:
        self.server = Server.named(url, api_key, project, retries)
        self._given: H | None = http
        self._own: dict[int, H] = {}

    @property
    def _http(self) -> H:
        """The HTTP client of this process: two that share a connection get each other's answers."""
        own = self._own.get(os.getpid())
        # Of two threads that ask first, one makes the client of both.
        return own or self._own.setdefault(os.getpid(), self._given or self._connected())

    def _connected(self) -> H:
        # Without TLS nobody is trusted: to read the system's store takes longer than a call.
        plain = self.server.url.startswith("http:")
        verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if plain else True
        return self._kind(timeout=_TIMEOUT_S, trust_env=False, verify=verify)

    request = operation(operations.request)
    download = operation(operations.download)
    list_all = operation(operations.list_all)
    change = operation(operations.change)
    remove = operation(operations.remove)
    create_session = operation(operations.create_session)
    get_session = operation(operations.get_session)
    list_sessions = operation(operations.list_sessions)
    list_responses = operation(operations.list_responses)
    wait_for_session = operation(operations.wait_for_session)
    extend_session = operation(operations.extend_session)
    cancel_session = operation(operations.cancel_session)
    get_next_items = operation(operations.get_next_items)
    answer_item = operation(operations.answer_item)
    release_item = operation(operations.release_item)
    create_ranking = operation(operations.create_ranking)
    get_ranking_items = operation(operations.get_ranking_items)
    get_ranking = operation(operations.get_ranking)
    list_rankings = operation(operations.list_rankings)
    wait_for_ranking = operation(operations.wait_for_ranking)
    cancel_ranking = operation(operations.cancel_ranking)
    create_gate = operation(operations.create_gate)
    get_gate = operation(operations.get_gate)
    list_gates = operation(operations.list_gates)
    get_leaderboard = operation(operations.get_leaderboard)
    compare = operation(operations.compare)
    list_banks = operation(operations.list_banks)
    get_bank = operation(operations.get_bank)
    match_items = operation(operations.match_items)
    create_calibration = operation(operations.create_calibration)
    get_calibration = operation(operations.get_calibration)
    list_calibrations = operation(operations.list_calibrations)
    wait_for_calibration = operation(operations.wait_for_calibration)
    cancel_calibration = operation(operations.cancel_calibration)


class _Feed:
    """Events of one resource; after a lost connection it continues after the last one.

    Args:
        server: Server of the events.
        resource_id: Id of a session, a ranking or a calibration.
        after: Number of the event to start after.

    Raises:
        ValueError: It is not such an id.
    """

    def __init__(self, server: Server, resource_id: str, after: int) -> None:
        collection = _COLLECTIONS.get(resource_id.partition("_")[0])
        if collection is None:
            raise ValueError(
                f"resource_id: expected the id of a session, a ranking or a calibration, got "
                f"{resource_id!r}."
            )
        self._path = f"/v1/{collection}/{resource_id}/events"
        self._server, self._seen = server, after
        self._failures, self._heard = 0, False

    def request(self) -> Request[Any]:
        """Request for the next stream."""
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(self._seen)}
        return Request("GET", self._path, lambda answer: answer, headers=headers)

    def take(self, sent: httpx2.ServerSentEvent) -> Event:
        """Take one event of the stream."""
        self._seen, self._failures, self._heard = int(sent.id), 0, True
        return Event(seq=self._seen, type=sent.event, data=json.loads(sent.data))

    def pause_after(self, outcome: httpx2.Response | httpx2.HTTPError) -> float:
        """Seconds to wait before the next stream; longer after one without events.

        Raises:
            SextantError: There will be no further stream.
        """
        heard, self._heard = self._heard, False
        if isinstance(outcome, httpx2.Response) and outcome.is_success:
            return 0.0 if heard else _QUIET_S
        self._failures += 1
        return self._server.pause_after(outcome, "GET", self._failures - 1)


class Sextant(Client[httpx2.Client]):
    """A client of one Sextant server; threads may share it. Arguments are those of `Client`."""

    _kind = httpx2.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow, and return its result."""
        steps = self.server.attempts(flow)
        try:
            step = next(steps)
            while True:
                step = steps.send(self._outcome(step))
        except StopIteration as end:
            result: T = end.value
            return result

    def _outcome(self, step: Step) -> httpx2.Response | httpx2.HTTPError | None:
        if isinstance(step, Pause):
            time.sleep(step.seconds)
            return None
        try:
            return self._http.send(self.server.build(self._http, step))
        except httpx2.HTTPError as error:
            return error

    def events(self, resource_id: str, *, after: int = 0) -> Iterator[Event]:
        """Events of a session, a ranking or a calibration as they happen, until it ends.

        After a lost connection it reconnects and continues after the last event.

        Args:
            resource_id: Id of the session, ranking or calibration.
            after: Number of the event to start after.
        """
        feed = _Feed(self.server, resource_id, after)
        while True:
            try:
                with closing(self._open(feed.request())) as answer:
                    if answer.status_code == httpx2.codes.NO_CONTENT:
                        return
                    if answer.is_success:
                        yield from map(feed.take, httpx2.EventSource(answer))
                    else:
                        answer.read()
                    pause = feed.pause_after(answer)
            except httpx2.HTTPError as error:
                pause = feed.pause_after(error)
            time.sleep(pause)

    def _open(self, request: Request[Any]) -> httpx2.Response:
        return self._http.send(self.server.build(self._http, request), stream=True)

    def answer_all(self, session_id: str, solve: Callable[[Item], Answer]) -> Session:
        """Answer a manual test until it ends, with as many items at once as it allows.

        If `solve` fails, no further item is begun. Items in progress are finished and sent; then
        the error is raised. Call it again to continue.

        Args:
            session_id: Id of the test, which another program may have begun.
            solve: Returns the answer to an item; called in threads.
        """
        loop, failure = Loop(session_id), None
        with ThreadPoolExecutor(_MOST_IN_FLIGHT) as pool:
            running: dict[Future[Answer], Item] = {}
            new = self.run(loop.awaited())
            while new or running:
                running |= {pool.submit(solve, item): item for item in new}
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                new = []
                for task in done:
                    item = running.pop(task)
                    failure = failure or task.exception()
                    if task.exception() is None:
                        new += self.run(loop.tell(item, task.result()))
                new = [] if failure else new
        return _ended(loop, failure)


class AsyncSextant(Client[httpx2.AsyncClient]):
    """A client with asyncio: the same methods, awaited. Arguments are those of `Client`."""

    _kind = httpx2.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(self, flow: Flow[T]) -> T:
        """Send the requests of a flow, and return its result."""
        steps = self.server.attempts(flow)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._outcome(step))
        except StopIteration as end:
            result: T = end.value
            return result

    async def _outcome(self, step: Step) -> httpx2.Response | httpx2.HTTPError | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        try:
            return await self._http.send(self.server.build(self._http, step))
        except httpx2.HTTPError as error:
            return error

    async def events(self, resource_id: str, *, after: int = 0) -> AsyncIterator[Event]:
        """Events of a session, a ranking or a calibration, like `Sextant.events`."""
        feed = _Feed(self.server, resource_id, after)
        while True:
            try:
                async with aclosing(await self._open(feed.request())) as answer:
                    if answer.status_code == httpx2.codes.NO_CONTENT:
                        return
                    if answer.is_success:
                        async for sent in httpx2.EventSource(answer):
                            yield feed.take(sent)
                    else:
                        await answer.aread()
                    pause = feed.pause_after(answer)
            except httpx2.HTTPError as error:
                pause = feed.pause_after(error)
            await asyncio.sleep(pause)

    async def _open(self, request: Request[Any]) -> httpx2.Response:
        return await self._http.send(self.server.build(self._http, request), stream=True)

    async def answer_all(
        self, session_id: str, solve: Callable[[Item], Awaitable[Answer]]
    ) -> Session:
        """Answer a manual test until it ends, like `Sextant.answer_all`, in tasks."""

        async def solved(item: Item) -> Answer:
            return await solve(item)

        loop, failure = Loop(session_id), None
        running: dict[asyncio.Task[Answer], Item] = {}
        try:
            new = await self.run(loop.awaited())
            while new or running:
                running |= {asyncio.create_task(solved(item)): item for item in new}
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                new = []
                for task in done:
                    item = running.pop(task)
                    failure = failure or task.exception()
                    if task.exception() is None:
                        new += await self.run(loop.tell(item, task.result()))
                new = [] if failure else new
        finally:
            for task in running:
                task.cancel()
        return _ended(loop, failure)


def _ended(loop: Loop, failure: BaseException | None) -> Session:
    if failure is not None or loop.session is None:
        raise failure or AssertionError("the loop has looked at its session")
    return loop.session
