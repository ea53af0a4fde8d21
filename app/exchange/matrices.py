"""A table of scores as a file: wide CSV or Parquet, one row an examinee; no answer is empty."""

import csv
import io
from collections.abc import Iterator

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]  # pyarrow ships no types
import pyarrow.parquet as pa_parquet  # type: ignore[import-untyped]

from app.engine.bank import FloatArray
from app.engine.responses import ResponseTable

EXAMINEE_COLUMN = "examinee"


def write_csv(table: ResponseTable) -> Iterator[bytes]:
    """The lines of a CSV file; scores read back as they are."""
    yield _line([EXAMINEE_COLUMN, *table.items])
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        yield _line([examinee, *map(_cell, scores.tolist())])


def write_parquet(table: ResponseTable) -> bytes:
    """A Parquet file; scores of 0 and 1 alone become small integers."""
    columns = [pa.array(table.examinees, pa.string()), *map(_column, table.scores.T)]
    # An item may have the name of the first column, so they are put together by position.
    arrow = pa.Table.from_arrays(columns, names=[EXAMINEE_COLUMN, *table.items])
    target = io.BytesIO()
    pa_parquet.write_table(arrow, target, compression="zstd")
    return target.getvalue()


def _line(cells: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _cell(score: float) -> str:
    if score != score:
        return ""
    return str(int(score)) if score in {0.0, 1.0} else repr(score)


def _column(scores: FloatArray) -> pa.Array:
    missing = np.isnan(scores)
    if ((scores == 0) | (scores == 1) | missing).all():
        return pa.array(np.where(missing, 0, scores).astype(np.int8), mask=missing)
    return pa.array(scores, from_pandas=True)
