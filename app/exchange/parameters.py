"""Read files of item parameters: bytes in, an `ItemBank` out.

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

Parquet has the columns `item`, `a`, `b` or `intercept` or both, `c`, `d`, and maybe `k` or slopes
`general, dimension_1, ...`; then `a` and `b` belong to the main ability alone and are not read. Of
`b` and `intercept` the latter is read: every item has one, even with a = 0, and it is exact. Other
columns, such as `status`, are not read.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from app.engine.bank import DEFAULT_SCALE, SMALLEST, FloatArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.errors import FieldProblem, FileFormatError, InvalidInputError, ItemBankError
from app.exchange.files import (
    MAX_ITEMS,
    PARQUET,
    SEPARATED,
    Problems,
    as_text,
    csv_rows,
    plain,
    read_bytes,
)
from app.exchange.py_irt import read_py_irt_parameters

#: Abilities in files: `general`, if there is one, then `dimension_1`, `dimension_2`, ... All are
#: standard normal among the reference models, so that no population needs to be stored.
GENERAL = "general"
#: Most columns of a Parquet file.
MAX_COLUMNS = 1_000
#: What a slope must be where there is one ability.
SLOPE = f"a slope of 0, or of at least {SMALLEST:g} either way"
_NUMBERS = ("a", "b", "intercept", "c", "d", "k")


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


def read_parameters(source: bytes | BinaryIO, *, name: str = "parameters") -> ItemBank:
    """Read a parameter file, gzipped or not; if any row is faulty, nothing is returned.

    Raises:
        FileFormatError: Wrong columns, a cell that is not a number, a repeated id, or no items.
            Faults are listed with file, row and column, up to a limit.
        ItemBankError: Invalid parameters: they need 0 <= lower < upper <= 1, k > 0, and no slope
            so near 0 that no difficulty follows from it.
    """
    content = read_bytes(source, name)
    if content.startswith(PARQUET):
        return require_slopes(_read_parquet(content, name), name)
    text = as_text(content, name)
    if text.lstrip().startswith("{"):
        return require_slopes(read_py_irt_parameters(text.encode(), name), name)
    rows = (row for row in csv_rows(text, name) if any(map(str.strip, row[1])))
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
        if not form.several and is_too_flat(slope := values[form.slope][-1]):
            problem = f"expected {SLOPE}, got {slope:g}"
            illegal.add(f"{name}:{row}:{form.slope}", f"item {item_id!r}: {problem}")
        if form.dispersion and values[form.dispersion][-1] <= 0:
            problem = f"expected {form.dispersion} > 0, got {values[form.dispersion][-1]:g}"
            illegal.add(f"{name}:{row}:{form.dispersion}", f"item {item_id!r}: {problem}")
    if problems.count:
        problems.extend(illegal.count, ((p.pointer, p.detail) for p in illegal.kept))
    problems.raise_any(name)
    illegal.raise_any(name, ItemBankError)
    if not first_row:
        raise FileFormatError(f"{name}: expected at least one item, got none.")
    roles = {
        "a": form.slope,
        "b" if form.location == "b" else "intercept": form.location,
        "c": form.lower,
        "d": form.upper,
        "k": form.dispersion,
    }
    arrays = {column: np.array(numbers) for column, numbers in values.items()}
    return _bank_of_columns(
        {role: arrays[column] for role, column in roles.items() if column in arrays},
        {column: arrays[column] for column in form.several},
        tuple(first_row),
        name,
    )


def _form_of(header: Sequence[str], name: str) -> _Form:
    columns = [column.strip() for column in header[1:]]
    for form in (*_FORMS, *_several(columns)):
        if form.needed <= set(columns) <= set(form.columns) and len(set(columns)) == len(columns):
            return form
    found = ",".join(header) if header else "nothing"
    expected = _missing(header, columns) or _EXPECTED
    raise FileFormatError(
        f"{name}: {expected}; found {found!r:.300}.{_advice(columns)}",
        problems=[FieldProblem(f"{name}:1", f"found the columns {found!r:.300}")],
    )


def _missing(header: Sequence[str], columns: Sequence[str]) -> str | None:
    """Say what the nearest form needs as well; None if the columns are part of no form."""
    own = set(columns)
    near = [form for form in _FORMS if own and own < set(form.columns)]
    # Where several forms have the columns, the generic names are told.
    form = min(near, key=lambda form: (len(form.needed - own), form.lower != "c"), default=None)
    if form is None or header[0].strip() in form.needed:
        return None
    missing = [column for column in form.columns if column in form.needed - own]
    return (
        f"expected a first column of item ids and then {','.join(form.columns)}, where "
        f"{form.lower} and {form.upper} may be left out: {' and '.join(missing)} is missing"
        + (", for the 1PL write 1 in each row" if missing == ["a"] else "")
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


def is_too_flat(slope: float) -> bool:
    """Whether a slope is so near 0 that a difficulty that follows from it has no meaning."""
    return 0.0 < abs(slope) < SMALLEST


def require_slopes(bank: ItemBank, name: str) -> ItemBank:
    """The same bank, which comes without rows of a file; refuses slopes that are too flat."""
    if bank.abilities is None:
        for item_id, slope in zip(bank.item_ids, bank.a.tolist(), strict=True):
            if is_too_flat(slope):
                detail = f"{name}: item {item_id!r}: expected {SLOPE}, got {slope:g}."
                raise ItemBankError(detail)
    return bank


def _read_parquet(content: bytes, name: str) -> ItemBank:
    table = _table(content, name)
    have = set(table.column_names)
    if not {"item", "a"} <= have or not have & {"b", "intercept"}:
        found = ", ".join(table.column_names)
        raise FileFormatError(
            f"{name}: expected the columns item, a, and intercept or b; found {found:.300}."
        )
    keys = _cast(table, "item", "string", name).to_pylist()
    columns, slopes = (
        {
            column: _cast(table, column, "double", name).to_numpy(zero_copy_only=False)
            for column in names
            if column in have
        }
        for names in (_NUMBERS, own_names(table.column_names))
    )
    problems = Problems()
    for row, key in enumerate(keys):
        if not key or not key.strip():
            problems.add(f"{name}:{row}:item", "expected the name of an item, got nothing")
    problems.raise_any(name)
    if slopes and "intercept" not in columns:
        raise FileFormatError(f"{name}: expected the column intercept beside several slopes.")
    if not slopes and mirt_names(table.column_names):
        raise FileFormatError(
            f"{name}: expected slopes in several abilities as general, dimension_1, ... in "
            "Parquet, got a1, a2, ..."
        )
    return _bank_of_columns(columns, slopes, [key.strip() for key in keys], name)


def _table(content: bytes, name: str) -> Any:
    from app.exchange.table_batches import open_parquet, reading_parquet

    file = open_parquet(io.BytesIO(content), name)
    rows, names = file.metadata.num_rows, file.schema_arrow.names
    if rows > MAX_ITEMS or len(names) > MAX_COLUMNS:
        raise FileFormatError(
            f"{name}: expected at most {MAX_ITEMS:,} rows of {MAX_COLUMNS:,} columns, got "
            f"{rows:,} of {len(names):,}."
        )
    read = [n for n in names if n in {"item", *_NUMBERS, *own_names(names), *mirt_names(names)}]
    with reading_parquet(name):
        return file.read(columns=read, use_threads=False)


def _cast(table: Any, column: str, kind: str, name: str) -> Any:
    import pyarrow as pa

    if table.column_names.count(column) > 1:
        raise FileFormatError(f"{name}: expected the column {column} once, got it again.")
    try:
        return table.column(column).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise FileFormatError(
            f"{name}: expected {kind} in the column {column}, got {table.column(column).type}."
        ) from exc


def mirt_names(columns: Sequence[str]) -> tuple[str, ...]:
    """`a1` to `aK` among a file's columns, if there are several without a gap."""
    names = _counted("a", columns)
    return names if len(names) > 1 else ()


