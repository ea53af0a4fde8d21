"""Cells of CSV files that spreadsheets open too: a name in them is never run as a formula."""

import csv
import re
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

#: Where a formula begins in a name: at its start, and behind what ends a cell or a row where commas
#: do not. Spaces and quotes before it do not hinder a spreadsheet; a number is no formula.
_FORMULA = r"""(?: \A(?='*[\t\r\n])
    | (?: \A(?! [ '"]* [+-]? (?:\d+(?:\.\d*)?|\.\d+) (?:e[+-]?\d+)? \Z ) | (?<=[;\t\r\n]) )
      (?= (?: [^\S\t\r\n] | ['"] )* [=+\-@＝＋－＠] ) )"""
_BARE = re.compile(_FORMULA, re.VERBOSE | re.IGNORECASE)
_QUOTED = re.compile(_FORMULA + "'", re.VERBOSE | re.IGNORECASE)


def quoted(name: str) -> str:
    """A name for a cell: an apostrophe before a formula makes text of it."""
    return _BARE.sub("'", name)


def plain(cell: str) -> str:
    """A name as it was before it was quoted."""
    return _QUOTED.sub("", cell)


def lines(rows: Iterable[Sequence[str | float]]) -> bytes:
    """Lines of a CSV file, floats as the shortest texts that read back as the same floats."""
    written: list[str] = []
    # Before Python 3.13 a carriage return gets a cell its quotes only if it ends lines as well.
    writer = csv.writer(cast(Any, SimpleNamespace(write=written.append)), lineterminator="\r\n")
    # Row by row: one call for all of them would keep every other thread waiting.
    for row in rows:
        writer.writerow(row)
    return "".join(f"{line[:-2]}\n" for line in written).encode()
