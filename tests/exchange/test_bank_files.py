"""Banks written to files and read back."""

import io
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.bank import ItemBank
from app.errors import FileFormatError, ItemBankError
from app.exchange.bank_files import BankFormat, item_line, shortest_difficulties, write_bank
from app.exchange.items import read_items
from app.exchange.parameters import read_parameters

COLUMNS = ("a", "intercept", "c", "d")
#: Names that break a careless writer: separators, quotes, line breaks, formulas, other scripts.
NAMES = ["a,b", 'say "hi"', "two\nlines", "=1+1", "@x", "-q", "+q", "'q", "naïve — Ω 項目", "1"]
NAMES += ["'=1+1", "=a;b", "a\t=1+1", "b;-2;@x"]

decimals = st.integers(-4000, 4000).map(lambda thousandths: thousandths / 1000)
slopes = st.integers(1, 4000).map(lambda thousandths: thousandths / 1000)


def bank(n_items: int = len(NAMES), *, seed: int = 0) -> ItemBank:
    rng = np.random.default_rng(seed)
    return ItemBank.from_intercepts(
        a=rng.lognormal(size=n_items),
        intercept=rng.normal(size=n_items),
        c=rng.uniform(0, 0.3, n_items),
        item_ids=(NAMES * (n_items // len(NAMES) + 1))[:n_items]
        if n_items <= len(NAMES)
        else [f"q{i}" for i in range(n_items)],
    )


def again(given: ItemBank, file_format: BankFormat) -> ItemBank:
    return read_parameters(write_bank(given, file_format), name="bank")


@pytest.mark.parametrize("file_format", [BankFormat.MIRT, BankFormat.PARQUET])
def test_formats_with_intercepts_keep_every_bit_and_every_name(file_format: BankFormat) -> None:
    before = bank()
    after = again(before, file_format)
    assert after.item_ids == before.item_ids
    for column in COLUMNS:
        assert getattr(after, column).tobytes() == getattr(before, column).tobytes()


@pytest.mark.parametrize("file_format", [BankFormat.CSV, BankFormat.PY_IRT])
def test_formats_with_difficulties_keep_them(file_format: BankFormat) -> None:
    rng = np.random.default_rng(1)
    before = ItemBank.from_difficulties(
        a=rng.lognormal(size=2000), b=rng.normal(size=2000), c=rng.uniform(0, 0.3, 2000)
    )
    after = again(before, file_format)
    for column in COLUMNS:
        assert getattr(after, column).tobytes() == getattr(before, column).tobytes()
    assert again(bank(), file_format).item_ids == tuple(NAMES)


@given(a=slopes, b=decimals)
def test_a_difficulty_is_written_as_it_was_read(a: float, b: float) -> None:
    read = ItemBank.from_difficulties(a=[a], b=[b])
    (written,) = shortest_difficulties(read).tolist()
    assert written == b
    assert repr(written) == repr(b + 0.0) or b == 0


def test_difficulties_give_the_intercepts_up_to_the_last_bit() -> None:
    before = bank(5000)
    after = again(before, BankFormat.CSV)
    np.testing.assert_allclose(after.intercept, before.intercept, rtol=5e-16)


def test_an_item_without_slope_needs_a_format_with_intercepts() -> None:
    flat = ItemBank.from_intercepts(a=[0.0, 1.0], intercept=[1.0, 1.0], item_ids=["flat", "q"])
    for file_format in (BankFormat.MIRT, BankFormat.CSV, BankFormat.PARQUET):
        assert again(flat, file_format).intercept.tolist() == [1.0, 1.0]
    with pytest.raises(ItemBankError, match=r"'flat'\. Export mirt, csv, parquet or jsonl"):
        write_bank(flat, BankFormat.PY_IRT)


def test_parquet_holds_the_state_of_each_item_in_its_version() -> None:
    content = write_bank(bank(2), BankFormat.PARQUET, ["active", "quarantined"])
    table = pa_parquet.read_table(io.BytesIO(content))
    assert table.column_names == ["item", "a", "b", "intercept", "c", "d", "status"]
    assert table.column("status").to_pylist() == ["active", "quarantined"]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"item": ["q"], "b": [0.0]}, "found item, b"),
        ({"item": ["q"], "a": [1.0]}, "intercept or b"),
        ({"item": ["q", " "], "a": [1.0, 1.0], "b": [0.0, 0.0]}, "bank:1:item"),
        ({"item": ["q"], "a": ["one"], "b": [0.0]}, "expected double in the column a, got string"),
    ],
)
def test_parquet_that_is_no_bank_is_refused(columns: dict[str, Any], words: str) -> None:
    target = io.BytesIO()
    pa_parquet.write_table(pa.table(columns), target)
    with pytest.raises(FileFormatError, match=words):
        read_parameters(target.getvalue(), name="bank")
    with pytest.raises(FileFormatError, match="expected a Parquet file"):
        read_parameters(b"PAR1 and no more", name="bank")


