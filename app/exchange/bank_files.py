"""Write a bank as a file, in each format that can be read back.

| format | file |
|---|---|
| `mirt` | CSV `X,a1,d,g,u` as R's mirt writes it; `d` is an intercept |
| `csv` | CSV `item,a,b,c,d`, and `k` for continuous scores; `intercept` for `b` if an a is 0 |
| `py-irt` | `best_parameters.json` of py-irt |
| `parquet` | `item, a, b, intercept, c, d, status`, and `k` for continuous scores |
| `jsonl` | one line per item, with its content and its parameters |

With several abilities `mirt` has `a1,a2,...`, `csv` is `item,intercept,general,dimension_1,...`,
and `parquet` and `jsonl` have these slopes as well (`app.exchange.parameters`). No format holds the
knowledge that predicts scores.

In CSV, names that a spreadsheet would run as formulas are quoted (`app.exchange.files`).
"""

import io
import json
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.continuous import CONTINUOUS
from app.errors import ItemBankError
from app.exchange.files import FileFormat, lines, quoted
from app.exchange.py_irt import write_py_irt_parameters


class BankFormat(FileFormat):
    """File formats of a bank."""

    MIRT = "mirt", "text/csv; charset=utf-8", "mirt.csv"
    CSV = "csv", "text/csv; charset=utf-8", "csv"
    PY_IRT = "py-irt", "application/json", "py-irt.json"
    PARQUET = "parquet", "application/vnd.apache.parquet", "parquet"
    JSONL = "jsonl", "application/x-ndjson", "jsonl"


def write_bank(
    bank: ItemBank, file_format: BankFormat, statuses: Sequence[str] | None = None
) -> bytes:
    """Write the parameters of a bank; `jsonl` also needs content and is written by `item_line`.

    Raises:
        ItemBankError: Parameters that the format cannot hold, such as several abilities.
    """
    match file_format:
        case BankFormat.MIRT:
            return write_mirt(bank)
        case BankFormat.CSV:
            return write_difficulties(bank)
        case BankFormat.PY_IRT:
            if bank.abilities is not None:
                raise ItemBankError(
                    "py-irt files hold one ability, and this bank measures several: take mirt, csv,"
                    " parquet or jsonl."
                )
            return write_py_irt_parameters(bank, shortest_difficulties(bank))
        case BankFormat.PARQUET:
            return _write_parquet(bank, statuses)
        case BankFormat.JSONL:
            raise ValueError("items are written line by line")


def item_line(fields: Mapping[str, object]) -> bytes:
    """Write one line of an item file; fields without a value are left out."""
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    return json.dumps(given, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def write_mirt(bank: ItemBank) -> bytes:
    """Write mirt's form `X,a1,d,g,u`, with intercepts, or `a1,a2,...` for several abilities.

    Raises:
        ItemBankError: A bank of continuous scores, which mirt does not support.
    """
    if bank.model is CONTINUOUS:
        raise ItemBankError(
            "mirt files cannot hold continuous items: export csv, with the columns item,a,b,c,d,k."
        )
    bank = bank.standardised()
    slopes = tuple(slopes_by_name(bank).values()) or (bank.a,)
    numbered = (f"a{number}" for number in range(1, len(slopes) + 1))
    return _csv(("X", *numbered, "d", "g", "u"), bank, (*slopes, bank.intercept, bank.c, bank.d))


def write_difficulties(bank: ItemBank) -> bytes:
    """Write `item,a,b,c,d`, with difficulties, and a last column k for continuous scores.

    If an item has a = 0, it has no difficulty, so all items get intercepts: `item,a,intercept,c,d`.
    Several abilities have no single difficulty either: `item,intercept,general,dimension_1,...`.
    """
    bank = bank.standardised()
    if slopes := slopes_by_name(bank):
        return _csv(("item", "intercept", *slopes), bank, (bank.intercept, *slopes.values()))
    columns = bank.columns
    if np.all(bank.a != 0):
        columns = {"a": bank.a, "b": shortest_difficulties(bank), **bank.columns}
        del columns["intercept"]
    return _csv(("item", *columns), bank, tuple(columns.values()))


def _write_parquet(bank: ItemBank, statuses: Sequence[str] | None) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    bank = bank.standardised()
    b = shortest_difficulties(bank)
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
    parquet.write_table(pa.table(columns), target, compression="zstd")
    return target.getvalue()


def slopes_by_name(bank: ItemBank) -> dict[str, FloatArray]:
    """Slopes of a standardised bank, shape (n_items,) each; empty for a bank of one ability."""
    if bank.abilities is None:
        return {}
    items = bank.abilities.items
    return dict(zip(items.names, items.across, strict=True))


_NEIGHBOURS = 2  # floats on each side of a quotient that are tried as difficulties


def shortest_difficulties(bank: ItemBank) -> FloatArray:
    """Difficulties for writing: the shortest decimals that reproduce the intercepts.

    An intercept is -a b, rounded. Dividing it by -a may differ from the original b by a bit: 0.3
    would become 0.30000000000000004. For some intercepts no b reproduces every bit, and the
    quotient is returned. If a is 0, there is no difficulty: NaN.
    """
    quotients = bank.b
    tried = [_rounded(quotients, digits) for digits in (15, 16)] + [quotients]
    for direction in (-np.inf, np.inf):
        beside = quotients
        for _ in range(_NEIGHBOURS):
            beside = np.nextafter(beside, direction)
            tried.append(beside)
    with np.errstate(over="ignore"):
        exact = [-bank.a * b == bank.intercept for b in tried]
    return np.select(exact, tried, default=quotients)


def _rounded(values: FloatArray, digits: int) -> FloatArray:
    return np.array([float(f"{value:.{digits}g}") for value in values.tolist()])


def _csv(header: Sequence[str], bank: ItemBank, columns: Sequence[FloatArray]) -> bytes:
    numbers = (column.tolist() for column in columns)
    return lines(chain([header], zip(map(quoted, bank.item_ids), *numbers, strict=True)))
