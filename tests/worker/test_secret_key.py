"""A wrong or lost secret key: what waits and says why, what goes on, and the recovery."""

import asyncio
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography.fernet import Fernet
from pydantic import SecretStr

from app.demo.model_server import create_model_server
from app.errors import SecretsError
from app.items import Answer, ItemContent, ScorerSpec
from app.records.api_keys import Scope
from app.services.api_keys import ApiKeyService
from app.services.container import Services
from app.services.secret_keys import SecretKeys
from app.services.sessions.manual import ManualAnswer
from app.settings import Settings
from app.storage.database import Database
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from tests.api.calls import got, posted, problem_of, refusal_of
from tests.servers import serving
from tests.servers.forked import Forked
from tests.services.judged import judged_bank, marker
from tests.services.sessions import by_hand, length, spec, until
from tests.values import not_none
from tests.waiting import waiting
from tests.worker.sessions import environment, rescored, said_in

KEY_A, KEY_B, KEY_C = ("QUFB" * 10 + "QUE=", "QkJC" * 10 + "QkI=", "Q0ND" * 10 + "Q0M=")
MODEL_KEY = "sk-the-model-wants-this"


def with_key(settings: Settings, key: str | None) -> dict[str, str]:
    return environment(settings) | ({"SEXTANT_SECRET_KEY": key} if key else {})


@asynccontextmanager
async def serve(
    settings: Settings, secret: str, key: str | None
) -> AsyncIterator[tuple[httpx2.AsyncClient, Path]]:
    """Run a server with this secret key and a client of it; SIGTERM at the end."""
    told = settings.data_dir / "stderr.txt"
    with told.open("wb") as stderr:
        command = ["sextant", "serve", "--port", "0"]
        process = Forked(command, env=with_key(settings, key), stderr=stderr)
    try:
        url = await said_in(told, process, r"listens on (\S+)")
        headers = {"Authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
            yield client, told
    finally:
        process.terminate()
        process.wait()


def rotate(settings: Settings, key: str | None) -> "subprocess.CompletedProcess[str]":
    command = ["sextant", "keys", "rotate-secret"]
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as wrong:
        process = Forked(command, env=with_key(settings, key), stdout=said, stderr=wrong)
        code = process.wait()
        texts = [file.read().decode() for file in (said, wrong) if file.seek(0) == 0]
    return subprocess.CompletedProcess(command, code, *texts)


async def session_when(client: httpx2.AsyncClient, session_id: str, *states: str) -> Any:
    async with waiting() as pause:
        while (found := await got(client, f"/v1/sessions/{session_id}"))["status"] not in states:
            assert found["status"] not in {"failed", "cancelled"}, found
            await pause()
    return found


@pytest.fixture
def key_file(settings: Settings) -> Path:
    return settings.data_dir / "secret.key"


def put(key_file: Path, keys: str) -> None:
    """Replace the key file of a server, as an operator does."""
    key_file.unlink(missing_ok=True)
    key_file.touch(0o600)
    key_file.write_text(keys)


def swapped(key_file: Path, keys: str | None = None) -> str:
    """Put these keys, or a new one, into a key file; return what it had."""
    before = key_file.read_text()
    put(key_file, keys or Fernet.generate_key().decode())
    return before


@pytest.fixture
async def secret(database: Database) -> str:
    """Return an API key with all scopes."""
    _, secret = await ApiKeyService(database).create(name="test", scopes=[Scope.ADMIN])
    return secret


@pytest.fixture
def model_url() -> Iterator[str]:
    app = create_model_server(theta=0.0, seed=7, latency_s=0.05, api_key=MODEL_KEY)
    with serving(app) as url:
        yield f"{url}/v1"


def endpoint(name: str, url: str) -> dict[str, Any]:
    return {
        "name": name, "kind": "openai_chat", "base_url": url, "model": "m", "api_key": MODEL_KEY,
    }  # fmt: skip


SESSION = {
    "bank": "demo",
    "stopping": {"se": None, "min_items": 40, "max_items": 40},
    "concurrency": 1,
    "seed": 1,
}


@pytest.mark.slow
async def test_a_wrong_key_loses_nothing(settings: Settings, secret: str, model_url: str) -> None:
    async with serve(settings, secret, KEY_A) as (client, told):
        made, patched = [
            await posted(client, "/v1/endpoints", endpoint(name, model_url))
            for name in ("model", "other")
        ]
        once: dict[str, Any] = {
            "json": SESSION | {"endpoint_id": made["id"]},
            "headers": {"Idempotency-Key": "once"},
        }
        started = await client.post("/v1/sessions", **once)
        assert started.status_code == 202, started.text
        ours, with_other = started.json()["id"], SESSION | {"endpoint_id": patched["id"]}
        theirs = (await posted(client, "/v1/sessions", with_other))["id"]
        await session_when(client, ours, "running")
        assert "Warning" not in told.read_text()
        assert (await client.get("/readyz")).json()["secrets"] == "ok"

    async with serve(settings, secret, KEY_B) as (client, told):
        assert "Warning: A stored secret was encrypted with another key" in told.read_text()
        assert "rotate-secret" in told.read_text()
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["secrets"]) == (200, "unreadable")
        for path in ("/v1/endpoints", f"/v1/sessions/{ours}/responses", "/v1/banks"):
            assert (await client.get(path)).status_code == 200
        await session_when(client, ours, "waiting")
        for path, body in (
            ("/v1/sessions", with_other),
            (f"/v1/endpoints/{patched['id']}:probe", None),
        ):
            await problem_of(client, path, body, 503, "secrets_error", says="PATCH")
        await refusal_of(client.post("/v1/sessions", **once), 503, "secrets_error")
        for verb in ("pause", "resume"):
            await posted(client, f"/v1/sessions/{ours}:{verb}", None)
        await session_when(client, ours, "waiting")

        path = f"/v1/endpoints/{patched['id']}"
        renamed = await client.patch(path, json={"model": "n"}, headers={"If-Match": '"1"'})
        assert renamed.status_code == 200, renamed.text
        cured = await client.patch(
            path, json={"api_key": MODEL_KEY}, headers={"If-Match": renamed.headers["etag"]}
        )
        assert cured.status_code == 200, cured.text
        done = await session_when(client, theirs, "completed")
        assert done["progress"]["items"] == 40

    listed = await asyncio.to_thread(rotate, settings, KEY_B)
    assert listed.returncode == 1
    assert made["id"] in listed.stderr
    assert patched["id"] not in listed.stderr

    async with serve(settings, secret, f"{KEY_C},{KEY_B},{KEY_A}") as (client, told):
        assert "Warning" not in told.read_text()
        done = await session_when(client, ours, "completed")
        assert done["progress"]["items"] == 40
        repeated = await client.post("/v1/sessions", **once)
        assert repeated.headers["idempotent-replayed"] == "true"
        rotated = await asyncio.to_thread(rotate, settings, f"{KEY_C},{KEY_B},{KEY_A}")
        assert rotated.returncode == 0, rotated.stderr

    async with serve(settings, secret, KEY_C) as (client, told):
        assert "Warning" not in told.read_text()
        for one in (made, patched):
            await posted(client, f"/v1/endpoints/{one['id']}:probe", None)


