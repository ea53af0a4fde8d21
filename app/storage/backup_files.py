"""The file of a backup: what Postgres dumped, and what must be known before that is read.

A ZIP file of two entries: `database.dump`, which `pg_restore` reads, and `manifest.json`, which is
written last, so that a file that breaks off is none.
"""

import contextlib
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from pydantic import BaseModel, ConfigDict, ValidationError

from app.errors import FileFormatError, InvalidInputError
from app.new_file import new_file

_FORMAT = 1
_DUMP, _MANIFEST = "database.dump", "manifest.json"
_BLOCK_BYTES = 1 << 20
_LARGEST_MANIFEST = 1 << 16


class Manifest(BaseModel):
    """What a backup says of itself.

    Attributes:
        sextant: Version of Sextant that made it.
        revision: Of the tables.
        dumped_by: Major version of the `pg_dump` that made it; older Postgres cannot read it.
        made_at: UTC, ISO 8601.
        canary: A known text under the secret key of then; None where nothing was ever encrypted.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    sextant: str
    revision: str
    dumped_by: int
    made_at: str
    canary: str | None


class _StoredManifest(Manifest):
    """As it is written: with the form of the file, and the SHA-256 of the dump."""

    format: int
    dump_sha256: str


def write(path: Path, manifest: Manifest, dump: Iterable[bytes]) -> int:
    """Make the file, whole or not at all; nothing may be there.

    Returns:
        Bytes of the file.

    Raises:
        InvalidInputError: The file is there already, or cannot be written.
    """
    with new_file(path) as file:
        _fill(file, manifest, dump)
        return file.tell()


def _fill(file: IO[bytes], manifest: Manifest, dump: Iterable[bytes]) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        with archive.open(_DUMP, "w", force_zip64=True) as entry:
            digest = sha256()
            for block in dump:
                digest.update(block)
                entry.write(block)
        said = _StoredManifest(**dict(manifest), format=_FORMAT, dump_sha256=digest.hexdigest())
        archive.writestr(_MANIFEST, said.model_dump_json(indent=2) + "\n")
    file.seek(0, os.SEEK_END)


class BackupFile:
    """An opened backup, all of whose bytes were checked."""

    def __init__(self, archive: zipfile.ZipFile, manifest: Manifest) -> None:
        self._archive = archive
        self.manifest = manifest

    def blocks(self) -> Iterator[bytes]:
        """The dump, piece by piece."""
        with self._archive.open(_DUMP) as entry:
            while block := entry.read(_BLOCK_BYTES):
                yield block


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BackupFile]:
    """Open a backup and check that it is whole.

    Raises:
        FileFormatError: It is no backup, or damaged.
        InvalidInputError: It cannot be read.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            told = _manifest(archive, path)
            manifest = Manifest(**told.model_dump(exclude={"format", "dump_sha256"}))
            backup = BackupFile(archive, manifest)
            found = sha256()
            for block in backup.blocks():
                found.update(block)
            if found.hexdigest() != told.dump_sha256:
                raise FileFormatError(f"{path} is damaged: its dump has another SHA-256 than said.")
            yield backup
    except zipfile.BadZipFile as exc:
        raise FileFormatError(f"{path} is not a whole backup of Sextant: {exc}.") from exc
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be read: {exc.strerror or exc}.") from exc


def _manifest(archive: zipfile.ZipFile, path: Path) -> _StoredManifest:
    names = archive.namelist()
    if sorted(names) != [_DUMP, _MANIFEST]:
        raise FileFormatError(f"{path} is no backup of Sextant: it holds other entries.")
    if archive.getinfo(_MANIFEST).file_size > _LARGEST_MANIFEST:
        raise FileFormatError(f"{path} is no backup of Sextant: its manifest is too long.")
    try:
        said = json.loads(archive.read(_MANIFEST))
    except ValueError:
        said = None
    if not isinstance(said, dict) or "format" not in said:
        raise FileFormatError(f"{path} is no backup of Sextant: its manifest is none.")
    if said["format"] != _FORMAT:
        raise FileFormatError(
            f"{path} has form {said['format']!r}, and this version of Sextant reads form {_FORMAT}."
        )
    try:
        return _StoredManifest.model_validate(said)
    except ValidationError:
        raise FileFormatError(
            f"{path} is no backup of Sextant: its manifest holds other fields than it should."
        ) from None
