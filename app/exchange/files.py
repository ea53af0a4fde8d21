"""What all readers of tabular files need: bytes, text, faults."""

import gzip
import io
import zlib
from typing import BinaryIO

from app.errors import FieldProblem, FileFormatError, InvalidInputError

MAX_PROBLEMS = 50
MAX_CELLS = 400_000_000  # of a table of scores: 3.2 GB as float64
SCORE_RANGE = (0.0, 1.0)
MAX_TEXT_BYTES = 2 * 2**30  # after decompression

_GZIP = b"\x1f\x8b"


def read_bytes(source: bytes | BinaryIO, name: str) -> bytes:
    """Everything in a file, decompressed if it is a gzip file.

    Raises:
        FileFormatError: Too large, or a broken gzip file.
    """
    stream: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source
    content = stream.read(MAX_TEXT_BYTES + 1)
    if content.startswith(_GZIP):
        try:
            with gzip.open(io.BytesIO(content)) as unzipped:
                content = unzipped.read(MAX_TEXT_BYTES + 1)
        except (EOFError, OSError, zlib.error) as exc:
            raise FileFormatError(
                f"{name}: expected a gzip file, got a broken one: {exc}."
            ) from exc
    if len(content) > MAX_TEXT_BYTES:
        raise FileFormatError(f"{name}: expected at most {MAX_TEXT_BYTES} bytes, got more.")
    return content


def as_text(content: bytes, name: str) -> str:
    """UTF-8 text, without a byte order mark.

    Raises:
        FileFormatError: Not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise FileFormatError(
            f"{name}: expected UTF-8 text, got byte {content[exc.start]:#04x} at {exc.start}."
        ) from exc


def raise_problems(
    name: str, problems: list[FieldProblem], kind: type[InvalidInputError] = FileFormatError
) -> None:
    """Refuse a file if it has faults: the first is in the message, the first 50 are listed.

    Raises:
        InvalidInputError: Of the given kind.
    """
    if problems:
        n = len(problems)
        many = "1 fault" if n == 1 else f"{n} faults, the first"
        raise kind(
            f"{name}: {many}: {problems[0].pointer}: {problems[0].detail}.",
            problems=problems[:MAX_PROBLEMS],
        )
