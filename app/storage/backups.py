"""Backup and restore by Postgres's own dump, with checks before a backup is restored.

A backup is one snapshot, taken while Sextant keeps running. It is restored in one transaction into
an empty database. If the database is not empty, a new database is filled and replaces it.

The file is a ZIP of two entries: `database.dump`, which `pg_restore` reads, and `manifest.json`,
written last, so that a truncated file is not a valid backup.
"""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import BaseModel, ConfigDict, ValidationError

from app import DISTRIBUTION
from app.acting import present
from app.errors import (
    DatabaseUnavailableError,
    FileFormatError,
    InvalidInputError,
    InvalidStateError,
    SecretsError,
)
from app.new_file import new_file
from app.storage import binaries
from app.storage.database import Database
from app.storage.identifiers import new_id
from app.storage.migrate import MIGRATION_LOCK, is_known, newest_revision, upgrade
from app.storage.secrets import SecretBox

_FORMAT = 1
_DUMP, _MANIFEST = "database.dump", "manifest.json"
_BLOCK_BYTES = 1 << 20
_LARGEST_MANIFEST = 1 << 16
_LONGEST_NAME = 63
_READS_ONLY = (psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)
_TABLES = """
    SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""
#: Comment on databases that exist only during a restore.
_LEFT_BEHIND = "of a restore of Sextant that was cut short"
_OURS = f"COMMENT ON DATABASE {{}} IS '{_LEFT_BEHIND}'"
_OTHERS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'
"""


