"""All that a project holds, as one file: JSON lines for each table, and their hashes."""

import json
import os
import tempfile
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from app.errors import DatabaseUnavailableError, InvalidInputError, NotFoundError
from app.storage.database import Database

_BATCH = 500
_OF_BANKS = "bank_id IN (SELECT id FROM banks WHERE project_id = %(id)s)"
_OF_VERSIONS = (
    "version_id IN (SELECT v.id FROM bank_versions v JOIN banks b ON b.id = v.bank_id "
    "WHERE b.project_id = %(id)s)"
)
_OF_SESSIONS = "session_id IN (SELECT id FROM sessions WHERE project_id = %(id)s)"
_OF_RANKINGS = "ranking_id IN (SELECT id FROM rankings WHERE project_id = %(id)s)"
_OF_SETS = "set_id IN (SELECT id FROM response_sets WHERE project_id = %(id)s)"
_OF_CALIBRATIONS = "calibration_id IN (SELECT id FROM calibrations WHERE project_id = %(id)s)"
_OWN = "project_id = %(id)s"
#: Which rows of which table are a project's.
PARTS = {
    "projects": "id = %(id)s",
    **dict.fromkeys(("banks", "endpoints", "response_sets", "calibrations", "sessions"), _OWN),
    **dict.fromkeys(("rankings", "gates", "installations", "audit"), _OWN),
    **dict.fromkeys(("items", "bank_versions"), _OF_BANKS),
    "version_items": _OF_VERSIONS,
    **dict.fromkeys(("administrations", "session_events"), _OF_SESSIONS),
    "ranking_events": _OF_RANKINGS,
    **dict.fromkeys(("response_items", "answer_sheets", "collected_sessions"), _OF_SETS),
    "calibration_events": _OF_CALIBRATIONS,
}
_SECRET = ("api_key_cipher", "headers_cipher", "step_token")


def export_project(url: str, project: str, path: Path) -> dict[str, int]:
    """Write all that a project holds to a ZIP file of mode 0600, as of one moment.

    `TABLE.jsonl` has an object for each row, without secrets; `manifest.json` has rows and SHA-256
    of each. Withheld texts are in it: this is for who looks after the database itself.

    Args:
        url: `postgresql+psycopg://...`
        project: Id or name.
        path: The file; nothing may be there.

    Returns:
        Rows by table.

    Raises:
        NotFoundError: No such project.
        InvalidInputError: The file is there, or cannot be written.
        DatabaseUnavailableError: No answer.
    """
    try:
        if path.exists():
            raise InvalidInputError(f"{path} is there already: choose another name, or move it.")
        with psycopg.connect(Database(url).conninfo) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            project_id = _id_of(connection, project)
            descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    parts = _write(connection, project_id, zipfile.ZipFile(file, "w"))
                os.link(partial, path)
            finally:
                Path(partial).unlink()
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be written: {exc.strerror}.") from exc
    except psycopg.Error as exc:
        raise DatabaseUnavailableError(f"The database gives no answer: {exc}") from exc
    return {name: part["rows"] for name, part in parts.items()}


def _id_of(connection: psycopg.Connection[Any], project: str) -> str:
    found = connection.execute(
        "SELECT id FROM projects WHERE id = %(p)s OR name = %(p)s ORDER BY id = %(p)s DESC LIMIT 1",
        {"p": project},
    ).fetchone()
    if found is None:
        raise NotFoundError("project", project)
    return str(found[0])


def _write(
    connection: psycopg.Connection[Any], project_id: str, archive: zipfile.ZipFile
) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    with archive:
        archive.compression = zipfile.ZIP_DEFLATED
        for table, condition in PARTS.items():
            digest, rows = sha256(), 0
            with archive.open(f"{table}.jsonl", "w", force_zip64=True) as entry:
                for line in _lines(connection, table, condition, project_id):
                    digest.update(line)
                    entry.write(line)
                    rows += 1
            parts[table] = {"rows": rows, "sha256": digest.hexdigest()}
        manifest = {
            "format": 1,
            "sextant": version("sextant"),
            "project_id": project_id,
            "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "parts": parts,
        }
        archive.writestr("manifest.json", json.dumps(manifest, indent=2) + "\n")
    return parts


def _lines(
    connection: psycopg.Connection[Any], table: str, condition: str, project_id: str
) -> Iterator[bytes]:
    query = sql.SQL("SELECT (to_jsonb(t) - %(secret)s::text[])::text FROM {} t WHERE ").format(
        sql.Identifier(table)
    ) + sql.SQL(condition)  # one of those above
    with connection.cursor(name="export") as cursor:
        cursor.itersize = _BATCH
        cursor.execute(query, {"id": project_id, "secret": list(_SECRET)})
        for (line,) in cursor:
            yield f"{line}\n".encode()
