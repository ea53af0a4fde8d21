"""An endpoint that one key moves while another key's session asks it, over a real server."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.cli.servers.server import serving as served
from app.records.api_keys import Scope
from app.services.endpoints import calls
from app.settings import Settings
from tests.api.conftest import Client
from tests.servers import serving
from tests.waiting import waiting
from tests.worker.test_changed_endpoints import Model, usage
from tests.worker.test_repeats_and_cache import N_ITEMS, install


class Place(NamedTuple):
    """A server with a worker, and clients of two keys that may run, and of an admin."""

    first: Client
    second: Client
    admin: Client


@pytest.fixture
async def place(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Place]:
    monkeypatch.setattr(calls, "LOOK_EVERY_S", 0.0)
    settings = Settings(database_url=database_url, data_dir=tmp_path, port=0)
    async with served(settings, worker=True) as local:
        await install(local.services)
        clients = []
        for scopes in ([Scope.READ, Scope.RUN], [Scope.READ, Scope.RUN], [Scope.ADMIN]):
            _, key = await local.services.api_keys.create(name="of a test", scopes=scopes)
            headers = {"Authorization": f"Bearer {key}"}
            clients.append(Client(base_url=local.base_url, headers=headers, timeout=240))
        async with clients[0], clients[1], clients[2]:
            yield Place(*clients)


async def saved(client: Client, url: str, name: str = "model") -> dict[str, Any]:
    body = {"name": name, "kind": "openai_chat", "base_url": f"{url}/v1", "model": "m"}
    answer = await client.post("/v1/endpoints", json={**body, "api_key": "key-of-the-model"})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def alike(client: Client) -> Client:
    """A client of the same key, for the event loop of a model's server."""
    return Client(base_url=client.base_url, headers=client.headers, timeout=240)


async def moved(client: Client, endpoint: dict[str, Any], url: str) -> int:
    """The status of the attempt."""
    path, change = f"/v1/endpoints/{endpoint['id']}", {"base_url": f"{url}/v1"}
    async with alike(client) as mine:
        match = {"If-Match": (await mine.get(path)).headers["etag"]}
        answer = await mine.patch(path, json={**change, "api_key": "of-the-other"}, headers=match)
    return answer.status_code


async def begun(client: Client, endpoint: dict[str, Any], **plan: Any) -> str:
    stopping = {"se": None, "min_items": 1, "max_items": N_ITEMS}
    body = {"bank": "sums", "endpoint_id": endpoint["id"], "stopping": stopping, "concurrency": 1}
    answer = await client.post("/v1/sessions", json={**body, **plan})
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def ended(client: Client, session: str) -> dict[str, Any]:
    async with waiting(240) as pause:
        while True:
            found: dict[str, Any] = (await client.get(f"/v1/sessions/{session}")).json()
            if found["status"] in ("completed", "failed"):
                return found
            await pause()


async def test_another_key_cannot_change_the_endpoint_of_a_session_under_way(place: Place) -> None:
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    refused: list[int] = []
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(place.first, url)

        async def attack() -> None:
            refused.append(await moved(place.second, endpoint, elsewhere))
            path, match = f"/v1/endpoints/{endpoint['id']}", {"If-Match": '"1"'}
            async with alike(place.second) as mine:
                refused.append((await mine.delete(path, headers=match)).status_code)

        honest.after[3] = attack
        found = await ended(place.first, await begun(place.first, endpoint))
    assert refused == [403, 403]
    assert found["status"] == "completed", found
    assert len(honest.seen) == N_ITEMS
    assert other.seen == []


@pytest.mark.parametrize("who", ["first", "admin"])
async def test_the_session_of_another_key_ends_where_its_endpoint_moves(
    place: Place, who: str
) -> None:
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    statuses: list[int] = []
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        endpoint = await saved(place.first, url)

        async def move() -> None:
            mover: Client = getattr(place, who)
            statuses.append(await moved(mover, endpoint, elsewhere))

        honest.after[7] = move
        session = await begun(place.second, endpoint)
        found = await ended(place.second, session)
        answers = (await place.second.get(f"/v1/sessions/{session}/responses")).json()["data"]
        board = (await place.second.get("/v1/banks/sums/leaderboard")).json()
    assert statuses == [200]
    assert found["status"] == "failed"
    assert found["failure"]["code"] == "endpoint_moved"
    assert "start it anew" in found["failure"]["detail"]
    assert other.seen == []
    assert {key for key, _ in honest.seen} == {"Bearer key-of-the-model"}
    told = [answer["method"] for answer in answers if answer["outcome"] == "scored"]
    assert told == [{"endpoint_revision": 1}] * 7
    assert found["provenance"]["endpoint"]["base_url"] == f"{url}/v1"
    assert board["data"] == []


async def test_no_answer_of_a_moved_endpoint_is_kept_for_the_next_key(place: Place) -> None:
    honest, other = Model(usage=usage()), Model("5", usage=usage())
    with serving(honest.app) as url, serving(other.app) as elsewhere:
        attacked = await saved(place.first, url)

        async def move() -> None:
            assert await moved(place.first, attacked, elsewhere) == 200

        honest.after[1] = move
        await ended(place.first, await begun(place.first, attacked, cache=True))
        n_before = len(honest.seen)
        victim = await saved(place.second, url, "victim")
        session = await begun(place.second, victim, cache=True)
        found = await ended(place.second, session)
        answers = (await place.second.get(f"/v1/sessions/{session}/responses")).json()["data"]
    assert found["status"] == "completed", found
    assert [answer["score"] for answer in answers] == [1.0] * N_ITEMS
    # The one answer that came before the move may have been kept: it is of that address.
    assert len(honest.seen) - n_before >= N_ITEMS - 1
    assert other.seen == []
