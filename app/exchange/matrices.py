"""Scores as a file: wide CSV or Parquet, one row an examinee, or long CSV, one row an answer.

Names are written as they are, also those that a spreadsheet would take for formulas: a file whose
names were changed would no longer be about the same examinees and items.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.engine.bank import FloatArray
from app.engine.responses import ResponseTable

EXAMINEE_COLUMN = "examinee"


class Trial(NamedTuple):
    """Scores of one examinee in one trial, shape (n_items,), NaN where there is none."""

    examinee: str
    number: int
    scores: FloatArray


def write_csv(table: ResponseTable) -> Iterator[bytes]:
    """The lines of a CSV file; scores read back as they are."""
    yield _lines([[EXAMINEE_COLUMN, *table.items]])
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        yield _lines([[examinee, *map(_cell, scores.tolist())]])


def write_long(items: Sequence[str], trials: Iterable[Trial], *, repeated: bool) -> Iterator[bytes]:
    """A CSV file `examinee,item,score`, a line an answer; the lines of one trial come together.

    Args:
        items: Names, in the order of the scores.
        trials: Of whom.
        repeated: Some examinees answered more than once: a column `trial` comes before the score.
    """
    yield _lines([[EXAMINEE_COLUMN, "item", *(["trial"] if repeated else []), "score"]])
    for trial in trials:
        number = [str(trial.number)] if repeated else []
        given = np.flatnonzero(~np.isnan(trial.scores))
        yield _lines(
            [trial.examinee, items[j], *number, _cell(score)]
            for j, score in zip(given.tolist(), trial.scores[given].tolist(), strict=True)
        )


def write_parquet(table: ResponseTable) -> bytes:
    """A Parquet file; scores of 0 and 1 alone become small integers."""
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    columns = [pa.array(table.examinees, pa.string()), *map(_column, table.scores.T)]
    # An item may have the name of the first column, so they are put together by position.
    arrow = pa.Table.from_arrays(columns, names=[EXAMINEE_COLUMN, *table.items])
    target = io.BytesIO()
    pa_parquet.write_table(arrow, target, compression="zstd")
    return target.getvalue()


def _lines(rows: Iterable[list[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _cell(score: float) -> str:
    if score != score:
        return ""
    return str(int(score)) if score in {0.0, 1.0} else repr(score)


def _column(scores: FloatArray) -> Any:
    import pyarrow as pa

    missing = np.isnan(scores)
    if ((scores == 0) | (scores == 1) | missing).all():
        return pa.array(np.where(missing, 0, scores).astype(np.int8), mask=missing)
    return pa.array(scores, from_pandas=True)
