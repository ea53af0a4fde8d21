"""Write scores as wide CSV or Parquet (one row per examinee) or long CSV (one row per answer).

In CSV, names that a spreadsheet would run as formulas are quoted (`app.exchange.files`).
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from app.engine.bank import FloatArray
from app.engine.responses import ResponseTable
from app.exchange.files import lines, quoted

EXAMINEE_COLUMN = "examinee"


class Trial(NamedTuple):
    """Scores of one examinee in one trial, shape (n_items,), NaN for no answer."""

    examinee: str
    number: int
    scores: FloatArray


def write_csv(table: ResponseTable) -> Iterator[bytes]:
    """Lines of a wide CSV file, whose scores read back unchanged."""
    yield lines([[EXAMINEE_COLUMN, *map(quoted, table.items)]])
    for examinee, scores in zip(table.examinees, table.scores, strict=True):
        yield lines([[quoted(examinee), *map(_cell, scores.tolist())]])


def write_long(items: Sequence[str], trials: Iterable[Trial], *, repeated: bool) -> Iterator[bytes]:
    """Lines of a CSV file `examinee,item,score`, one per answer, grouped by trial.

    With `repeated`, when some examinees answered more than once, `trial` precedes the score.
    """
    yield lines([[EXAMINEE_COLUMN, "item", *(["trial"] if repeated else []), "score"]])
    items = [*map(quoted, items)]
    for trial in trials:
        examinee = quoted(trial.examinee)
        number = [trial.number] if repeated else []
        given = np.flatnonzero(~np.isnan(trial.scores))
        yield lines(
            [examinee, items[j], *number, _cell(score)]
            for j, score in zip(given.tolist(), trial.scores[given].tolist(), strict=True)
        )


def write_parquet(table: ResponseTable) -> bytes:
    """Write a Parquet file; columns of scores 0 and 1 become small integers."""
    import pyarrow as pa
    import pyarrow.parquet as pa_parquet

    columns = [pa.array(table.examinees, pa.string()), *map(_column, table.scores.T)]
    # An item may have the name of the first column, so columns are joined by position.
    arrow = pa.Table.from_arrays(columns, names=[EXAMINEE_COLUMN, *table.items])
    target = io.BytesIO()
    pa_parquet.write_table(arrow, target, compression="zstd")
    return target.getvalue()


def _cell(score: float) -> str | float:
    if score != score:
        return ""
    return int(score) if score in {0.0, 1.0} else score


def _column(scores: FloatArray) -> Any:
    import pyarrow as pa

    missing = np.isnan(scores)
    if ((scores == 0) | (scores == 1) | missing).all():
        return pa.array(np.where(missing, 0, scores).astype(np.int8), mask=missing)
    return pa.array(scores, from_pandas=True)
