"""Work with a secret that cannot be decrypted: it waits, gives the reason, and continues."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from fastapi import FastAPI
from pydantic import SecretStr

from app.demo.model_server import create_model_server
from app.errors import SecretsError
from app.items import Answer, ItemContent, ScorerSpec
from app.services.container import Services
from app.services.secret_keys import SecretKeys
from app.services.sessions.manual import ManualAnswer
from app.settings import Settings
from app.storage.database import Database
from app.storage.secrets import SecretBox
from app.worker.loop import running_worker
from tests.servers import serving
from tests.services.judged import judged_bank, marker
from tests.services.sessions import spec, until

MODEL_KEY = "sk-the-model-wants-this"
PLAN = {"stopping": {"se": None, "min_items": 1, "max_items": 8}, "concurrency": 2}


class KeyFile:
    """The key file of a running server, as an operator changes it."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / "secret.key"

    def swap(self) -> str:
        """Replace the key and return the old one."""
        before = self.read()
        self.write(Fernet.generate_key().decode())
        return before

    def read(self) -> str:
        return self._path.read_text()

    def write(self, text: str) -> None:
        self._path.unlink(missing_ok=True)
        self._path.touch(0o600)
        self._path.write_text(text)


@pytest.fixture
def key_file(settings: Settings) -> KeyFile:
    return KeyFile(settings.data_dir)


@pytest.fixture
def model_url() -> Iterator[str]:
    app = FastAPI()
    app.mount("/model", create_model_server(theta=0, seed=1, api_key=MODEL_KEY))
    with serving(app) as url:
        yield f"{url}/model/v1"


async def test_a_session_waits_for_its_endpoints_key_and_continues(
    services: Services, key_file: KeyFile, model_url: str
) -> None:
    saved = await marker(services, model_url, name="model", api_key=MODEL_KEY)
    made = await services.sessions.create(spec(endpoint=None, endpoint_id=saved.id, plan=PLAN))
    right = key_file.swap()
    async with running_worker(services):
        waiting = await until(services, made.id, "waiting")
        assert waiting.waiting_reason is not None
        assert "SEXTANT_SECRET_KEY" in waiting.waiting_reason
        with pytest.raises(SecretsError):
            await services.sessions.create(spec(endpoint=None, endpoint_id=saved.id, plan=PLAN))
        key_file.write(right)
        ended = await until(services, made.id)
    assert ended.status == "completed", ended.failure
    kinds = [event.type for event in await services.sessions.events(made.id)]
    assert kinds.count("session.waiting") == 1


async def test_scoring_and_rescoring_wait_for_the_scorers_key(
    services: Services, key_file: KeyFile, model_url: str
) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    await judged_bank(services, "judge", judges=["judge"])
    made = await services.sessions.create(spec(bank="judged", plan=PLAN))
    right = key_file.swap()
    async with running_worker(services):
        await until(services, made.id, "waiting")
        key_file.write(right)
        ended = await until(services, made.id)
        assert ended.status == "completed", ended.failure
        assert ended.summary["outcomes"]["scored"] == 8

        key_file.swap()
        again = await services.derived_sessions.rescore(made.id, None, {})
        await until(services, again.id, "waiting")
        key_file.write(right)
        marked = await until(services, again.id)
    assert marked.status == "completed", marked.failure
    assert marked.summary["rescore"]["changed"] == 0


async def test_a_waiting_client_is_told_and_nothing_is_lost(
    services: Services, key_file: KeyFile, model_url: str
) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    await judged_bank(services, "judge", judges=["judge"])
    made = await services.sessions.create(
        spec(mode="manual", endpoint=None, bank="judged", plan=PLAN | {"concurrency": 1})
    )
    asked = await services.manual_sessions.next_item(made.id)
    answer = ManualAnswer(step_token=asked.step_token, response="It is so.")
    right = key_file.swap()
    with pytest.raises(SecretsError):
        await services.manual_sessions.answer(made.id, answer)
    with pytest.raises(SecretsError):
        await services.scorer_trials.mark(
            ScorerSpec("judge", {"judges": ["judge"]}),
            ItemContent(prompt="?", target=("a",)),
            Answer(text="a"),
        )
    key_file.write(right)
    await services.manual_sessions.answer(made.id, answer)


async def test_an_older_database_does_not_accept_a_wrong_key(
    services: Services, key_file: KeyFile, model_url: str
) -> None:
    await marker(services, model_url, api_key=MODEL_KEY)
    right = key_file.swap()
    with pytest.raises(SecretsError, match="rotate-secret"):
        await services.secret_keys.check()
    assert await services.secret_keys.state() == "ok"  # not known yet
    key_file.write(right)
    await services.secret_keys.check()
    key_file.swap()
    with pytest.raises(SecretsError, match="rotate-secret"):
        await services.secret_keys.check()
    assert await services.secret_keys.state() == "unreadable"


async def test_an_interrupted_rotation_loses_nothing_and_continues(
    services: Services,
    database: Database,
    settings: Settings,
    model_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
        found = (await services.endpoints.get(endpoint.id)).sealed
        assert found.api_key is not None
        assert newest.decrypt(found.api_key) == MODEL_KEY


async def test_secrets_that_no_key_decrypts_are_listed_and_kept(
    services: Services, key_file: KeyFile, model_url: str
) -> None:
    lost = await marker(services, model_url, name="lost", api_key=MODEL_KEY)
    right = key_file.swap()
    kept = await marker(services, model_url, name="kept", api_key=MODEL_KEY)
    done = await services.secret_keys.rotate()
    assert [(endpoint.id, names) for endpoint, names in done.unreadable] == [
        (lost.id, ("api_key",))
    ]
    assert (await services.endpoints.get(lost.id)).sealed == lost.sealed
    assert (await services.endpoints.ready(kept.id)).config.api_key == MODEL_KEY
    await services.secret_keys.check()
    key_file.write(key_file.read() + right)
    assert (await services.endpoints.ready(lost.id)).config.api_key == MODEL_KEY
