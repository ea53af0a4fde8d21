"""Files that commands write."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from app.errors import InvalidInputError


@contextmanager
def writing(target: str) -> Iterator[BinaryIO]:
    """A path to be written, or stdout for `-`; a file that was begun and not finished goes away.

    Raises:
        InvalidInputError: It cannot be written.
    """
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(path)
    except OSError as exc:
        raise InvalidInputError(f"{target}: cannot be written: {exc.strerror}.") from exc
    finally:
        part.unlink(missing_ok=True)


def write_file(target: str, content: bytes) -> None:
    """Write a file, or to stdout for `-`.

    Raises:
        InvalidInputError: It cannot be written.
    """
    with writing(target) as stream:
        stream.write(content)
