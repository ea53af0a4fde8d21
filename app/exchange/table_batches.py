"""Read tables of recorded answers in pieces: CSV or Parquet in, batches of typed columns out.

Only one batch is in memory at a time, however large the decompressed file is.
"""

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

from app.engine.bank import FloatArray, IntArray
from app.errors import FileFormatError
from app.exchange.files import (
    MAX_RATIO,
    MAX_WHOLE_BYTES,
    PARQUET,
    Problems,
    as_text,
    plain,
    shortened,
    unpacked,
)

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")
MAX_COLUMNS = 100_000
MAX_HEADER_BYTES = 8 * 2**20
#: Bytes of CSV that become one batch; no row is longer.
BLOCK_BYTES = 16 * 2**20
#: Most cells of a Parquet batch, and number of cells that a file of any size may declare.
_BATCH_CELLS = 2_000_000
_FREE_CELLS = 25_000_000
#: Rows of wrong length after which no more are counted, as each needs a call into Python.
_MAX_RAGGED = 100_000

#: Types of columns of repeated names and of columns of any text; other columns are numbers.
NAMES = pa.dictionary(pa.int32(), pa.string())
TEXT = pa.string()


class TableFile:
    """A table whose header is read at once, and whose rows are read once, in batches.

    Args:
        file: Seekable file; gzip and Parquet are recognised.

    Attributes:
        remedy: Advice that follows the message of cells that are not numbers.

    Raises:
        FileFormatError: Not a table, or too many columns.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.remedy = ""
        self._name = name
        self._file = file
        self._stream = unpacked(file, name)
        #: Streams of later passes over the file: each would close it when it is freed.
        self._kept: list[BinaryIO] = []
        self._parquet: Any = None
        if self._stream.peek(4).startswith(PARQUET):  # type: ignore[attr-defined]  # buffered
            self._parquet = open_parquet(file, name)
            schema = self._parquet.schema_arrow
            if nested := [field.name for field in schema if pa.types.is_nested(field.type)]:
                raise FileFormatError(
                    f"{name}: expected columns of texts and numbers, got {nested[0]!r:.80} of "
                    "lists or objects."
                )
            self.header = [name.strip() for name in schema.names]
        else:
            # A quote before a formula may hide further blanks.
            header = _csv_header(self._stream, name)
            self.header = [plain(cell.strip()).strip() for cell in header]
        if len(self.header) > MAX_COLUMNS:
            raise FileFormatError(
                f"{name}: expected at most {MAX_COLUMNS:,} columns, got {len(self.header):,}."
            )

    def batches(self, types: Mapping[int, Any]) -> Iterator[Any]:
        """Read record batches; columns that are not in `types` are float64.

        Raises:
            FileFormatError: Rows of wrong length, cells that are not numbers, or a broken file.
        """
        if self._parquet is not None:
            return self._parquet_batches(types)
        return self._csv_batches(types)

    def _csv_batches(self, types: Mapping[int, Any]) -> Iterator[Any]:
        kinds, ragged, n_read = [types.get(i, pa.float64()) for i in self._columns], Problems(), 0
        try:
            for batch in _csv_reader(self._rows(self._stream), kinds, self._noted(ragged)):
                if not ragged.count:
                    n_read += batch.num_rows
                    columns = [_plain(c) if j in types else c for j, c in enumerate(batch.columns)]
                    yield pa.RecordBatch.from_arrays(columns, batch.schema.names)
        except pa.ArrowInvalid as exc:
            ragged.raise_any(self._name)
            yield from self._text_batches(types, n_read, exc)
        ragged.raise_any(self._name)

    def _below_header(self) -> BinaryIO:
        stream = unpacked(self._file, self._name)
        _csv_header(stream, self._name)
        self._kept.append(stream)
        return stream

    def _rows(self, stream: BinaryIO) -> Any:
        """The rest of the stream for Arrow, as Arrow's own memory unless it is long.

        A thread of Arrow reads a Python file, and frees it some time after the last batch. If the
        interpreter exits just then, such as after an error in the file, it aborts the process.
        """
        rest = stream.read(BLOCK_BYTES + 1)
        if len(rest) > BLOCK_BYTES:
            return self._below_header()
        sink = pa.BufferOutputStream()
        sink.write(rest)
        return pa.BufferReader(sink.getvalue())

    def _text_batches(
        self, types: Mapping[int, Any], n_read: int, cause: Exception
    ) -> Iterator[Any]:
        """Read the file again, as text: true and false are scores, other words are reported.

        The first `n_read` rows were read before, as numbers.
        """
        if "straddling" in str(cause):
            raise FileFormatError(
                f"{self._name}: expected rows of at most {BLOCK_BYTES} bytes, got a longer one "
                "or a quote that is not closed."
            ) from cause
        name, problems, ragged, row = self._name, Problems(self.remedy), Problems(), 2
        stream = self._below_header()
        kinds = [types.get(i, TEXT) for i in self._columns]
        try:
            for batch in _csv_reader(self._rows(stream), kinds, self._noted(ragged)):
                columns = [
                    _plain(column) if j in types else _scores(column, problems, self._place(row, j))
                    for j, column in enumerate(batch.columns)
                ]
                known = max(n_read + 2 - row, 0)
                row += batch.num_rows
                if not problems.count and not ragged.count and known < batch.num_rows:
                    yield pa.RecordBatch.from_arrays(columns, batch.schema.names).slice(known)
        except pa.ArrowInvalid as exc:
            if not problems.count and not ragged.count:
                raise FileFormatError(f"{name}: expected CSV, got {shortened(str(exc))}.") from exc
        ragged.raise_any(name)
        problems.raise_any(name)

    @property
    def _columns(self) -> range:
        return range(len(self.header))

    def _place(self, first_row: int, column: int) -> Callable[[int], str]:
        return lambda row: f"{self._name}:{first_row + row}:{self.header[column]}"

    def _noted(self, ragged: Problems) -> Callable[[Any], str]:
        def on_ragged(row: Any) -> str:
            detail = f"expected {row.expected_columns} cells, got {row.actual_columns}"
            ragged.add(f"{self._name}:{row.number + 1}", detail)
            return "skip" if ragged.count < _MAX_RAGGED else "error"

        return on_ragged

    def _parquet_batches(self, types: Mapping[int, Any]) -> Iterator[Any]:
        n_rows = max(1, _BATCH_CELLS // max(1, len(self.header)))
        problems, row = Problems(self.remedy), 2
        with reading_parquet(self._name):
            for batch in self._parquet.iter_batches(batch_size=n_rows, use_threads=False):
                columns = []
                for j, column in enumerate(batch.columns):
                    wanted = types.get(j, pa.float64())
                    try:
                        if wanted == pa.float64() and _is_text(column.type):
                            texts = _cast(column, NAMES)
                            columns.append(_scores(texts, problems, self._place(row, j)))
                        else:
                            columns.append(_cast(column, wanted))
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                        shown = pa.string() if wanted == NAMES else wanted
                        detail = f"expected {shown}, got a column of {column.type}"
                        problems.add(f"{self._name}:*:{self.header[j]}", detail)
                problems.raise_any(self._name)
                row += batch.num_rows
                yield pa.RecordBatch.from_arrays(columns, [str(j) for j in range(len(columns))])


@contextmanager
def reading_parquet(name: str) -> Iterator[None]:
    """Turn errors of pyarrow into one of ours.

    Raises:
        FileFormatError: Not Parquet, or a broken file.
    """
    try:
        yield
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as exc:
        raise FileFormatError(
            f"{name}: expected a Parquet file, got {shortened(str(exc))}."
        ) from exc


def open_parquet(file: BinaryIO, name: str) -> Any:
    """Open a Parquet file, gzipped or not, and check its number of cells against its size.

    Raises:
        FileFormatError: Not Parquet, or too many cells.
    """
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if not file.read(4).startswith(PARQUET):  # it was a gzip file
        content = unpacked(file, name, MAX_WHOLE_BYTES).read()
        file, size = io.BytesIO(content), len(content)
    with reading_parquet(name):
        file.seek(0)
        opened = pa_parquet.ParquetFile(file, pre_buffer=False)
        cells = opened.metadata.num_rows * opened.metadata.num_columns
    if cells > max(_FREE_CELLS, MAX_RATIO * size):
        raise FileFormatError(
            f"{name}: expected at most {max(_FREE_CELLS, MAX_RATIO * size):,} cells in "
            f"{size:,} bytes of Parquet, got {opened.metadata.num_rows:,} rows of "
            f"{opened.metadata.num_columns:,} columns."
        )
    return opened


def names_of(column: Any) -> tuple[list[str | None], IntArray]:
    """Distinct names of a column of type `NAMES`, by first appearance, and each row's position."""
    indices = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    n_rows = len(indices)
    # First row of each name, and, as the last entry, of a missing name, without sorting the rows.
    first = np.full(len(column.dictionary) + 1, n_rows)
    first[indices[::-1]] = np.arange(n_rows - 1, -1, -1)
    order = np.argsort(first)[: np.count_nonzero(first < n_rows)]
    rank = np.empty(len(first), np.intp)
    rank[order] = np.arange(len(order))
    known = order[order < len(column.dictionary)]
    names: list[str | None] = column.dictionary.take(pa.array(known)).to_pylist()
    if len(known) < len(order):
        names.insert(int(rank[-1]), None)
    return names, rank[indices]