@pytest.mark.slow
async def test_a_lost_key_file_is_reported_and_a_rotation_reaches_a_running_server(
    settings: Settings, secret: str, model_url: str
) -> None:
    key_file = settings.data_dir / "secret.key"
    async with serve(settings, secret, None) as (client, told):
        made = await posted(client, "/v1/endpoints", endpoint("model", model_url))
        before = key_file.read_text()
        rotated = await asyncio.to_thread(rotate, settings, None)
        assert rotated.returncode == 0, rotated.stderr
        assert key_file.stat().st_mode & 0o777 == 0o600
        assert key_file.read_text().split()[1:] == before.split()
        probe = f"/v1/endpoints/{made['id']}:probe"
        assert (await client.post(probe)).status_code == 200

    kept = key_file.read_text()
    key_file.unlink()
    async with serve(settings, secret, None) as (client, told):
        assert f"there is no key file {key_file}" in told.read_text()
        assert not key_file.exists()
        assert (await client.post(probe)).status_code == 503
        put(key_file, kept)
        assert (await client.post(probe)).status_code == 200


PLAN = length(8, concurrency=2)


async def test_sessions_wait_for_a_key(services: Services, key_file: Path, model_url: str) -> None:
    saved = await marker(services, model_url, name="model", api_key=MODEL_KEY)
    made = await services.sessions.create(spec(endpoint=None, endpoint_id=saved.id, plan=PLAN))
    right = swapped(key_file)
    async with running_worker(services):
        waiting = await until(services, made.id, "waiting")
        assert "SEXTANT_SECRET_KEY" in not_none(waiting.waiting_reason)
        with pytest.raises(SecretsError):
            await services.sessions.create(spec(endpoint=None, endpoint_id=saved.id, plan=PLAN))
        put(key_file, right)
        await until(services, made.id, "completed")
    kinds = [event.type for event in await services.sessions.events(made.id)]
    assert kinds.count("session.waiting") == 1


