"""Backup and restore on real Postgres: what is refused, and that a restore is atomic."""

import json
import stat
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command as alembic_command
from alembic.config import Config
from cryptography.fernet import Fernet
from sqlalchemy import make_url

from app.acting import DEFAULT_PROJECT, Acting, AuditEntry, acting_for
from app.errors import DatabaseUnavailableError, FileFormatError, InvalidStateError, SecretsError
from app.settings import Settings
from app.storage import backups, binaries
from app.storage.backups import back_up, restore
from app.storage.embedded import EmbeddedPostgres
from app.storage.migrate import MIGRATIONS, newest_revision, upgrade
from app.storage.secrets import SecretBox
from tests.databases import libpq, new_database, rows

PROJECT = "INSERT INTO projects (id, name) VALUES ('prj_{0}', '{0}')"


def box(directory: Path, key: str | None = None) -> SecretBox:
    return SecretBox(Settings(data_dir=directory, secret_key=key))


def names(url: str) -> list[str]:
    """Return the names of all projects."""
    return [name for (name,) in rows(url, "SELECT name FROM projects ORDER BY name")]


def do(url: str, statement: str) -> None:
    with psycopg.connect(libpq(url)) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def source(database_url: str) -> str:
    """Return a database with an extra project."""
    do(database_url, PROJECT.format("kept"))
    return database_url


@pytest.fixture
def target(postgres_server: EmbeddedPostgres, empty_database_url: str) -> str:
    """Return a database without tables on the same server."""
    return empty_database_url


