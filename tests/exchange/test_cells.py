"""CSV exports hold nothing that a spreadsheet runs, and read back unchanged."""

import csv
import io
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.bank import ItemBank
from app.engine.responses import ResponseTable
from app.errors import FileFormatError
from app.exchange.bank_files import BankFormat, write_bank
from app.exchange.files import lines, plain, quoted
from app.exchange.item_facts import read_costs, read_families, read_tags, write_form
from app.exchange.response_files import Trial, write_csv, write_long, write_parquet
from app.exchange.responses import read_parts, read_responses
from app.exchange.results.recorded import TrialTable

#: Names that a spreadsheet would run.
FORMULAS = [
    *("=1+1", "+1+1", "-1+1", "@SUM(1)", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x","y")'),
    *("-q", "-", "--1", "+-1", "-1.5.2", " =1+1", "  @x", "\t=1", "\tq", "\r=1", "\n=1", "\n\n=1"),
    *("'=1+1", "''@x", "-1,5", "-1e", "=a;b", "＝1+1", "－x", '"=1+1"', '" ";"=1"'),
]
#: Names that it leaves alone.
PLAIN = ["q1", "1", "-1.5", "+2", "-.5", "1e5", "-1E+5", "'q", "a=b", "a-b", "naïve", "'-1.5", "'"]
NAMES = [*FORMULAS, *PLAIN]
#: Ends of cells and rows, and the argument separator, in spreadsheets of other countries.
ELSEWHERE = ["a;=1+1", "a\t=1+1", "a\r=1+1", "b;-2;@x"]


def starts(content: bytes) -> list[str]:
    """Return the beginnings of all cells, split at commas and at semicolons."""
    text = content.decode()
    return [
        cell
        for delimiter in ",;\t"
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        for cell in row
    ]


def read_csv(content: bytes) -> list[list[str]]:
    csv.field_size_limit(sys.maxsize)
    return list(csv.reader(io.StringIO(content.decode(), newline="")))


def is_run(cell: str) -> bool:
    """Return whether a spreadsheet would run a cell."""
    start = cell.lstrip(' "')
    try:
        float(start.partition(",")[0])
    except ValueError:
        return start.startswith(tuple("=+-@＝＋－＠"))
    return False


def bank(names: list[str]) -> ItemBank:
    rng = np.random.default_rng(0)
    return ItemBank.from_intercepts(
        a=rng.lognormal(size=len(names)), intercept=rng.normal(size=len(names)), item_ids=names
    )


def table(names: list[str]) -> ResponseTable:
    scores = np.resize([0.0, 1.0, 0.25, np.nan, 1.0], (len(names), len(names)))
    return ResponseTable(tuple(names), tuple(names), scores)


def wide(names: list[str]) -> bytes:
    return b"".join(write_csv(table(names)))


def long(names: list[str]) -> bytes:
    whole = table(names)
    trials: Iterator[Trial] = (
        Trial(name, trial, scores)
        for name, scores in zip(names, whole.scores, strict=True)
        for trial in (1, 2)
    )
    return b"".join(write_long(names, trials, repeated=True))


Export = Callable[[list[str]], bytes]
EXPORTS: list[Export] = [
    wide,
    long,
    lambda names: write_form(names, [-1.5] * len(names), -0.25),
    lambda names: write_bank(bank(names), BankFormat.MIRT),
    lambda names: write_bank(bank(names), BankFormat.CSV),
]
of_exports = pytest.mark.parametrize("export", EXPORTS, ids=["wide", "long", "form", "mirt", "csv"])


@of_exports
def test_no_cell_of_an_export_is_run_by_a_spreadsheet(export: Export) -> None:
    content = export([*NAMES, *ELSEWHERE])
    assert [cell for cell in starts(content) if is_run(cell)] == []
    cells = [cell for row in read_csv(content) for cell in row]
    assert [cell for cell in cells if cell.startswith(("\t", "\r", "\n"))] == []


@of_exports
def test_numbers_and_harmless_names_are_written_as_they_are(export: Export) -> None:
    cells = {cell for row in read_csv(export(PLAIN)) for cell in row}
    assert set(PLAIN) <= cells
    assert not {cell for cell in cells if cell.startswith("'")} - set(PLAIN)


def test_negative_parameters_and_weights_stay_numbers() -> None:
    assert write_form(["=1+1"], [-1.5], -0.25) == b"item,weight\n,-0.25\n'=1+1,-1.5\n"
    flat = ItemBank.from_difficulties(a=np.array([1.0]), b=np.array([-1.5]), item_ids=("-q",))
    assert write_bank(flat, BankFormat.CSV).endswith(b"'-q,1.0,-1.5,0.0,1.0\n")


@pytest.mark.parametrize("names", [[*NAMES, *ELSEWHERE], ["q", ELSEWHERE[0]]])
def test_exported_answers_keep_their_names(names: list[str]) -> None:
    names = [name for name in names if name == name.strip()]  # others are read without blanks
    given = table(names)
    for content in (wide(names), write_parquet(given)):
        found = read_responses(content)
        assert (found.examinees, found.items) == (given.examinees, given.items)
        np.testing.assert_array_equal(found.scores, given.scores)
    for trial, part in enumerate(read_parts(long(names)), start=1):
        assert isinstance(part, TrialTable)
        assert part.trial == trial
        assert set(part.table.examinees) == set(part.table.items) == set(names)


@pytest.mark.parametrize("name", [name for name in NAMES if name != name.strip()])
def test_answers_are_read_without_the_blanks_around_names(name: str) -> None:
    for content in (wide([name, "z"]), long([name, "z"])):
        part, *_ = read_parts(content)
        assert isinstance(part, TrialTable)
        assert set(part.table.examinees) == set(part.table.items) == {name.strip(), "z"}


def test_a_table_of_facts_with_broken_quotes_is_refused() -> None:
    with pytest.raises(FileFormatError, match="costs:2: expected CSV, got "):
        read_costs(b'item,cost\n"q"q,2\n', ["qq"], "costs")


def test_names_of_an_export_can_be_used_for_metadata() -> None:
    assert read_tags(b"item,tag\n'=1+1,sums\n", ["=1+1"], "tags") == (frozenset({"sums"}),)
    assert read_families(b"examinee,family\n'@x,x\n", "families") == {"@x": "x"}
    assert read_costs(b"item,cost\n'-q,2\n", ["-q"], "costs").tolist() == [2.0]


@given(st.text(st.sampled_from("'=+-@ \t\r\n;,\"1.5eq＝"), max_size=8))
def test_every_name_reads_back_and_none_is_run(name: str) -> None:
    content = lines([[quoted(name), -1.5]])
    ((cell, number),) = read_csv(content)
    assert (plain(cell), number) == (name, "-1.5")
    assert not any(map(is_run, starts(lines([["item", quoted(name), -1.5]]))))


@pytest.mark.parametrize("part", ["\t", ";", "'", '"', " ", "\n'", "-1", "1", "=", ";-1", '\r;"'])
def test_a_name_of_any_length_is_written_and_read_in_one_pass(part: str) -> None:
    """Rereading the rest of these names for every character would take an hour."""
    for name in (part * 100_000, "-" + part * 100_000 + "x"):
        ((cell,),) = read_csv(lines([[quoted(name)]]))
        assert plain(cell) == name