class Manifest(BaseModel):
    """Description of a backup, stored in its file.

    Attributes:
        sextant: Version of Sextant that made the backup.
        revision: Revision of the tables.
        dumped_by: Major version of the `pg_dump` that made the dump; older Postgres cannot read it.
        made_at: Time of the backup, UTC, ISO 8601.
        canary: A known text under the secret key of that time; None if there never was a secret.
        format: Version of the format of the file.
        dump_sha256: SHA-256 of the dump.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    sextant: str
    revision: str
    dumped_by: int
    made_at: str
    canary: str | None
    format: int
    dump_sha256: str


@dataclass(frozen=True, slots=True)
class _BackupFile:
    """An open backup file whose bytes have all been verified."""

    archive: zipfile.ZipFile
    manifest: Manifest

    def blocks(self) -> Iterator[bytes]:
        """The dump, piece by piece."""
        with self.archive.open(_DUMP) as entry:
            while block := entry.read(_BLOCK_BYTES):
                yield block


def back_up(url: str, path: Path) -> tuple[Manifest, int]:
    """Write the whole database to a file of mode 0600, which must not exist yet.

    Returns:
        The manifest of the file, and the file's size in bytes.

    Raises:
        DatabaseUnavailableError: No answer, or no `pg_dump` that fits the server.
        InvalidStateError: The database does not belong to Sextant.
        InvalidInputError: The file cannot be written.
    """
    with _connected(Database(url).conninfo) as connection:
        # The dump uses the same snapshot from which the manifest is read.
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.read_only = True
        (snapshot,) = _row(connection, "SELECT pg_export_snapshot()")
        if _row(connection, "SELECT to_regclass('public.alembic_version')")[0] is None:
            raise InvalidStateError("The database holds nothing of Sextant: nothing to back up.")
        (revision,) = _row(connection, "SELECT version_num FROM public.alembic_version")
        program, major = binaries.client("pg_dump", _major(connection))
        known = {
            "sextant": version(DISTRIBUTION),
            "revision": revision,
            "dumped_by": major,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "canary": _canary(connection),
        }
        arguments = [program, "--format=custom", "--no-owner", "--no-privileges", "--no-comments"]
        dump = binaries.output_of([*arguments, f"--snapshot={snapshot}"], Database(url).conninfo)
        written = _write(path, known, dump)
    _note(url)
    return written


def restore(
    url: str, path: Path, box: SecretBox, *, replaces: bool = False, needs_key: bool = True
) -> Manifest:
    """Replace the contents of the database by those of a backup, completely or not at all.

    `replaces` says that the database may have contents, which are then deleted. The keys in `box`
    must decrypt the secrets of the backup, unless `needs_key` is False: these are lost then.

    Raises:
        FileFormatError: The file is no backup, or it is damaged.
        SecretsError: The present secret key differs from that of the backup.
        InvalidStateError: A newer Sextant or Postgres made it, or the database has contents, or is
            in use.
        DatabaseUnavailableError: No answer, or no `pg_restore` that fits.
    """
    with _opened(path) as backup:
        manifest = backup.manifest
        if not is_known(manifest.revision):
            raise InvalidStateError(
                f"{path} was made by Sextant {manifest.sextant} with tables of revision "
                f"{manifest.revision}, which this one does not know (its own is "
                f"{newest_revision()}): restore it with that version."
            )
        if needs_key and manifest.canary is not None:
            try:
                box.decrypt(manifest.canary.encode())
            except SecretsError as exc:
                raise SecretsError(
                    f"{path} cannot be restored here: {exc.detail} Or give --lost-key, which "
                    "restores all but these secrets."
                ) from exc
        with _connected(Database(url).conninfo) as connection:
            major, name = _major(connection), str(_row(connection, "SELECT current_database()")[0])
            if major < manifest.dumped_by:
                raise InvalidStateError(
                    f"{path} was made by pg_dump of PostgreSQL {manifest.dumped_by}, and this "
                    f"server is PostgreSQL {major}, which cannot read it."
                )
            is_empty = not _row(connection, _TABLES)[0]
            if not is_empty and not replaces:
                raise InvalidStateError(
                    "The database holds something already. Restore into an empty one (another "
                    "SEXTANT_DATA_DIR or DATABASE_URL), or give --replace, which deletes all "
                    "that it holds."
                )
            (others,) = _row(connection, _OTHERS, [name])
            if others:
                raise InvalidStateError(
                    f"The database is in use ({others} connections): stop all servers and workers "
                    "on it first."
                )
        if is_empty:
            _fill(url, backup)
        else:
            _replace(url, name, backup)
    _note(url)
    return manifest


def _note(url: str) -> None:
    """Note the present command in the audit trail, as an entry that belongs to no project."""
    what = present().audit_entry
    if what is None:
        return
    with _connected(Database(url).conninfo) as connection:
        connection.autocommit = True
        # Databases from before the audit trail have no such table.
        if _row(connection, "SELECT to_regclass('public.audit')")[0] is None:
            return
        # A user with read access only may make backups as well.
        with contextlib.suppress(*_READS_ONLY):
            connection.execute(
                "INSERT INTO public.audit (id, action, path, address) VALUES (%s, %s, %s, %s)",
                [new_id("aud"), what.action(), what.path, what.address],
            )


def _fill(url: str, backup: _BackupFile) -> None:
    """Restore into an empty database, in one transaction; then bring its tables up to date."""
    conninfo = Database(url).conninfo
    with _connected(conninfo) as connection:
        connection.autocommit = True
        # A server that starts meanwhile waits for this lock, and then finds the tables.
        connection.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        if _row(connection, _TABLES)[0]:
            raise InvalidStateError(
                "Another process has just made tables in the database: restore into an empty one."
            )
        program, _ = binaries.client("pg_restore", backup.manifest.dumped_by)
        command = [
            *(program, "--single-transaction", "--exit-on-error", "--no-owner", "--no-privileges"),
            f"--dbname={make_conninfo(dbname=str(conninfo_to_dict(conninfo)['dbname']))}",
        ]
        binaries.feed(command, conninfo, backup.blocks())
    upgrade(url)


def _replace(url: str, name: str, backup: _BackupFile) -> None:
    """Restore into a new database beside the old one, and swap their names."""
    fresh, former = (f"{name[: _LONGEST_NAME - 9]}_{what}" for what in ("restored", "replaced"))
    with _maintaining(url) as connection:
        for left_over in (fresh, former):
            _clear(connection, left_over)
        try:
            _on_database(connection, "CREATE DATABASE {} TEMPLATE template0", fresh)
            _on_database(connection, _OURS, fresh)
        except psycopg.errors.InsufficientPrivilege as exc:
            raise InvalidStateError(
                "--replace restores into a new database first, and the user of DATABASE_URL may "
                "make none (CREATEDB). Make an empty one, set DATABASE_URL to it, and restore "
                "there."
            ) from exc
        try:
            _fill(_sibling_url(url, fresh), backup)
            with connection.transaction():
                _on_database(connection, "ALTER DATABASE {} RENAME TO {}", name, former)
                _on_database(connection, _OURS, former)
                _on_database(connection, "ALTER DATABASE {} RENAME TO {}", fresh, name)
                _on_database(connection, "COMMENT ON DATABASE {} IS NULL", name)
        except BaseException as exc:
            _on_database(connection, "DROP DATABASE IF EXISTS {} WITH (FORCE)", fresh)
            if isinstance(exc, psycopg.errors.ObjectInUse):
                raise InvalidStateError(
                    "Another process began to use the database meanwhile, so nothing was "
                    "replaced: stop all servers and workers on it first."
                ) from exc
            raise
        _on_database(connection, "DROP DATABASE {} WITH (FORCE)", former)


def _clear(connection: psycopg.Connection[Any], name: str) -> None:
    """Remove a database that a killed restore left behind, and no other."""
    query = "SELECT shobj_description(oid, 'pg_database') FROM pg_database WHERE datname = %s"
    found = connection.execute(query, [name]).fetchone()
    if found is None:
        return
    if found[0] != _LEFT_BEHIND:
        raise InvalidStateError(
            f"--replace needs the name {name!r} for a while, and there is a database of that name: "
            "rename or drop it, or restore into an empty database."
        )
    _on_database(connection, "DROP DATABASE {} WITH (FORCE)", name)


def _on_database(connection: psycopg.Connection[Any], statement: str, *names: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))


def _sibling_url(url: str, name: str) -> str:
    """URL of another database of the same server."""
    from sqlalchemy import make_url

    return make_url(url).set(database=name).render_as_string(hide_password=False)


@contextlib.contextmanager
def _maintaining(url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database of the server other than the one to be replaced."""
    with _connected(Database(_sibling_url(url, "postgres")).conninfo) as connection:
        connection.autocommit = True
        connection.execute("SELECT pg_advisory_lock(%s)", [MIGRATION_LOCK])
        yield connection


