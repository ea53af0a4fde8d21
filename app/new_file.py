"""A file that a person asked for: new, theirs alone to read, whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.errors import InvalidInputError


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Make a file, mode 0600, that bears its name only once the block has ended without an error.

    Args:
        path: Where; nothing may be there.

    Yields:
        The file, to write to and to read what was written.

    Raises:
        InvalidInputError: Something is there already, or the file cannot be written.
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
