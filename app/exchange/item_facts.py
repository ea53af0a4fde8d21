"""Small tables for offline commands: lists of items, tags, costs, and families of examinees."""

import csv
import io
import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from app.engine.bank import FloatArray
from app.engine.models.base import IntArray
from app.engine.selection.information import expected_costs
from app.errors import FileFormatError
from app.exchange.files import Problems, as_text, plain


def read_tags(source: bytes, items: Sequence[str], name: str) -> tuple[frozenset[str], ...]:
    """Tags of items from a CSV file `item,tag`; an item may have several rows, or none.

    Raises:
        FileFormatError: Another header, or a row that lacks an item or a tag.
    """
    tags: dict[str, set[str]] = {}
    for _, item, tag in _pairs(source, name, ("item", "tag"), "an item and a tag"):
        tags.setdefault(item, set()).add(tag)
    return tuple(frozenset(tags.get(item, ())) for item in items)


def read_families(source: bytes, name: str) -> dict[str, str]:
    """Family of each examinee from a CSV file `examinee,family`.

    Raises:
        FileFormatError: Another header, an incomplete row, or an examinee with two families.
    """
    found: dict[str, str] = {}
    header = ("examinee", "family")
    for row, examinee, family in _pairs(source, name, header, "an examinee and a family"):
        if found.setdefault(examinee, family) != family:
            raise FileFormatError(
                f"{name}:{row}: expected one family of {examinee!r:.200}, got {family!r:.200}, "
                f"and {found[examinee]!r:.200} above."
            )
    return found


def read_items(source: bytes, items: Sequence[str], name: str) -> IntArray:
    """Positions of the items in a file with one id per line, or in a CSV's first column.

    Raises:
        FileFormatError: No items, or an item that is unknown or repeated.
    """
    at = {item: position for position, item in enumerate(items)}
    listed: dict[int, None] = {}
    for line, cells in enumerate(csv.reader(io.StringIO(as_text(source, name))), start=1):
        item = plain(cells[0].strip()) if cells else ""
        if not item or (line == 1 and item == "item" and item not in at):
            continue
        if item not in at:
            raise FileFormatError(
                f"{name}:{line}: expected an item of the bank, got {item!r:.200}."
            )
        if at[item] in listed:
            raise FileFormatError(
                f"{name}:{line}: expected each item once, got {item!r:.200} again."
            )
        listed[at[item]] = None
    if not listed:
        raise FileFormatError(f"{name}: expected item ids, one a line, got none.")
    return np.array(list(listed), dtype=np.intp)


def read_costs(source: bytes, items: Sequence[str], name: str) -> FloatArray:
    """Expected costs from a CSV file `item,cost` or `item,tokens_in,tokens_out`.

    Returns:
        Costs above 0, shape (n_items,). With tokens, prompt tokens count half.

    Raises:
        FileFormatError: Another header, a cost that is no number above 0, or a missing cost.
    """
    header = _header(source, name)
    by_tokens = header == ("item", "tokens_in", "tokens_out")
    if not by_tokens and header != ("item", "cost"):
        raise FileFormatError(
            f"{name}: expected the header item,cost or item,tokens_in,tokens_out, found "
            f"{','.join(header)!r:.200}."
        )
    found: dict[str, list[float]] = {}
    for row, cells in _rows(source, name, header):
        numbers = [_number(cell) for cell in cells[1:]]
        if len(cells) != len(header) or not all(number >= 0.0 for number in numbers):
            raise FileFormatError(
                f"{name}:{row}: expected an item and {' and '.join(header[1:])} of at least 0, got "
                f"{','.join(cells)!r:.200}."
            )
        if not sum(numbers) > 0.0:
            raise FileFormatError(f"{name}:{row}: expected a cost above 0, got {cells[1:]}.")
        found[cells[0]] = numbers
    problems = Problems()
    for item in items:
        if item not in found:
            problems.add(f"{name}:{item}", "this item has no cost")
    problems.raise_any(name)
    costs = np.array([found[item] for item in items])
    return expected_costs(costs[:, 0], costs[:, 1]) if by_tokens else np.asarray(costs[:, 0])


def _header(source: bytes, name: str) -> tuple[str, ...]:
    for cells in csv.reader(io.StringIO(as_text(source, name), newline="")):
        if cells:
            return tuple(cell.strip().lower() for cell in cells)
    return ()


def _rows(source: bytes, name: str, header: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    if (found := _header(source, name)) != header:
        raise FileFormatError(
            f"{name}: expected the header {','.join(header)}, found {','.join(found)!r:.200}."
        )
    reader = csv.reader(io.StringIO(as_text(source, name), newline=""))
    for cells in islice(filter(None, reader), 1, None):
        yield reader.line_num, [plain(cell.strip()) for cell in cells]


def _pairs(
    source: bytes, name: str, header: tuple[str, str], expected: str
) -> Iterator[tuple[int, str, str]]:
    for row, cells in _rows(source, name, header):
        if len(cells) != 2 or not all(cells):
            raise FileFormatError(f"{name}:{row}: expected {expected}, got {cells!r:.200}.")
        yield row, cells[0], cells[1]


def _number(cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        return -1.0
    return number if math.isfinite(number) else -1.0