@contextlib.contextmanager
def _connected(conninfo: str) -> Iterator[psycopg.Connection[Any]]:
    try:
        connection = psycopg.connect(conninfo)
    except psycopg.Error as exc:
        raise DatabaseUnavailableError(f"The database gives no answer: {exc}") from exc
    with contextlib.closing(connection):
        try:
            yield connection
        except psycopg.Error as exc:
            raise DatabaseUnavailableError(f"The database cannot serve this: {exc}") from exc


def _row(
    connection: psycopg.Connection[Any], query: str, parameters: list[Any] | None = None
) -> tuple[Any, ...]:
    return next(iter(connection.execute(query.encode(), parameters)))


def _major(connection: psycopg.Connection[Any]) -> int:
    return connection.info.server_version // 10_000


def _canary(connection: psycopg.Connection[Any]) -> str | None:
    if _row(connection, "SELECT to_regclass('public.secret_canary')")[0] is None:
        return None
    found = connection.execute("SELECT cipher FROM public.secret_canary").fetchone()
    return bytes(found[0]).decode("ascii") if found else None


def _write(path: Path, known: Mapping[str, Any], dump: Iterable[bytes]) -> tuple[Manifest, int]:
    """Write the file, completely or not at all; return its manifest and its size in bytes."""
    with new_file(path) as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            with archive.open(_DUMP, "w", force_zip64=True) as entry:
                digest = sha256()
                for block in dump:
                    digest.update(block)
                    entry.write(block)
            manifest = Manifest(**known, format=_FORMAT, dump_sha256=digest.hexdigest())
            archive.writestr(_MANIFEST, manifest.model_dump_json(indent=2) + "\n")
        return manifest, file.seek(0, os.SEEK_END)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[_BackupFile]:
    """Open a backup and check that it is complete."""
    try:
        with zipfile.ZipFile(path) as archive:
            backup = _BackupFile(archive, _manifest(archive, path))
            found = sha256()
            for block in backup.blocks():
                found.update(block)
            if found.hexdigest() != backup.manifest.dump_sha256:
                raise FileFormatError(
                    f"{path} is damaged: its dump does not have the SHA-256 in its manifest."
                )
            yield backup
    except zipfile.BadZipFile as exc:
        raise FileFormatError(f"{path} is not a whole backup of Sextant: {exc}.") from exc
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be read: {exc.strerror or exc}.") from exc


def _manifest(archive: zipfile.ZipFile, path: Path) -> Manifest:
    names = archive.namelist()
    if sorted(names) != [_DUMP, _MANIFEST]:
        raise FileFormatError(
            f"{path} is no backup of Sextant: expected the entries {_DUMP} and {_MANIFEST}, got "
            f"{', '.join(names)[:100] or 'none'}."
        )
    if archive.getinfo(_MANIFEST).file_size > _LARGEST_MANIFEST:
        raise FileFormatError(f"{path} is no backup of Sextant: its manifest is too long.")
    try:
        said = json.loads(archive.read(_MANIFEST))
    except ValueError:
        said = None
    if not isinstance(said, dict) or "format" not in said:
        raise FileFormatError(
            f"{path} is no backup of Sextant: its manifest is not a JSON object with a format."
        )
    if said["format"] != _FORMAT:
        raise FileFormatError(
            f"{path} has form {said['format']!r}, and this version of Sextant reads form {_FORMAT}."
        )
    try:
        return Manifest.model_validate(said)
    except ValidationError:
        raise FileFormatError(
            f"{path} is no backup of Sextant: its manifest holds other fields than it should."
        ) from None