@pytest.fixture
def full(template_url: str, postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Return another database, with a project that no backup holds."""
    with new_database(postgres_server.url, str(make_url(template_url).database)) as url:
        do(url, PROJECT.format("older"))
        yield url


def rewritten(backup: Path, into: Path, *, share: float = 1.0, **changes: object) -> Path:
    """Copy a backup with only a part of its dump, or with another manifest."""
    with zipfile.ZipFile(backup) as old, zipfile.ZipFile(into, "w") as new:
        dump = old.read("database.dump")
        kept = dump[: int(len(dump) * share)]
        said = json.loads(old.read("manifest.json"))
        new.writestr("database.dump", kept)
        said = said | {"dump_sha256": sha256(kept).hexdigest()} | changes
        new.writestr("manifest.json", json.dumps(said))
    return into


def test_a_backup_fills_an_empty_database(source: str, target: str, tmp_path: Path) -> None:
    file = tmp_path / "all.backup"
    manifest, size = back_up(source, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.stat().st_size == size
    assert [entry.name for entry in tmp_path.iterdir()] == ["all.backup"]
    assert restore(target, file, box(tmp_path)) == manifest
    assert names(target) == names(source) == ["default", "kept"]
    assert upgrade(target) == manifest.revision == newest_revision()
    prune = "SELECT procrastinate_prune_stalled_workers_v1(1.0)"  # the queue has functions, too
    do(target, f"SET search_path = public, procrastinate; {prune}")


def test_backup_and_restore_are_audited(source: str, target: str, tmp_path: Path) -> None:
    def trail(url: str) -> list[tuple[str, str | None, str]]:
        return rows(url, "SELECT action, project_id, address FROM audit ORDER BY id")

    def doing(command: str) -> AbstractContextManager[None]:
        entry = AuditEntry(lambda: command, path="", request_id=None, address="command line")
        return acting_for(Acting(DEFAULT_PROJECT, audit_entry=entry))

    with doing("sextant backup"):
        back_up(source, tmp_path / "all.backup")
    with doing("sextant restore"):
        restore(target, tmp_path / "all.backup", box(tmp_path))
    assert trail(source) == [("sextant backup", None, "command line")]
    assert trail(target) == [("sextant restore", None, "command line")]
    options = {"options": "-c default_transaction_read_only=on"}  # as on a replica
    reading = make_url(source).update_query_dict(options).render_as_string(hide_password=False)
    with doing("sextant backup"):
        back_up(reading, tmp_path / "again.backup")
    assert len(trail(source)) == 1


def test_a_foreign_database_is_not_backed_up(target: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidStateError, match="nothing to back up"):
        back_up(target, tmp_path / "all.backup")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["cut", "flipped", "no zip", "other fields", "other dump"])
def test_a_damaged_backup_is_refused_before_anything_happens(
    change: str, source: str, target: str, tmp_path: Path
) -> None:
    whole, file = tmp_path / "whole", tmp_path / "damaged"
    back_up(source, whole)
    content = bytearray(whole.read_bytes())
    changes: dict[str, dict[str, Any]] = {
        "other fields": {"revision": 7},
        "other dump": {"dump_sha256": "0" * 64},
    }
    if change in changes:
        rewritten(whole, file, **changes[change])
    else:
        content[200] ^= change == "flipped"
        others = {"cut": bytes(content[:-300]), "no zip": b"SELECT 1"}
        file.write_bytes(others.get(change, bytes(content)))
    with pytest.raises(FileFormatError, match=r"damaged|not a whole backup|no backup"):
        restore(target, file, box(tmp_path))
    with pytest.raises(psycopg.errors.UndefinedTable):
        names(target)


def test_a_restore_needs_the_old_secret_key(source: str, target: str, tmp_path: Path) -> None:
    key = Fernet.generate_key().decode()
    canary = Fernet(key).encrypt(b"sextant").decode()
    do(source, f"INSERT INTO secret_canary (id, cipher) VALUES (1, '{canary}')")
    file = tmp_path / "all.backup"
    back_up(source, file)
    for wrong in (box(tmp_path), box(tmp_path, Fernet.generate_key().decode())):
        with pytest.raises(SecretsError, match=r"cannot be restored here: .*SEXTANT_SECRET_KEY"):
            restore(target, file, wrong)
    restore(target, file, box(tmp_path, key))
    restore(target, file, box(tmp_path), replaces=True, needs_key=False)
    assert names(target) == ["default", "kept"]


def test_data_are_replaced_only_on_demand(source: str, full: str, tmp_path: Path) -> None:
    file = tmp_path / "all.backup"
    back_up(source, file)
    with pytest.raises(InvalidStateError, match="--replace"):
        restore(full, file, box(tmp_path))
    with psycopg.connect(libpq(full)), pytest.raises(InvalidStateError, match="in use"):
        restore(full, file, box(tmp_path), replaces=True)
    beside = f"{make_url(full).database}_restored"
    with psycopg.connect(libpq(full), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {beside}".encode())
    with pytest.raises(InvalidStateError, match="a database of that name: rename or drop"):
        restore(full, file, box(tmp_path), replaces=True)
    assert names(full) == ["default", "older"]
    do(full, backups._OURS.format(beside))  # as left by a killed restore
    restore(full, file, box(tmp_path), replaces=True)
    assert names(full) == ["default", "kept"]
    left_over = "SELECT datname FROM pg_database WHERE datname ~ '_(restored|replaced)$'"
    assert rows(full, left_over) == []


def test_a_failed_restore_is_undone(source: str, full: str, target: str, tmp_path: Path) -> None:
    back_up(source, tmp_path / "all.backup")
    half = rewritten(tmp_path / "all.backup", tmp_path / "half", share=0.6)
    for url, replaces in ((target, False), (full, True)):
        with pytest.raises(DatabaseUnavailableError, match="pg_restore"):
            restore(url, half, box(tmp_path), replaces=replaces)
    assert names(full) == ["default", "older"]
    with pytest.raises(psycopg.errors.UndefinedTable):
        names(target)


def test_a_backup_of_newer_programs_is_refused(source: str, target: str, tmp_path: Path) -> None:
    back_up(source, tmp_path / "all.backup")
    newer = rewritten(tmp_path / "all.backup", tmp_path / "newer", revision="ffffffffffff")
    with pytest.raises(InvalidStateError, match="which this one does not know"):
        restore(target, newer, box(tmp_path))
    of_newer_postgres = rewritten(tmp_path / "all.backup", tmp_path / "pg99", dumped_by=99)
    with pytest.raises(InvalidStateError, match="PostgreSQL 99"):
        restore(target, of_newer_postgres, box(tmp_path))


def test_a_backup_of_older_tables_is_migrated(
    postgres_server: EmbeddedPostgres, target: str, tmp_path: Path
) -> None:
    with new_database(postgres_server.url, "template0") as older:
        config = Config()
        config.set_main_option("script_location", str(MIGRATIONS))
        config.attributes["url"] = older
        alembic_command.upgrade(config, "head-1")
        manifest, _ = back_up(older, tmp_path / "older.backup")
    assert manifest.revision != newest_revision()
    restore(target, tmp_path / "older.backup", box(tmp_path))
    assert rows(target, "SELECT version_num FROM alembic_version") == [(newest_revision(),)]


def test_the_password_is_not_in_the_process_list() -> None:
    told = binaries._environment("host=h port=1 user=u password=s3cret dbname=d sslmode=require")
    assert (told["PGPASSWORD"], told["PGHOST"], told["PGSSLMODE"]) == ("s3cret", "h", "require")
