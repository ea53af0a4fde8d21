"""Match item names of different files, including names that were changed by R."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.engine.bank import FloatArray, ItemBank
from app.engine.responses import ResponseTable
from app.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class NameMatch:
    """Assignment of names to known items.

    Attributes:
        found: Name to known item, in the order of the names.
        renamed: The part of `found` that was matched by R's spelling.
        unknown: Names that match no item, or more than one.
    """

    found: dict[str, str]
    renamed: dict[str, str]
    unknown: tuple[str, ...]


def match_names(names: Sequence[str], known: Sequence[str]) -> NameMatch:
    """Match names to known items, exactly or else by R's `make.names`.

    R turns `1` into `X1` and `a-b` into `a.b`. A match by R's spelling counts only if it is unique:
    neither side has an exact match or a second candidate of the same spelling.
    """
    exact = set(names) & set(known)
    candidates: dict[str, list[str]] = {}
    for item in known:
        if item not in exact:
            candidates.setdefault(r_name(item), []).append(item)
    claims = Counter(r_name(name) for name in names if name not in exact)
    found: dict[str, str] = {}
    renamed: dict[str, str] = {}
    unknown: list[str] = []
    for name in names:
        spelt = r_name(name)
        if name in exact:
            found[name] = name
        elif len(candidates.get(spelt, ())) == 1 and claims[spelt] == 1:
            found[name] = renamed[name] = candidates[spelt][0]
        else:
            unknown.append(name)
    return NameMatch(found, renamed, tuple(unknown))


@dataclass(frozen=True, slots=True, eq=False)
class Aligned:
    """Recorded scores in the order of a bank's items.

    Attributes:
        scores: Scores, shape (n_examinees, bank.n_items), NaN for no answer.
        match: Assignment of the table's columns to items of the bank.
        n_skipped: Number of scores of items that are not in the bank.
    """

    scores: FloatArray
    match: NameMatch
    n_skipped: int


def align(table: ResponseTable, bank: ItemBank) -> Aligned:
    """Put a table's columns in the order of a bank's items.

    Raises:
        InvalidInputError: The table and the bank have no item in common.
    """
    match = match_names(table.items, bank.item_ids)
    if not match.found:
        raise InvalidInputError(
            "The responses and the bank have no item in common: responses are to items such as"
            f" {list(table.items[:3])}, the bank has such as {list(bank.item_ids[:3])}."
        )
    column_of = {item: j for j, item in enumerate(table.items)}
    scores = np.full((len(table.examinees), bank.n_items), np.nan)
    into = [bank.index_of(item) for item in match.found.values()]
    scores[:, into] = table.scores[:, [column_of[name] for name in match.found]]
    n_used = int(np.count_nonzero(~np.isnan(scores)))
    return Aligned(scores, match, table.n_answers - n_used)


def r_name(name: str) -> str:
    """The name as R's `make.names` changes it."""
    legal = re.sub(r"[^A-Za-z0-9._]", ".", name)
    return f"X{legal}" if re.match(r"[0-9_]|\.[0-9]|$", legal) else legal