def floats_of(column: Any) -> FloatArray:
    """Numbers of a column, NaN for empty cells."""
    floats: FloatArray = column.to_numpy(zero_copy_only=False)
    return floats


def _plain(column: Any) -> Any:
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _plain(column.dictionary))
    if not pa.types.is_string(column.type) or not pc.any(pc.match_substring(column, "'")).as_py():
        return column
    return pa.array(map(plain, column.to_pylist()), TEXT)


def _cast(column: Any, wanted: Any) -> Any:
    if wanted != NAMES:
        return pc.cast(column, wanted)
    if not pa.types.is_dictionary(column.type):
        return pc.cast(column, pa.string()).dictionary_encode()
    # A dictionary stores each text once; expanded, the texts may take any amount of memory.
    texts = pc.cast(column.dictionary, pa.string())
    return pa.DictionaryArray.from_arrays(pc.cast(column.indices, pa.int32()), texts)


def _is_text(kind: Any) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _csv_reader(stream: Any, kinds: Sequence[Any], on_ragged: Any) -> Any:
    positions = [str(i) for i in range(len(kinds))]
    return pa_csv.open_csv(
        stream,
        # Rows are numbered with one thread only. Blocks hold many rows of many columns.
        pa_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=positions),
        pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=on_ragged),
        pa_csv.ConvertOptions(
            column_types=dict(zip(positions, kinds, strict=True)),
            null_values=list(MISSING),
            strings_can_be_null=False,
            check_utf8=True,
        ),
    )


