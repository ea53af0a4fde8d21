"""Small tables of items and examinees: lists, tags, costs, families, and short forms.

A fixed short form is a CSV file `item,weight`; its first row, without an item, is the constant. It
can also be written as settings of an lm-eval run, with the numbers of its documents.
"""

import json
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from app.engine.bank import FloatArray
from app.engine.models.base import IntArray
from app.engine.selection.information import expected_costs
from app.errors import FileFormatError
from app.exchange.files import Problems, as_text, csv_rows, lines, plain, quoted
from app.exchange.json_text import json_lines
from app.exchange.results.lm_eval import is_sample, item_of, task_of
from app.exchange.results.recorded import LeftOut, Source


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
    for line, cells in csv_rows(as_text(source, name), name):
        item = plain(cells[0].strip())
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
    by_tokens = ("item", "tokens_in", "tokens_out")
    header, rows = _rows(source, name, ("item", "cost"), by_tokens)
    found: dict[str, list[float]] = {}
    for row, cells in rows:
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
    if header == by_tokens:
        return expected_costs(costs[:, 0], costs[:, 1])
    return np.asarray(costs[:, 0])


def _rows(
    source: bytes, name: str, *headers: tuple[str, ...]
) -> tuple[tuple[str, ...], Iterator[tuple[int, list[str]]]]:
    """The header, which must be one of `headers`, and number and cells of each row."""
    given = csv_rows(as_text(source, name), name)
    header = tuple(cell.strip().lower() for cell in next(given, (0, []))[1])
    if header not in headers:
        raise FileFormatError(
            f"{name}: expected the header {' or '.join(map(','.join, headers))}, found "
            f"{','.join(header)!r:.200}."
        )
    return header, ((line, [plain(cell.strip()) for cell in row]) for line, row in given)


def _pairs(
    source: bytes, name: str, header: tuple[str, str], expected: str
) -> Iterator[tuple[int, str, str]]:
    for row, cells in _rows(source, name, header)[1]:
        if len(cells) != 2 or not all(cells):
            raise FileFormatError(f"{name}:{row}: expected {expected}, got {cells!r:.200}.")
        yield row, cells[0], cells[1]


def _number(cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        return -1.0
    return number if math.isfinite(number) else -1.0


def write_form(items: Sequence[str], weights: Sequence[float], constant: float) -> bytes:
    """Write a form as CSV."""
    return lines(
        [("item", "weight"), ("", constant), *zip(map(quoted, items), weights, strict=True)]
    )


def lm_eval_run(items: Sequence[str], samples: Iterable[Source]) -> bytes:
    """Write settings for `lm_eval run --config` as JSON, which is valid YAML.

    Keys of items are task and `doc_hash`; the sample files give the numbers of the documents.

    Raises:
        FileFormatError: An item without a number in any file, or with different numbers.
    """
    wanted, numbers, names = set(items), dict[str, tuple[str, int, str]](), list[str]()
    for source in samples:
        names.append(source.name)
        task = task_of(source.file)
        for row, sample in json_lines(source.file):
            if isinstance(sample, LeftOut) or not is_sample(sample):
                continue
            if (item := item_of(task, sample)) not in wanted:
                continue
            place, number = f"{source.name}:{row}", sample.get("doc_id")
            if type(number) is not int or number < 0:
                raise FileFormatError(f"{place}: expected a number as doc_id, got {number!r:.80}.")
            known = numbers.setdefault(item, (task, number, place))
            # If a task asks a question twice, the first number is used for both.
            if known[1] != number and known[2].rpartition(":")[0] != source.name:
                raise FileFormatError(
                    f"{place}: expected doc_id {known[1]}, which {known[2]} gives to the same "
                    f"document, got {number}: give the samples of one run."
                )
    if missing := [item for item in items if item not in numbers]:
        raise FileFormatError(
            f"Expected a doc_id for each of {len(items)} items in samples of lm-eval, but "
            f"{len(missing)} items are in none of {len(names)} files "
            f"({', '.join(names)[:200]}), the first {missing[0]!r:.200}."
        )
    chosen: dict[str, list[int]] = {}
    for item in items:
        task, number, _ = numbers[item]
        chosen.setdefault(task, []).append(number)
    run = {
        "tasks": sorted(chosen),
        "samples": {task: sorted(chosen[task]) for task in sorted(chosen)},
        "log_samples": True,
        "output_path": "form",
    }
    return (json.dumps(run, ensure_ascii=False) + "\n").encode()
