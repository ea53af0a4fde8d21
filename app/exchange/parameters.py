"""Files of item parameters: bytes in, an `ItemBank` out, and back.

Parquet and py-irt's JSON are recognised by their first bytes; other files are CSV, maybe gzipped.
In CSV the first column holds item ids, whatever its name. The header decides the form:

| form | columns | meaning |
|---|---|---|
| mirt | `a1, d`, optional `g` (0), `u` (1) | `d` is an intercept: b = -d / a1 |
| mirt, IRTpars | `a, b`, optional `g` (0), `u` (1) | `b` is a difficulty |
| generic | `a, b`, optional `c` (0), `d` (1) | `b` is a difficulty, `d` the upper asymptote |
| continuous | `a, b, k`, optional `c` (0), `d` (1) | scores between c and d, k their dispersion |
| flat items | `a, intercept`, optional `k`, `c` (0), `d` (1) | b has no value where a is 0 |
| mirt, several abilities | `a1, a2, ..., d`, optional `g` (0), `u` (1) | slopes and intercept |
| several abilities | `intercept, dimension_1, ...`, optional `general` | slopes by ability |

Several abilities are standard normal, as in mirt, and cannot have asymptotes. Unknown columns are
refused, as a column that is ignored, such as `logit(g)`, may change the meaning of the others. Ids
stay as they are, even the `X1` that R makes of `1`.
"""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import BinaryIO

import numpy as np

from app.engine.bank import DEFAULT_SCALE, FloatArray, ItemBank
from app.engine.models.continuous import CONTINUOUS
from app.errors import FieldProblem, FileFormatError, ItemBankError
from app.exchange.files import (
    MAX_ITEMS,
    SEPARATED,
    Problems,
    as_text,
    lines,
    plain,
    quoted,
    read_bytes,
)
from app.exchange.py_irt import read_py_irt_parameters
from app.exchange.slopes import bank_of_columns, mirt_names, own_names, slopes_by_name

_PARQUET = b"PAR1"
_NEIGHBOURS = 2  # floats on each side of a quotient that are tried as difficulties


@dataclass(frozen=True, slots=True)
class _Form:
    """Column names of one form of file, by their role."""

    slope: str
    location: str
    lower: str
    upper: str
    dispersion: str | None = None
    several: tuple[str, ...] = ()  # slopes on several abilities, `slope` is the first

    @property
    def needed(self) -> set[str]:
        dispersion = {self.dispersion} if self.dispersion else set()
        return {self.slope, self.location, *self.several} | dispersion

    @property
    def columns(self) -> tuple[str, ...]:
        columns = (self.slope, *self.several[1:], self.location, self.lower, self.upper)
        return (*columns, self.dispersion) if self.dispersion else columns


_FORMS = (
    _Form("a1", "d", "g", "u"),
    _Form("a", "b", "g", "u"),
    *(
        _Form("a", location, "c", "d", dispersion)
        for location in ("b", "intercept")
        for dispersion in (None, "k")
    ),
)
_EXPECTED = (
    "expected a first column of item ids and then a1,d,g,u (mirt; d is an intercept)"
    " or a,b,g,u (mirt with IRTpars) or a,b,c,d (b is a difficulty)"
    " or a,b,c,d,k (continuous scores from c to d), with intercept for b where a may be 0,"
    " or a1,a2,...,d or intercept,general,dimension_1,... (several abilities);"
    " the lower and the upper asymptote may be left out"
)


