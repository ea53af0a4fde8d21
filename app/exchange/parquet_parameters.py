"""Item parameters as Parquet: columns `item`, `a`, `b` or `intercept` or both, `c`, `d`.

A column `k` means continuous scores. Slopes `general`, `dimension_1`, ... mean several abilities;
`a` and `b` then belong to the main ability alone and are not read.

If a file has both, `intercept` is read instead of `b`: every item has one, even with a = 0, and it
is exact. Other columns, such as `status`, are not read.
"""

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pa_parquet

from app.engine.bank import DEFAULT_SCALE, FloatArray, ItemBank
from app.errors import FileFormatError
from app.exchange.files import MAX_ITEMS, Problems, shortened
from app.exchange.slopes import bank_of_columns, mirt_names, own_names, slopes_by_name

MAX_COLUMNS = 1_000
_NUMBERS = ("a", "b", "intercept", "c", "d", "k")


def read_parquet_parameters(
    content: bytes, *, name: str = "parameters", scale: str = DEFAULT_SCALE
) -> ItemBank:
    """Read the items of a file; if any row is faulty, nothing is returned.

    Raises:
        FileFormatError: Not Parquet, or a column that is missing or of another type.
        ItemBankError: Invalid item parameters.
    """
    table = _table(content, name)
    have = set(table.column_names)
    if not {"item", "a"} <= have or not have & {"b", "intercept"}:
        found = ", ".join(table.column_names)
        raise FileFormatError(
            f"{name}: expected the columns item, a, and intercept or b; found {found:.300}."
        )
    keys = _cast(table, "item", pa.string(), name).to_pylist()
    columns = {
        column: _cast(table, column, pa.float64(), name).to_numpy(zero_copy_only=False)
        for column in _NUMBERS
        if column in have
    }
    problems = Problems()
    for row, key in enumerate(keys):
        if not key or not key.strip():
            problems.add(f"{name}:{row}:item", "expected the name of an item, got nothing")
    problems.raise_any(name)
    slopes = {
        column: _cast(table, column, pa.float64(), name).to_numpy(zero_copy_only=False)
        for column in own_names(table.column_names)
    }
    if slopes and "intercept" not in columns:
        raise FileFormatError(f"{name}: expected the column intercept beside several slopes.")
    if not slopes and mirt_names(table.column_names):
        raise FileFormatError(
            f"{name}: expected slopes in several abilities as general, dimension_1, ... in "
            "Parquet, got a1, a2, ..."
        )
    item_ids = [key.strip() for key in keys]
    return bank_of_columns(columns, slopes, item_ids, name=name, scale=scale)


def write_parquet_parameters(
    bank: ItemBank, b: FloatArray, statuses: Sequence[str] | None = None
) -> bytes:
    """Write a bank with difficulties `b`, which are NaN for items without difficulty."""
    columns: dict[str, FloatArray | pa.Array] = {
        "item": pa.array(bank.item_ids, pa.string()),
        "a": bank.a,
        "b": pa.array(b, mask=np.isnan(b)),
        **bank.columns,
        **slopes_by_name(bank),
    }
    if statuses is not None:
        columns["status"] = pa.array(statuses, pa.string())
    target = io.BytesIO()
    pa_parquet.write_table(pa.table(columns), target, compression="zstd")
    return target.getvalue()


def _table(content: bytes, name: str) -> Any:
    try:
        file = pa_parquet.ParquetFile(pa.BufferReader(content), pre_buffer=False)
        rows, names = file.metadata.num_rows, file.schema_arrow.names
        if rows > MAX_ITEMS or len(names) > MAX_COLUMNS:
            raise FileFormatError(
                f"{name}: expected at most {MAX_ITEMS:,} rows of {MAX_COLUMNS:,} columns, got "
                f"{rows:,} of {len(names):,}."
            )
        read = [n for n in names if n in {"item", *_NUMBERS, *own_names(names), *mirt_names(names)}]
        return file.read(columns=read, use_threads=False)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError) as exc:
        raise FileFormatError(
            f"{name}: expected a Parquet file, got {shortened(str(exc))}."
        ) from exc


def _cast(table: Any, column: str, kind: Any, name: str) -> Any:
    if table.column_names.count(column) > 1:
        raise FileFormatError(f"{name}: expected the column {column} once, got it again.")
    try:
        return pc.cast(table.column(column), kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise FileFormatError(
            f"{name}: expected {kind} in the column {column}, got {table.column(column).type}."
        ) from exc