def _csv_header(stream: BinaryIO, name: str) -> list[str]:
    """The cells of the first line, which continues while a quote is open."""
    first = bytearray()
    n_quotes = 0
    while line := stream.readline(MAX_HEADER_BYTES + 1 - len(first)):
        first += line
        n_quotes += line.count(b'"')
        if len(first) > MAX_HEADER_BYTES:
            raise FileFormatError(
                f"{name}:1: expected a CSV header of at most {MAX_HEADER_BYTES} bytes, got more."
            )
        if n_quotes % 2 == 0:
            break
    try:
        header = next(
            csv.reader(io.StringIO(as_text(bytes(first), name), newline=""), strict=True), []
        )
    except csv.Error as exc:
        raise FileFormatError(f"{name}:1: expected a CSV header, got {exc}.") from exc
    if header and not stream.peek(1):  # type: ignore[attr-defined]  # buffered
        raise FileFormatError(f"{name}: expected a row of scores below the header, got none.")
    return header


_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[-+]?[0-9]+)?")
#: Scores as words, in any case.
_WORDS = {"true": 1.0, "false": 0.0}


def _scores(column: Any, problems: Problems, place: Callable[[int], str]) -> Any:
    """Numbers of a column of texts; other texts are added to the faults at their `place`."""
    different = column.dictionary_encode()
    texts = [*(text or "" for text in different.dictionary.to_pylist()), ""]  # the last: null
    known = [_score(text) for text in texts]
    indices = different.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)
    wrong = np.array([score is None for score in known], dtype=np.bool_)
    rows = np.flatnonzero(wrong[indices]).tolist()
    told = ((place(row), f"expected a score, got {texts[indices[row]]!r:.80}") for row in rows)
    problems.extend(len(rows), told)
    return pa.array(np.array(known, dtype=np.float64)[indices])


def _score(cell: str) -> float | None:
    """The score in a cell, NaN for no answer; None for other text."""
    if cell in MISSING:
        return math.nan
    text = cell.strip().lower()
    return float(text) if _NUMBER.fullmatch(text) else _WORDS.get(text)
