import asyncio
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from app.acting import DEFAULT_PROJECT
from app.errors import InvalidInputError, UnauthenticatedError
from app.services.api_keys import ApiKeyService
from app.services.projects import ProjectService
from app.storage.database import Database
from app.storage.paging import PageRequest
from app.storage.unit_of_work import UnitOfWork
from tests.databases import executed


@pytest.fixture
def keys(database: Database) -> ApiKeyService:
    return ApiKeyService(database)


async def test_the_secret_is_not_stored(keys: ApiKeyService, database: Database) -> None:
    key, secret = await keys.create(name="ci", scopes=["read"])
    assert secret not in repr(key)
    assert secret.startswith(key.prefix)
    assert len(secret) - len(key.prefix) >= 32
    ((row,),) = await executed(database, "SELECT k::text FROM api_keys AS k")
    assert secret not in row


async def test_an_unknown_secret_or_the_shown_prefix_is_refused(keys: ApiKeyService) -> None:
    key, _ = await keys.create(name="ci", scopes=["read"])
    for wrong in (key.prefix, "", "sxt_", "sxt_unknown", "Größe", "\udcff", "nul\0"):
        with pytest.raises(UnauthenticatedError, match="not known"):
            await keys.authenticate(wrong)


async def test_revoking_again_keeps_the_first_moment(keys: ApiKeyService) -> None:
    key, _ = await keys.create(name="ci", scopes=["read"])
    assert await keys.revoke(key.id) == await keys.revoke(key.id)


async def test_a_key_expires(keys: ApiKeyService, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = datetime.now(UTC) + timedelta(hours=1)
    key, secret = await keys.create(name="ci", scopes=["read"], expires_at=ends)
    assert (await keys.authenticate(secret)).expires_at == ends

    clock = SimpleNamespace(now=lambda _zone: ends - timedelta(microseconds=1))
    monkeypatch.setattr("app.services.api_keys.datetime", clock)
    assert (await keys.authenticate(secret)).id == key.id
    clock.now = lambda _zone: ends
    with pytest.raises(UnauthenticatedError, match="expired"):
        await keys.authenticate(secret)


@pytest.mark.parametrize(
    ("changes", "pointer", "expected"),
    [
        ({"name": "  "}, "/name", "1 to 200 characters, got '  '"),
        ({"name": "x" * 201}, "/name", "1 to 200 characters"),
        ({"scopes": []}, "/scopes", "some of read, run, banks:write, admin; got none"),
        ({"scopes": ["read", "fly"]}, "/scopes", "got fly"),
        ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "/expires_at", "a time in the future"),
        ({"expires_at": datetime(2099, 1, 1)}, "/expires_at", "a time zone"),  # noqa: DTZ001
    ],
)
async def test_an_invalid_key_is_explained_field_by_field(
    keys: ApiKeyService, changes: dict[str, object], pointer: str, expected: str
) -> None:
    arguments: dict[str, object] = {"name": "ci", "scopes": ["read"], **changes}
    with pytest.raises(InvalidInputError) as caught:
        await keys.create(**arguments)  # type: ignore[arg-type]  # wrong values on purpose
    (problem,) = caught.value.problems
    assert problem.pointer == pointer
    assert expected in problem.detail
    assert not (await keys.page(PageRequest())).items


async def test_concurrent_lookups_of_a_key_read_it_once(
    keys: ApiKeyService, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    read = database.reading

    def reading() -> UnitOfWork:
        nonlocal looks
        looks += 1
        return read()

    _, secret = await keys.create(name="mine", scopes=["read"])
    projects = ProjectService(database)
    monkeypatch.setattr(database, "reading", reading)
    await asyncio.gather(*(keys.authenticate(secret) for _ in range(20)))
    await asyncio.gather(*(projects.recent.get(DEFAULT_PROJECT) for _ in range(20)))
    assert looks == 2