async def test_scoring_waits_for_a_key(services: Services, key_file: Path, model_url: str) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    await judged_bank(services, "judge", judges=["judge"])
    made = await services.sessions.create(spec(bank="judged", plan=PLAN))
    right = swapped(key_file)
    async with running_worker(services):
        await until(services, made.id, "waiting")
        put(key_file, right)
        ended = await until(services, made.id, "completed")
        assert ended.summary["outcomes"]["scored"] == 8

        swapped(key_file)
        again = await rescored(services, made.id, None, "waiting")
        put(key_file, right)
        marked = await until(services, again.id, "completed")
    assert marked.summary["rescore"]["changed"] == 0


async def test_a_waiting_client_is_told(services: Services, key_file: Path, model_url: str) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    await judged_bank(services, "judge", judges=["judge"])
    made = await by_hand(services, length(8), bank="judged")
    asked = await services.manual_sessions.next_item(made.id)
    answer = ManualAnswer(step_token=asked.step_token, response="It is so.")
    right = swapped(key_file)
    with pytest.raises(SecretsError):
        await services.manual_sessions.answer(made.id, answer)
    judge, content = ScorerSpec("judge", {"judges": ["judge"]}), ItemContent(prompt="?")
    with pytest.raises(SecretsError):
        await services.scorer_trials.mark(judge, content, Answer(text="a"))
    put(key_file, right)
    await services.manual_sessions.answer(made.id, answer)


async def test_no_wrong_key_is_accepted(services: Services, key_file: Path, model_url: str) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    right = swapped(key_file)
    with pytest.raises(SecretsError, match="rotate-secret"):
        await services.secret_keys.check()
    assert await services.secret_keys.state() == "ok"  # not known yet
    put(key_file, right)
    await services.secret_keys.check()
    swapped(key_file)
    with pytest.raises(SecretsError, match="rotate-secret"):
        await services.secret_keys.check()
    assert await services.secret_keys.state() == "unreadable"


async def test_an_interrupted_rotation_loses_nothing_and_continues(
    services: Services, settings: Settings, model_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = services.database
    saved = [
        await marker(services, model_url, name=name, api_key=MODEL_KEY) for name in ("a", "b", "c")
    ]
    await services.secret_keys.check()
    for name in ("take_new_key", "renewed", "forget_old_keys"):

        def fall(*_: object) -> None:
            raise RuntimeError("cut off")

        with monkeypatch.context() as patch:
            patch.setattr(SecretBox, name, fall)
            with pytest.raises(RuntimeError):
                await SecretKeys(database, SecretBox(settings)).rotate()
        fresh = SecretBox(settings)
        await SecretKeys(database, fresh).check()
        for endpoint in saved:
            assert (await services.endpoints.ready(endpoint.id)).config.api_key == MODEL_KEY
    done = await SecretKeys(database, SecretBox(settings)).rotate()
    assert (done.endpoints, done.unreadable) == (3, [])
    keys = (settings.data_dir / "secret.key").read_text().split()
    assert len(keys) == 2
    newest = SecretBox(settings.model_copy(update={"secret_key": SecretStr(keys[0])}))
    for endpoint in saved:
        sealed = (await services.endpoints.get(endpoint.id)).sealed.api_key
        assert newest.decrypt(not_none(sealed)) == MODEL_KEY


async def test_unreadable_secrets_stay(services: Services, key_file: Path, model_url: str) -> None:
    lost = await marker(services, model_url, name="lost", api_key=MODEL_KEY)
    right = swapped(key_file)
    kept = await marker(services, model_url, name="kept", api_key=MODEL_KEY)
    done = await services.secret_keys.rotate()
    ((unreadable, names),) = done.unreadable
    assert (unreadable.id, names) == (lost.id, ("api_key",))
    assert (await services.endpoints.get(lost.id)).sealed == lost.sealed
    assert (await services.endpoints.ready(kept.id)).config.api_key == MODEL_KEY
    await services.secret_keys.check()
    put(key_file, swapped(key_file, right) + right)
    assert (await services.endpoints.ready(lost.id)).config.api_key == MODEL_KEY
