"""An export on its way into a file."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from app.errors import FileFormatError
from app.new_file import new_file


def write_archive(path: Path, fill: Callable[[IO[bytes]], None]) -> dict[str, int]:
    """Make a ZIP file with a manifest, whole or not at all.

    Args:
        path: Where; nothing may be there.
        fill: Writes its bytes.

    Returns:
        Rows by part, as the manifest says.

    Raises:
        InvalidInputError: The file is there already, or cannot be written.
        FileFormatError: What was written breaks off.
    """
    with new_file(path) as file:
        fill(file)
        return _rows(file)


def _rows(file: IO[bytes]) -> dict[str, int]:
    try:
        with zipfile.ZipFile(file) as archive:
            parts = json.loads(archive.read("manifest.json"))["parts"]
            return {table: part["rows"] for table, part in parts.items()}
    except (zipfile.BadZipFile, KeyError) as exc:
        raise FileFormatError("The export broke off before its end: nothing was written.") from exc
