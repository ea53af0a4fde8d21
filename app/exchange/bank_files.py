"""Write a bank as a file, in each format that can be read back.

| format | file |
|---|---|
| `mirt` | CSV `X,a1,d,g,u` as R's mirt writes it; `d` is an intercept |
| `csv` | CSV `item,a,b,c,d`, and `k` for continuous scores; `intercept` for `b` if an a is 0 |
| `py-irt` | `best_parameters.json` of py-irt |
| `parquet` | `item, a, b, intercept, c, d, status`, and `k` for continuous scores |
| `jsonl` | one line per item, with its content and its parameters |

With several abilities `mirt` has `a1,a2,...`, `csv` is `item,intercept,general,dimension_1,...`,
and `parquet` and `jsonl` have these slopes as well (`app.exchange.slopes`). No format holds the
knowledge that predicts scores.

In CSV, names that a spreadsheet would run as formulas are quoted (`app.exchange.files`).
"""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum

from app.engine.bank import ItemBank
from app.errors import ItemBankError
from app.exchange.parameters import shortest_difficulties, write_difficulties, write_mirt
from app.exchange.py_irt import write_py_irt_parameters


class BankFormat(StrEnum):
    """File formats of a bank."""

    MIRT = "mirt"
    CSV = "csv"
    PY_IRT = "py-irt"
    PARQUET = "parquet"
    JSONL = "jsonl"

    @property
    def media_type(self) -> str:
        """Media type of the format in HTTP."""
        return _FILES[self][0]

    @property
    def suffix(self) -> str:
        """Suffix of the names of such files."""
        return _FILES[self][1]


_FILES = {
    BankFormat.MIRT: ("text/csv; charset=utf-8", "mirt.csv"),
    BankFormat.CSV: ("text/csv; charset=utf-8", "csv"),
    BankFormat.PY_IRT: ("application/json", "py-irt.json"),
    BankFormat.PARQUET: ("application/vnd.apache.parquet", "parquet"),
    BankFormat.JSONL: ("application/x-ndjson", "jsonl"),
}


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
            from app.exchange.parquet_parameters import write_parquet_parameters

            bank = bank.standardised()
            b = shortest_difficulties(bank)
            return write_parquet_parameters(bank, b, statuses)
        case BankFormat.JSONL:
            raise ValueError("items are written line by line")


def item_line(fields: Mapping[str, object]) -> bytes:
    """Write one line of an item file; fields without a value are left out."""
    given = {name: value for name, value in fields.items() if value not in (None, [], {})}
    return json.dumps(given, ensure_ascii=False, allow_nan=False).encode() + b"\n"