def own_names(columns: Sequence[str]) -> tuple[str, ...]:
    """The abilities that a file's columns name, in order; empty if there are none."""
    numbered = _counted("dimension_", columns)
    if not numbered:
        return ()
    return (GENERAL, *numbered) if GENERAL in columns else numbered


@dataclass(frozen=True, slots=True)
class WrittenParameters:
    """`P = c + (d - c) sigmoid(a theta + intercept)`, as written beside the item.

    For continuous scores, P is their mean, and k their dispersion. With several abilities there are
    slopes by name, with `general` first if there is one; a is the slope on the main ability.
    """

    a: float
    intercept: float
    c: float
    d: float
    k: float | None = None
    slopes: Mapping[str, float] | None = None


def bank_of_written(
    given: Sequence[tuple[str, WrittenParameters]], *, scale: str = DEFAULT_SCALE
) -> ItemBank:
    """The bank of parameters that are written beside items; `given` has keys and parameters.

    Raises:
        InvalidInputError: Some items have a dispersion k or slopes, and others not.
    """
    keys, values = zip(*given, strict=True)
    without = [key for key, p in given if p.k is None]
    if without and len(without) < len(given):
        raise InvalidInputError(
            "Expected all items of a bank to be of one response model, got some with a dispersion"
            f" k and others without, the first {without[0]!r}."
        )
    names = max((tuple(p.slopes or ()) for p in values), key=len)
    for key, p in given:
        if tuple(p.slopes or ()) != names:
            found = ", ".join(p.slopes or ()) or "none"
            raise InvalidInputError(
                f"Expected every item to have the slopes {', '.join(names)}, got {found} of item "
                f"{key!r}."
            )
    intercept = [p.intercept for p in values]
    if names:
        slopes = {name: [(p.slopes or {})[name] for p in values] for name in names}
        return bank_of_slopes(slopes, intercept, keys, scale=scale)
    return ItemBank.from_intercepts(
        a=[p.a for p in values],
        intercept=intercept,
        c=[p.c for p in values],
        d=[p.d for p in values],
        k=None if without else [p.k for p in values],
        item_ids=keys,
        scale=scale,
    )


