"""Helpers of all readers and writers of files: size limits, text, counted faults, CSV cells.

Names in CSV cells are quoted so that no spreadsheet runs them as formulas.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from types import SimpleNamespace
from typing import Any, BinaryIO, Self, cast

from typing_extensions import override

from app.errors import FieldProblem, FileFormatError, InvalidInputError

#: Most faults of a file that are listed; further faults are only counted.
MAX_PROBLEMS = 100
MAX_CELLS = 256 * 2**20  # largest table of scores
SCORE_RANGE = (0.0, 1.0)
MAX_TEXT_BYTES = 2 * 2**30  # decompressed size of a file that is read piece by piece
MAX_WHOLE_BYTES = 128 * 2**20  # decompressed size of a file that must be in memory as a whole
#: Files of answers grow 10 to 50 times by decompression, and a repeated line 1,000 times.
MAX_RATIO = 250
#: Decompressed size that is allowed whatever the ratio.
FREE_BYTES = 16 * 2**20
#: Most items of a bank file.
MAX_ITEMS = 1_000_000

SEPARATED = "Cells are separated by commas."

#: Separators, other than commas, of tables that programs export.
_OTHER_SEPARATORS = ";\t|"
#: First bytes of files of these kinds.
GZIP, ZIP, PARQUET = b"\x1f\x8b", b"PK\x03\x04", b"PAR1"
PACKED = (GZIP, ZIP, PARQUET)
_BUFFER = 1 << 20
_LONGEST_DETAIL = 400


class FileFormat(StrEnum):
    """Formats of the files that a resource is exported as: `NAME = value, media type, suffix`.

    Attributes:
        media_type: Media type of the format in HTTP.
        suffix: Suffix of names of such files, without the leading dot.
    """

    media_type: str
    suffix: str

    def __new__(cls, value: str, media_type: str, suffix: str) -> Self:
        """Make a member from what stands behind its name."""
        made = str.__new__(cls, value)
        made._value_, made.media_type, made.suffix = value, media_type, suffix
        return made


class Problems:
    """Faults of a file: all are counted, and the first hundred are kept, shortened."""

    def __init__(self, remedy: str = "") -> None:
        self.count = 0
        self.kept: list[FieldProblem] = []
        self.remedy = remedy

    def add(self, pointer: str, detail: str) -> None:
        """Add a fault."""
        self.extend(1, [(pointer, detail)])

    def extend(self, count: int, some: Iterable[tuple[str, str]]) -> None:
        """Add `count` faults; `some` (pointer, detail) is read only as far as faults are kept."""
        self.count += count
        for pointer, detail in islice(some, MAX_PROBLEMS - len(self.kept)):
            self.kept.append(FieldProblem(shortened(pointer), shortened(detail)))

    def raise_any(self, name: str, kind: type[InvalidInputError] = FileFormatError) -> None:
        """Refuse a file if it has faults; the message names the first.

        Raises:
            InvalidInputError: There are faults; the error is of the type `kind`.
        """
        if self.count:
            first = self.kept[0]
            detail = f"{first.pointer}: {first.detail}{'' if first.detail[-1] == '?' else '.'}"
            if self.count > 1:
                detail = f"{name}: {self.count} faults, the first: {detail}"
            elif not first.pointer.startswith(name):
                detail = f"{name}: {detail}"
            raise kind(f"{detail}{self.remedy}", problems=self.kept)


def comma_hint(header: Sequence[str]) -> str:
    """Advice if the header seems to be separated by another character than commas, else empty."""
    if len(header) == 1 and any(separator in header[0] for separator in _OTHER_SEPARATORS):
        return f" {SEPARATED}"
    return ""


def shortened(text: str) -> str:
    """Cut a text that may hold content of a file."""
    return text if len(text) <= _LONGEST_DETAIL else f"{text[: _LONGEST_DETAIL - 3]}..."


def unpacked(file: BinaryIO, name: str, max_bytes: int = MAX_TEXT_BYTES) -> BinaryIO:
    """Open a file as a stream with a size limit, decompressed if it is gzip.

    The file must be seekable. It is closed with the stream.

    Raises:
        FileFormatError: The file is empty. While reading: the content exceeds `max_bytes`, or
            `MAX_RATIO` times the file's size.
    """
    size = file.seek(0, io.SEEK_END)
    if not size:
        raise FileFormatError(f"{name}: the file is empty.")
    file.seek(0)
    is_packed = file.read(2) == GZIP
    file.seek(0)
    return io.BufferedReader(_Capped(file, is_packed, name, size, max_bytes), _BUFFER)


def check_ratio(n_packed: int, n_unpacked: int, name: str) -> None:
    """Refuse small files with a large content.

    Raises:
        FileFormatError: The content exceeds `FREE_BYTES` and `MAX_RATIO` times the file's size.
    """
    if n_unpacked > max(FREE_BYTES, MAX_RATIO * n_packed):
        raise FileFormatError(
            f"{name}: expected to become at most {MAX_RATIO} times as large when decompressed, "
            f"got more than {n_unpacked} bytes from {n_packed}; decompress it first if that is "
            "intended."
        )


class _Capped(io.RawIOBase):
    """A stream that raises an error beyond its size limits."""

    def __init__(
        self, file: BinaryIO, is_packed: bool, name: str, size: int, max_bytes: int
    ) -> None:
        self._file = file
        self._stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if is_packed else file
        self._is_packed = is_packed
        self._name = name
        self._size = size
        self._max_bytes = max_bytes
        self._given = 0

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int:
        try:
            chunk = self._stream.read(len(buffer))
        except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
            raise FileFormatError(
                f"{self._name}: expected a gzip file, got a broken one: {exc}."
            ) from exc
        self._given += len(chunk)
        if self._given > self._max_bytes:
            raise FileFormatError(
                f"{self._name}: expected at most {self._max_bytes} bytes, got more."
            )
        if self._is_packed:
            check_ratio(self._size, self._given, self._name)
        buffer[: len(chunk)] = chunk
        return len(chunk)

    @override
    def close(self) -> None:
        self._file.close()  # a gzip stream on it would leave it open
        super().close()


def read_bytes(source: bytes | BinaryIO, name: str) -> bytes:
    """Read a whole file, decompressed if it is gzip.

    Raises:
        FileFormatError: The content is too large, or the gzip file is broken.
    """
    file: BinaryIO = io.BytesIO(source) if isinstance(source, bytes) else source
    return unpacked(file, name, MAX_WHOLE_BYTES).read()


def as_text(content: bytes, name: str) -> str:
    """Decode UTF-8 text, without a byte order mark.

    Raises:
        FileFormatError: Not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        if content.startswith(GZIP):
            raise FileFormatError(f"{name}: is packed by gzip: unpack it first.") from exc
        raise FileFormatError(
            f"{name}: expected UTF-8 text, got byte {content[exc.start]:#04x} at {exc.start}."
        ) from exc


