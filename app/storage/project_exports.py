"""All that a project holds, as a ZIP file in slices: JSON lines for each table, and hashes."""

import asyncio
import json
import zipfile
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import psycopg
from psycopg import sql

from app.confined import Lane
from app.errors import DatabaseUnavailableError

#: Of rows that are in memory at once, bytes; one row that is larger comes alone.
_SLICE_BYTES = 1 << 20
_MOST_ROWS, _FIRST_ROWS = 1000, 10
#: The database keeps what changes meanwhile twice: not for a reader who does not go on.
_PATIENCE = "60s"
#: Exports of one process at a time: each holds a connection of its own.
_EXPORTS = Lane(2)
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


async def export_project(conninfo: str, project_id: str) -> AsyncGenerator[bytes]:
    """A ZIP file of all that a project holds, as of one moment, slice by slice.

    `TABLE.jsonl` has an object for each row, without secrets; `manifest.json`, which comes last,
    has rows and SHA-256 of each. Texts of withheld banks are in it.

    Args:
        conninfo: For libpq.
        project_id: Of a project that is there.

    Raises:
        BusyError: Too many exports wait for their turn.
        DatabaseUnavailableError: No answer, or nobody took a slice for a minute.
    """
    try:
        async with _EXPORTS.turn(), await psycopg.AsyncConnection.connect(conninfo) as connection:
            await connection.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await connection.set_read_only(True)
            await connection.execute(
                sql.SQL("SET LOCAL idle_in_transaction_session_timeout = {}").format(_PATIENCE)
            )
            async with aclosing(_zipped(connection, project_id)) as blocks:
                async for block in blocks:
                    yield block
    except psycopg.Error as exc:
        raise DatabaseUnavailableError(f"The database gives no answer: {exc}") from exc


class _Slice:
    """What was written and nobody has taken yet; a file that cannot go back."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, block: bytes, /) -> int:
        self._written.append(bytes(block))
        return len(block)

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass

    def taken(self) -> bytes:
        written = b"".join(self._written)
        self._written.clear()
        return written


async def _zipped(
    connection: psycopg.AsyncConnection[Any], project_id: str
) -> AsyncGenerator[bytes]:
    written = _Slice()
    archive = zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED)
    parts: dict[str, dict[str, Any]] = {}
    for table, condition in PARTS.items():
        digest, rows = sha256(), 0
        with archive.open(f"{table}.jsonl", "w", force_zip64=True) as entry:
            async with aclosing(_lines(connection, table, condition, project_id)) as batches:
                async for lines in batches:
                    digest.update(content := "".join(lines).encode())
                    await asyncio.to_thread(entry.write, content)
                    rows += len(lines)
                    yield written.taken()
        parts[table] = {"rows": rows, "sha256": digest.hexdigest()}
    manifest = {
        "format": 1,
        "sextant": version("sextant"),
        "project_id": project_id,
        "made_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "parts": parts,
    }
    archive.writestr("manifest.json", json.dumps(manifest, indent=2) + "\n")
    archive.close()
    yield written.taken()


async def _lines(
    connection: psycopg.AsyncConnection[Any], table: str, condition: str, project_id: str
) -> AsyncGenerator[list[str]]:
    """The rows of a table, about a slice at a time by the length of those before."""
    query = sql.SQL("SELECT (to_jsonb(t) - %(secret)s::text[])::text FROM {} t WHERE ").format(
        sql.Identifier(table)
    ) + sql.SQL(condition)  # one of those above
    async with connection.cursor(name="export") as cursor:
        await cursor.execute(query, {"id": project_id, "secret": list(_SECRET)})
        n_rows = _FIRST_ROWS
        while found := await cursor.fetchmany(n_rows):
            lines = [f"{line}\n" for (line,) in found]
            yield lines
            per_row = max(map(len, lines))
            n_rows = max(1, min(_MOST_ROWS, _SLICE_BYTES // per_row))
