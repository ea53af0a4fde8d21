"""Rows of a split: JSON lines, or Parquet as datasets of the hub have it."""

import io
import json
from typing import Any

from app.errors import FileFormatError
from app.exchange.files import as_text

_PARQUET = b"PAR1"


def read_rows(content: bytes, name: str, limit: int | None = None) -> list[dict[str, Any]]:
    """All rows, or the first `limit`, as dictionaries.

    Raises:
        FileFormatError: Neither JSON lines of objects nor Parquet.
    """
    if content.startswith(_PARQUET):
        return _parquet(content, name, limit)
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(as_text(content, name).split("\n"), start=1):
        if not line.strip():
            continue
        if limit is not None and len(rows) >= limit:
            break
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise FileFormatError(f"{name}:{number}: expected a JSON object: {exc}.") from None
        if not isinstance(row, dict):
            raise FileFormatError(
                f"{name}:{number}: expected a JSON object, got {type(row).__name__}."
            )
        rows.append(row)
    return rows


def _parquet(content: bytes, name: str, limit: int | None) -> list[dict[str, Any]]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(io.BytesIO(content)) as file:
            rows: list[dict[str, Any]] = []
            for batch in file.iter_batches(batch_size=1000, use_threads=False):
                rows += batch.to_pylist()
                if limit is not None and len(rows) >= limit:
                    return rows[:limit]
            return rows
    except (pa.ArrowException, OSError, ValueError) as exc:
        raise FileFormatError(f"{name}: expected Parquet, got a fault: {exc!s:.200}.") from None