def csv_rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """Last line and cells of each row of CSV, without empty lines.

    Raises:
        FileFormatError: Broken quoting, or a cell that is too long.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in filter(None, reader):
            yield reader.line_num, cells
    except csv.Error as exc:
        raise FileFormatError(f"{name}:{reader.line_num}: expected CSV, got {exc}.") from exc


#: A formula may begin at the start of a name, or behind another separator or a line end. Spaces and
#: quotes before it do not stop a spreadsheet. A number is not a formula.
_FORMULA = r"""(?: \A(?='*[\t\r\n])
    | (?: \A(?! [ '"]* [+-]? (?:\d+(?:\.\d*)?|\.\d+) (?:e[+-]?\d+)? \Z ) | (?<=[;\t\r\n]) )
      (?= (?: [^\S\t\r\n] | ['"] )* [=+\-@＝＋－＠] ) )"""
_BARE_FORMULA = re.compile(_FORMULA, re.VERBOSE | re.IGNORECASE)
_QUOTED_FORMULA = re.compile(_FORMULA + "'", re.VERBOSE | re.IGNORECASE)


def quoted(name: str) -> str:
    """Quote a name for a cell: an apostrophe before a formula makes it a text."""
    return _BARE_FORMULA.sub("'", name)


def plain(cell: str) -> str:
    """Undo `quoted`."""
    return _QUOTED_FORMULA.sub("", cell)


def lines(rows: Iterable[Sequence[str | float]]) -> bytes:
    """Write CSV lines, with floats as the shortest texts that read back as the same floats."""
    written: list[str] = []
    # Before Python 3.13, cells with a carriage return are quoted only if it also ends lines.
    writer = csv.writer(cast(Any, SimpleNamespace(write=written.append)), lineterminator="\r\n")
    # One call for all rows would block every other thread.
    for row in rows:
        writer.writerow(row)
    return "".join(f"{line[:-2]}\n" for line in written).encode()
