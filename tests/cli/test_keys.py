import asyncio
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from app.cli.commands import keys, migrate
from app.records.api_keys import ApiKey, Scope
from app.records.projects import Limits
from app.services.api_keys import ApiKeyService
from app.storage.database import Database

_migrate = typer.Typer()
_migrate.command()(migrate.command)


@pytest.fixture
def run(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> "type[_Runner]":
    """Runs commands as the shell would, on a database without tables."""
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    monkeypatch.setenv("COLUMNS", "40")
    return _Runner


class _Runner:
    @staticmethod
    def keys(*arguments: str) -> Result:
        return CliRunner().invoke(keys.app, arguments)

    @staticmethod
    def migrate() -> Result:
        return CliRunner().invoke(_migrate, [])


def _authenticate(url: str, secret: str) -> ApiKey:
    async def run() -> ApiKey:
        database = Database(url)
        try:
            return await ApiKeyService(database).authenticate(secret)
        finally:
            await database.dispose()

    return asyncio.run(run())


def test_create_prints_the_secret_alone_on_stdout(
    run: type[_Runner], empty_database_url: str
) -> None:
    result = run.keys("create", "ci")
    assert result.exit_code == 0, result.output
    secret = result.stdout.strip()
    assert _authenticate(empty_database_url, secret).scopes == {
        Scope.READ,
        Scope.RUN,
        Scope.BANKS_WRITE,
    }
    assert "not shown again" in result.stderr
    assert secret not in result.stderr


def test_create_takes_scopes_and_an_end(run: type[_Runner], empty_database_url: str) -> None:
    result = run.keys("create", "ci", "--scope", "admin", "--expires", "2099-01-31")
    key = _authenticate(empty_database_url, result.stdout.strip())
    assert key.scopes == {Scope.ADMIN}
    assert key.expires_at
    assert key.expires_at.isoformat() == "2099-01-31T00:00:00+00:00"


def test_list_shows_every_key_and_its_state_but_no_secret(run: type[_Runner]) -> None:
    secrets = [run.keys("create", name).stdout.strip() for name in ("first", "second")]
    rows = run.keys("list").stdout.splitlines()
    assert [row.split()[1] for row in rows[1:]] == ["first", "second"]
    revoked = rows[1].split()[0]
    result = run.keys("revoke", revoked)
    assert f"Revoked {revoked}." in result.stderr
    rows = run.keys("list").stdout.splitlines()
    assert [row.split()[-1] for row in rows[1:]] == ["revoked", "active"]
    assert not any(secret in row for secret in secrets for row in rows)


def test_a_key_is_limited_when_it_is_made_and_later(
    run: type[_Runner], empty_database_url: str
) -> None:
    secret = run.keys("create", "ci", "--usd-per-day", "5", "--open-sessions", "9").stdout.strip()
    key = _authenticate(empty_database_url, secret)
    assert key.limits == Limits(usd_per_day=5.0, open_sessions=9)
    result = run.keys("limit", key.id, "--tokens-per-day", "70", "--usd-per-day", "0")
    assert result.stdout.splitlines() == [
        "requests_per_s  -",
        "open_sessions  9",
        "event_streams  -",
        "usd_per_day  -",
        "tokens_per_day  70",
        "stored_bytes  -",
    ]
    assert run.keys("limit", key.id).stdout == result.stdout
    assert "open_sessions=9 tokens_per_day=70" in run.keys("list").stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("limit", "key_none"), "There is no API key 'key_none'."),
        (("create", "ci", "--usd-per-day", "nan"), "usd_per_day: expected 0 or more, got nan."),
        (
            ("create", "ci", "--scope", "admin", "--usd-per-day", "5"),
            "A key with the scope admin has no limits of its own",
        ),
        (("revoke", "key_none"), "There is no API key 'key_none'."),
        (("create", "ci", "--expires", "2001-01-01"), "expires_at: expected a time to come"),
        (("create", ""), "NAME: expected at least 1 character, got 0"),
        (("create", "ci", "--scope", "fly"), "Invalid value for '--scope'"),
    ],
)
def test_a_mistake_gives_one_clear_line_and_exit_code_2(
    run: type[_Runner], arguments: tuple[str, ...], expected: str
) -> None:
    result = run.keys(*arguments)
    assert result.exit_code == 2
    assert expected in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_wrong_database_url_gives_one_clear_line(
    run: type[_Runner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://u@/x?host={tmp_path}")
    result = run.keys("list")
    assert result.exit_code == 2
    assert "could not be migrated" in " ".join(result.stderr.split())


def test_migrate_says_where_the_database_is(run: type[_Runner]) -> None:
    first, second = run.migrate(), run.migrate()
    assert first.exit_code == 0, first.output
    assert first.stdout == second.stdout
    assert "The database is at revision" in first.stdout