def bank_of_slopes(
    slopes: Mapping[str, Sequence[float] | FloatArray],
    intercept: Sequence[float] | FloatArray,
    item_ids: Sequence[str],
    *,
    scale: str = DEFAULT_SCALE,
) -> ItemBank:
    """Make the bank of a file; it is nested if the first slope is that of the general ability."""
    table = np.column_stack([np.asarray(values, np.float64) for values in slopes.values()])
    d = table.shape[1]
    items = Loadings.from_slopes(
        table, np.asarray(intercept, np.float64), nested=next(iter(slopes)) == GENERAL
    )
    population = Population(mean=np.zeros(d), covariance=np.eye(d))
    return ItemBank.from_abilities(MultidimensionalModel(items, population), item_ids, scale=scale)


def _bank_of_columns(
    columns: Mapping[str, FloatArray],
    slopes: Mapping[str, FloatArray],
    item_ids: Sequence[str],
    name: str,
) -> ItemBank:
    """The bank of a file with `a`, `intercept` or `b`, maybe `c`, `d`, `k`, or several slopes."""
    if slopes:
        bent = (columns.get("c", np.zeros(1)) != 0.0) | (columns.get("d", np.ones(1)) != 1.0)
        if bent.any():
            first = item_ids[int(np.flatnonzero(bent)[0])]
            raise ItemBankError(
                f"{name}: expected no asymptotes beside several slopes (lower 0, upper 1), got "
                f"some with {int(bent.sum())} items, the first is {first!r}."
            )
        return bank_of_slopes(slopes, columns["intercept"], item_ids)
    c, d, k = map(columns.get, ("c", "d", "k"))
    a, intercept = columns["a"], columns.get("intercept")
    if intercept is not None:
        return ItemBank.from_intercepts(a=a, intercept=intercept, c=c, d=d, k=k, item_ids=item_ids)
    return ItemBank.from_difficulties(a=a, b=columns["b"], c=c, d=d, k=k, item_ids=item_ids)


def _counted(prefix: str, columns: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    while (following := f"{prefix}{len(names) + 1}") in columns:
        names.append(following)
    return tuple(names)
