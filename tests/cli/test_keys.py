import asyncio
from pathlib import Path

import pytest

from app.records.api_keys import ApiKey, Scope
from app.records.projects import Limits
from app.services.api_keys import ApiKeyService
from app.storage.database import Database
from tests.cli.shell import done, refused


@pytest.fixture
def url(empty_database_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run commands on a database without tables."""
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    monkeypatch.setenv("COLUMNS", "40")
    return empty_database_url


def _authenticate(url: str, secret: str) -> ApiKey:
    async def run() -> ApiKey:
        database = Database(url)
        try:
            return await ApiKeyService(database).authenticate(secret)
        finally:
            await database.dispose()

    return asyncio.run(run())


def test_create_prints_the_secret_alone_on_stdout(url: str) -> None:
    result = done("keys", "create", "ci")
    secret = result.stdout.strip()
    assert _authenticate(url, secret).scopes == {Scope.READ, Scope.RUN, Scope.BANKS_WRITE}
    assert "not shown again" in result.stderr
    assert secret not in result.stderr


@pytest.mark.usefixtures("url")
def test_list_shows_every_key_and_its_state_but_no_secret() -> None:
    secrets = [done("keys", "create", name).stdout.strip() for name in ("first", "second")]
    rows = done("keys", "list").stdout.splitlines()
    assert [row.split()[1] for row in rows[1:]] == ["first", "second"]
    revoked = rows[1].split()[0]
    assert f"Revoked {revoked}." in done("keys", "revoke", revoked).stderr
    rows = done("keys", "list").stdout.splitlines()
    assert [row.split()[-1] for row in rows[1:]] == ["revoked", "active"]
    assert not any(secret in row for secret in secrets for row in rows)


def test_a_key_takes_scopes_an_end_and_limits_which_may_change(url: str) -> None:
    limited = ("--usd-per-day", "5", "--open-sessions", "9")
    made = done("keys", "create", "ci", "--scope", "run", "--expires", "2099-01-31", *limited)
    key = _authenticate(url, made.stdout.strip())
    assert key.scopes == {Scope.RUN}
    assert key.expires_at
    assert key.expires_at.isoformat() == "2099-01-31T00:00:00+00:00"
    assert key.limits == Limits(usd_per_day=5.0, open_sessions=9)
    result = done("keys", "limit", key.id, "--tokens-per-day", "70", "--usd-per-day", "0")
    assert result.stdout.splitlines() == [
        "requests_per_s  -",
        "open_sessions  9",
        "event_streams  -",
        "usd_per_day  -",
        "tokens_per_day  70",
        "stored_bytes  -",
    ]
    assert done("keys", "limit", key.id).stdout == result.stdout
    assert "open_sessions=9 tokens_per_day=70" in done("keys", "list").stdout


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("limit", "key_none"), "There is no API key 'key_none'."),
        (
            ("create", "ci", "--usd-per-day", "nan"),
            "'--usd-per-day': expected a number >= 0, got 'nan'",
        ),
        (("revoke", "key_none"), "There is no API key 'key_none'. `sextant keys list` lists"),
        (("create", "ci", "--expires", "soon"), "expected a date such as 2030-01-31, or"),
        (("create", "ci", "--expires", "it's"), "or a time such as 2030-01-31T12:00:00, got"),
        (("create", ""), "NAME: expected at least 1 character, got 0"),
        (("create", "ci", "--scope", "fly"), "Invalid value for '--scope'"),
    ],
)
def test_a_mistake_gives_one_clear_line_and_exit_code_2(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in refused("keys", *arguments)


def test_a_wrong_database_url_gives_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u@/x?host={tmp_path}")
    assert "The database cannot be reached, check DATABASE_URL: " in refused("keys", "list")


@pytest.mark.usefixtures("url")
def test_migrate_says_where_the_database_is() -> None:
    first, second = done("migrate"), done("migrate")
    assert first.stdout == second.stdout
    assert "The database is at revision" in first.stdout
