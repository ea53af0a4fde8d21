"""All that a project holds, as a ZIP file in slices: JSON lines for each table, and hashes."""

import asyncio
import hashlib
import json
import zipfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from importlib.metadata import version
from typing import IO, Any

import psycopg
from psycopg import sql

from app.confined import Lane
from app.errors import DatabaseUnavailableError

#: Of rows that are in memory at once, bytes: so many by the longest of those before.
_SLICE_BYTES = 1 << 20
_MOST_ROWS, _FIRST_ROWS = 1000, 10
#: A row of more bytes comes alone: small ones before it tell nothing of it.
_LARGE_ROW = 1 << 14
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
        digest, rows = hashlib.sha256(), 0
        with archive.open(f"{table}.jsonl", "w", force_zip64=True) as entry:
            async with aclosing(_lines(connection, table, condition, project_id)) as batches:
                async for lines in batches:
                    await asyncio.to_thread(_write, lines, entry, digest)
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


def _write(lines: Sequence[str], entry: IO[bytes], digest: "hashlib._Hash") -> None:
    content = "".join(lines).encode()
    digest.update(content)
    entry.write(content)


async def _lines(
    connection: psycopg.AsyncConnection[Any], table: str, condition: str, project_id: str
) -> AsyncGenerator[list[str]]:
    """The rows of a table, about a slice at a time; a large one alone."""
    rows = sql.SQL(
        "SELECT t.ctid, (to_jsonb(t) - %(secret)s::text[])::text AS line FROM {} t"
    ).format(sql.Identifier(table))
    given = {"id": project_id, "secret": list(_SECRET), "large": _LARGE_ROW}
    # Not made twice, to be measured and to be given out.
    query = sql.SQL(
        "SELECT CASE WHEN octet_length(line) <= %(large)s THEN line END, ctid "
        "FROM ({} WHERE {} OFFSET 0) AS rows"
    ).format(rows, sql.SQL(condition))  # one of those above
    one = sql.SQL("SELECT line FROM ({} WHERE t.ctid = %(row)s::tid) AS rows").format(rows)
    async with connection.cursor(name="export") as cursor:
        await cursor.execute(query, given)
        n_rows = _FIRST_ROWS
        while found := await cursor.fetchmany(n_rows):
            lines = [f"{line}\n" for line, _ in found if line is not None]
            if lines:
                yield lines
                n_rows = max(1, min(_MOST_ROWS, _SLICE_BYTES // max(map(len, lines))))
            for row in (row for line, row in found if line is None):
                # It stays where it is as long as this transaction sees it.
                large = await connection.execute(one, {**given, "row": row})
                yield [f"{line}\n" async for (line,) in large]
