"""Writes a file for a person: new, readable by them alone, and either complete or absent."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.errors import InvalidInputError


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Create a file of mode 0600 that gets its name only when the block ends without an error.

    Args:
        path: Path of the file; nothing may exist there.

    Yields:
        The file, open for writing and reading.

    Raises:
        InvalidInputError: Something exists at the path, or the file cannot be written.
    """
    there = InvalidInputError(f"{path} is there already: choose another name, or move it.")
    try:
        if path.exists():
            raise there
        descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)  # 0600
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.link(partial, path)  # fails when somebody else was first, unlike a rename
        finally:
            Path(partial).unlink()
    except FileExistsError:
        raise there from None
    except OSError as exc:
        raise InvalidInputError(f"{path} cannot be written: {exc.strerror or exc}.") from exc