# py-irt


def py_irt(model: str, **fields: Any) -> bytes:
    names = {"item_ids": {"0": "q1", "1": "q2"}, "subject_ids": {"0": "m"}, "ability": [0.3]}
    numbers = {"diff": [0.5, -0.5], "disc": [1.5, 2.0]}
    return json.dumps({"irt_model": model} | names | numbers | fields).encode()


def test_lambdas_are_the_lower_asymptote_of_a_3pl_and_the_upper_one_of_a_4pl() -> None:
    lambdas = [0.2, 0.9]
    three = read_parameters(py_irt("3pl", lambdas=lambdas))
    four = read_parameters(py_irt("4pl", lambdas=lambdas))
    assert (three.c.tolist(), three.d.tolist()) == (lambdas, [1.0, 1.0])
    assert (four.c.tolist(), four.d.tolist()) == ([0.0, 0.0], lambdas)
    assert three.b.tolist() == [0.5, -0.5]
    assert three.item_ids == ("q1", "q2")


@pytest.mark.parametrize(
    ("values", "model"),
    [
        ({}, "1pl"),
        ({"a": [1.5, 2.0]}, "2pl"),
        ({"a": [1.5, -2.0]}, "3pl"),  # a 2PL of py-irt has no such slope
        ({"c": [0.2, 0.0]}, "3pl"),
        ({"d": [0.9, 1.0]}, "4pl"),
    ],
)
def test_the_smallest_model_that_holds_a_bank_is_written(
    values: dict[str, list[float]], model: str
) -> None:
    before = ItemBank.from_difficulties(**{"a": [1.0, 1.0], "b": [0.5, -0.5]} | values)  # type: ignore[arg-type]  # names of columns
    content = write_bank(before, BankFormat.PY_IRT)
    assert json.loads(content)["irt_model"] == model
    after = read_parameters(content)
    for column in COLUMNS:
        assert getattr(after, column).tolist() == getattr(before, column).tolist()


def test_a_lower_and_an_upper_asymptote_do_not_fit_into_py_irt() -> None:
    both = ItemBank.from_difficulties(a=[1, 1], b=[0, 0], c=[0.2, 0], d=[1, 0.9])
    with pytest.raises(ItemBankError, match=r"'1' has c = 0.2 and '2' d = 0.9.*csv or mirt"):
        write_bank(both, BankFormat.PY_IRT)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{broken", "expected JSON"),
        (py_irt("multidim_2pl"), "got 'multidim_2pl'"),
        (py_irt("2pl", disc=[0.4, -0.2]), "'q2' is -0.2.*before 0.7.1"),
        (py_irt("3pl"), "numbers in lambdas"),
        (py_irt("2pl", disc=[1.0]), "expected 2 numbers in disc"),
        (py_irt("2pl", diff=[[0.1], [0.2]]), "multidimensional"),
        (py_irt("1pl", item_ids={"0": "q1"}), 'item_ids from "0" to "1"'),
        (py_irt("1pl", item_ids={"0": "q1", "1": ""}), "name of item 1"),
    ],
)
def test_a_py_irt_file_that_means_something_else_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_parameters(content, name="best_parameters.json")


# JSONL


def test_an_item_line_reads_back_with_content_and_parameters() -> None:
    fields = {
        "key": NAMES[2],
        "prompt": "=SUM(A1)\n\u2028",
        "choices": ["1", "B", "naïve"],
        "target": ["B"],
        "tags": [],
        "group": None,
        "a": 0.0,
        "b": None,
        "intercept": 0.1 + 0.2,
        "c": 0.1,
        "d": 1.0,
    }
    content = item_line(fields)
    assert content.count(b"\n") == 1
    (item,) = read_items(content)
    assert (item.key, item.content.prompt) == (NAMES[2], "=SUM(A1)\n\u2028")
    assert (item.content.choices, item.content.target) == (("1", "B", "naïve"), ("B",))
    assert item.parameters is not None
    assert (item.parameters.a, item.parameters.intercept) == (0.0, 0.1 + 0.2)


def test_difficulty_and_intercept_must_agree() -> None:
    row = {"key": "q", "prompt": "p", "a": 2.0, "b": 0.5, "intercept": -1.0}
    (item,) = read_items(item_line(row))
    assert item.parameters is not None
    assert item.parameters.intercept == -1.0
    with pytest.raises(FileFormatError, match="intercept = -a b"):
        read_items(item_line(row | {"intercept": 1.0}))
