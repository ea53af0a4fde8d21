"""An export on its way into a file: whole, or not there."""

import json
import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from app.errors import FileFormatError, InvalidInputError


def write_archive(path: Path, fill: Callable[[IO[bytes]], None]) -> dict[str, int]:
    """Make a ZIP file with a manifest, mode 0600.

    Args:
        path: Where; nothing may be there.
        fill: Writes its bytes.

    Returns:
        Rows by part, as the manifest says.

    Raises:
        InvalidInputError: The file is there already, or cannot be written.
        FileFormatError: What was written breaks off.
    """
    try:
        if path.exists():
            raise InvalidInputError(f"{path} is there already: choose another name, or move it.")
        descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
        try:
            with os.fdopen(descriptor, "wb") as file:
                fill(file)
            rows = _rows(partial)
            os.link(partial, path)  # fails when somebody else was first, unlike a rename
        finally:
            Path(partial).unlink()
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be written: {exc.strerror}.") from exc
    return rows


def _rows(name: str) -> dict[str, int]:
    try:
        with zipfile.ZipFile(name) as archive:
            parts = json.loads(archive.read("manifest.json"))["parts"]
            return {table: part["rows"] for table, part in parts.items()}
    except (zipfile.BadZipFile, KeyError) as exc:
        raise FileFormatError("The export broke off before its end: nothing was written.") from exc