def read_parameters(
    source: bytes | BinaryIO, *, name: str = "parameters", scale: str = DEFAULT_SCALE
) -> ItemBank:
    """Read a parameter file; if any row is faulty, nothing is returned.

    Args:
        source: The bytes, or a binary stream; gzip is recognised.
        name: Name of the file in messages.
        scale: Name of the theta scale of the parameters.

    Raises:
        FileFormatError: Wrong columns, a cell that is not a number, a repeated id, or no items.
            Faults are listed with file, row and column, up to a limit.
        ItemBankError: Invalid parameters: they need 0 <= lower < upper <= 1 and k > 0.
    """
    content = read_bytes(source, name)
    if content.startswith(_PARQUET):
        from app.exchange.parquet_parameters import read_parquet_parameters

        return read_parquet_parameters(content, name=name, scale=scale)
    text = as_text(content, name)
    if text.lstrip().startswith("{"):
        return read_py_irt_parameters(text.encode(), name=name, scale=scale)
    rows = _rows(text, name)
    _, header = next(rows, (0, []))
    form = _form_of(header, name)
    columns = {column.strip(): i for i, column in enumerate(header) if i > 0}
    values: dict[str, list[float]] = {column: [] for column in form.columns if column in columns}
    first_row: dict[str, int] = {}
    problems, illegal = Problems(), Problems()
    for row, cells in rows:
        if len(cells) != len(header):
            detail = f"expected {len(header)} cells, got {len(cells)}"
            problems.add(f"{name}:{row}", detail)
            continue
        if len(first_row) > MAX_ITEMS:
            raise FileFormatError(f"{name}: expected at most {MAX_ITEMS:,} items, got more.")
        item_id = plain(cells[0].strip())
        if not item_id:
            problems.add(f"{name}:{row}:{header[0] or 1}", "expected an item id")
        elif first_row.setdefault(item_id, row) != row:
            detail = f"expected each item once, got {item_id!r}, which row {first_row[item_id]} has"
            problems.add(f"{name}:{row}:{header[0] or 1}", detail)
        for column, numbers in values.items():
            number, problem = _number(cells[columns[column]])
            numbers.append(number)
            if problem:
                problems.add(f"{name}:{row}:{column}", f"item {item_id!r}: {problem}")
        if problem := _illegal(form, values):
            place = f"{name}:{row}:{form.lower}"
            illegal.add(place, f"item {item_id!r}: {problem}")
        if form.dispersion and values[form.dispersion][-1] <= 0:
            problem = f"expected {form.dispersion} > 0, got {values[form.dispersion][-1]:g}"
            illegal.add(f"{name}:{row}:{form.dispersion}", f"item {item_id!r}: {problem}")
    if problems.count:
        problems.extend(illegal.count, ((p.pointer, p.detail) for p in illegal.kept))
    problems.raise_any(name)
    illegal.raise_any(name, ItemBankError)
    if not first_row:
        raise FileFormatError(f"{name}: expected at least one item, got none.")
    return _bank(form, values, tuple(first_row), name, scale)


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


def _rows(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as exc:
        raise FileFormatError(f"{name}:{reader.line_num}: expected CSV, got {exc}.") from exc


def _form_of(header: Sequence[str], name: str) -> _Form:
    columns = [column.strip() for column in header[1:]]
    for form in (*_FORMS, *_several(columns)):
        if form.needed <= set(columns) <= set(form.columns) and len(set(columns)) == len(columns):
            return form
    found = ",".join(header) if header else "nothing"
    raise FileFormatError(
        f"{name}: {_EXPECTED}; found {found!r:.300}.{_advice(columns)}",
        problems=[FieldProblem(f"{name}:1", f"found the columns {found!r:.300}")],
    )


def _several(columns: Sequence[str]) -> Iterator[_Form]:
    """Forms with several abilities that the columns may have."""
    if names := mirt_names(columns):
        yield _Form(names[0], "d", "g", "u", several=names)
    if names := own_names(columns):
        yield _Form(names[0], "intercept", "c", "d", several=names)


def _advice(columns: Sequence[str]) -> str:
    if any(column in ("a2", "a3") for column in columns):
        return " Several abilities are a1,a2,... without a gap, and d; asymptotes g and u."
    if any(column.startswith("logit") for column in columns):
        return " Write asymptotes as probabilities, not logits (mirt: without printSE)."
    if len(columns) == 0:
        return f" {SEPARATED}"
    return ""


def _number(cell: str) -> tuple[float, str]:
    try:
        number = float(cell)
    except ValueError:
        return math.nan, f"expected a number, got {cell!r:.80}"
    return number, "" if math.isfinite(number) else f"expected a finite number, got {cell!r}"


def _illegal(form: _Form, values: Mapping[str, list[float]]) -> str:
    """Fault of the asymptotes of the item that was read last, else empty."""
    lower = values[form.lower][-1] if form.lower in values else 0.0
    upper = values[form.upper][-1] if form.upper in values else 1.0
    if not (math.isfinite(lower) and math.isfinite(upper)) or 0 <= lower < upper <= 1:
        return ""
    hint = "" if 0 <= lower <= 1 else "; it looks like a logit"
    return (
        f"expected 0 <= {form.lower} < {form.upper} <= 1,"
        f" got {form.lower}={lower:g}, {form.upper}={upper:g}{hint}"
    )


def _bank(
    form: _Form,
    values: Mapping[str, list[float]],
    item_ids: tuple[str, ...],
    name: str,
    scale: str,
) -> ItemBank:
    roles = {
        "a": form.slope,
        "b" if form.location == "b" else "intercept": form.location,
        "c": form.lower,
        "d": form.upper,
        "k": form.dispersion,
    }
    columns = {
        role: np.array(values[column])
        for role, column in roles.items()
        if column is not None and column in values
    }
    slopes = {column: np.array(values[column]) for column in form.several}
    return bank_of_columns(columns, slopes, item_ids, name=name, scale=scale)


def _csv(header: Sequence[str], bank: ItemBank, columns: Sequence[FloatArray]) -> bytes:
    numbers = (column.tolist() for column in columns)
    return lines(chain([header], zip(map(quoted, bank.item_ids), *numbers, strict=True)))
