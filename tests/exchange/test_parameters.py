"""Parameter files: what is read, what is refused, and what reads back as it was written."""

import gzip
import io
import json

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.errors import FileFormatError, InvalidInputError, ItemBankError
from app.exchange.bank_files import BankFormat, write_bank, write_difficulties, write_mirt
from app.exchange.items import read_items
from app.exchange.parameters import read_parameters
from app.exchange.py_irt import write_py_irt_parameters
from app.services.banks.imports import BankImport, parameters_of

MIRT = b"X,a1,d,g,u\nX1,2,-1,0.2,1\nX2,-0.5,1,0,0.9\n"


def test_d_of_a_generic_file_is_the_upper_asymptote() -> None:
    bank = read_parameters(b"item,a,b,c,d\nq,2,0.5,0.2,0.95\n")
    assert (bank.b[0], bank.c[0], bank.d[0]) == (0.5, 0.2, 0.95)


@pytest.mark.parametrize(
    "content",
    [
        b"X,a,b,g,u\nq,2,0.5,0.2,1\n",
        b"item,a,b,c\nq,2,0.5,0.2\n",
        b"item,d,c,b,a\nq,1,0.2,0.5,2\n",
        b'"","a1","d","g","u"\n"q",2,-1,0.2,1\n',
        b"X,a1,d,g\nq,2,-1,0.2\n",
        b"\xef\xbb\xbfX,a1,d,g,u\r\nq,2,-1,0.2,1\r\n\r\n",
        gzip.compress(b"X,a1,d,g,u\nq,2,-1,0.2,1\n", mtime=0),
    ],
)
def test_every_format_reads_alike(content: bytes) -> None:
    for source in (content, io.BytesIO(content)):
        bank = read_parameters(source)
        assert bank.item_ids == ("q",)
        assert (bank.a[0], bank.intercept[0], bank.c[0], bank.d[0]) == (2.0, -1.0, 0.2, 1.0)


def test_asymptotes_that_are_left_out_are_0_and_1() -> None:
    for content in (b"X,a1,d\nq,2,-1\n", b"item,a,b\nq,2,0.5\n"):
        bank = read_parameters(content)
        assert (bank.c[0], bank.d[0]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("header", "words"),
    [
        (b"X,a1,a3,d,g,u", "without a gap"),
        (b"X,a1,d,logit(g),logit(u)", "not logits"),
        (b"X;a1;d;g;u", "separated by commas"),
        (
            b"item,b,c,d",
            "and then a,b,c,d, where c and d may be left out: a is missing, for the 1PL write",
        ),
        (b"item,b", "and d may be left out: a is missing, for the 1PL write 1 in each row; found"),
        (b"question,difficulty", "found 'question,difficulty'"),
        (b"a1,d,g,u", "ids and then a1,d,g,u (mirt; d is"),
        (b"X,a1,d,g,u,note", "X,a1,d,g,u,note"),
        (b"item,a,b,c,c", "item,a,b,c,c"),
        (b"", "found 'nothing'"),
    ],
)
def test_other_columns_are_refused_with_what_was_expected(header: bytes, words: str) -> None:
    with pytest.raises(FileFormatError) as refused:
        read_parameters(header + b"\nq,1,1,1,1\n" if header else b"\n", name="bank.csv")
    assert refused.value.detail.startswith("bank.csv: expected a first column of item ids")
    assert words in refused.value.detail


def test_every_faulty_cell_is_listed_with_file_row_and_column() -> None:
    content = b"X,a1,d,g,u\nq1,one,0,2,1\nq2,1,nan,0,1\nq1,1,0,0,1\n,1,0,0,1\nq5,1,0\nq6,inf,,0,1\n"
    with pytest.raises(FileFormatError) as refused:
        read_parameters(content, name="bank.csv")
    assert [(p.pointer, p.detail) for p in refused.value.problems] == [
        ("bank.csv:2:a1", "item 'q1': expected a number, got 'one'"),
        ("bank.csv:3:d", "item 'q2': expected a finite number, got 'nan'"),
        ("bank.csv:4:X", "expected each item once, got 'q1', which row 2 has"),
        ("bank.csv:5:X", "expected an item id"),
        ("bank.csv:6", "expected 5 cells, got 3"),
        ("bank.csv:7:a1", "item 'q6': expected a finite number, got 'inf'"),
        ("bank.csv:7:d", "item 'q6': expected a number, got ''"),
        (
            "bank.csv:2:g",
            "item 'q1': expected 0 <= g < u <= 1, got g=2, u=1; it looks like a logit",
        ),
    ]
    assert "8 faults" in refused.value.detail


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (b"q,1,0,0.9,0.5", "g=0.9, u=0.5"),
        (b"q,1,0,-1.4,1", "looks like a logit"),
        (b"q,1,0,1.4,2", "looks like a logit"),
        (b"q,1,0,0.2,1.1", "u=1.1"),
    ],
)
def test_asymptotes_outside_0_to_1_are_refused(row: bytes, words: str) -> None:
    with pytest.raises(ItemBankError) as refused:
        read_parameters(b"X,a1,d,g,u\nok,1,0,0,1\n" + row + b"\n", name="bank.csv")
    (problem,) = refused.value.problems
    assert problem.pointer == "bank.csv:3:g"
    assert words in problem.detail
    assert "'q'" in problem.detail


def test_a_slope_that_gives_no_difficulty_is_refused_with_its_item() -> None:
    slopes = {"none": 0.0, "tiny": 1e-300}
    bank = ItemBank.from_intercepts(a=[*slopes.values()], intercept=[1.0, 1.0], item_ids=[*slopes])
    rows = "".join(f"{key},{a},1\n" for key, a in slopes.items())
    files = {
        "bank.csv:3:a: item 'tiny'": f"item,a,intercept\n{rows}".encode(),
        "bank.csv: item 'tiny'": write_bank(bank, BankFormat.PARQUET),
    }
    expected = "expected a slope of 0, or of at least 1e-09 either way, got 1e-300"
    for place, content in files.items():
        with pytest.raises(ItemBankError) as refused:
            read_parameters(content, name="bank.csv")
        assert f"{place}: {expected}" in refused.value.detail
    beside = [
        {"key": key, "prompt": "?", "target": "x", "a": a, "intercept": 1.0}
        for key, a in slopes.items()
    ]
    lines = "\n".join(map(json.dumps, beside)).encode()
    with pytest.raises(FileFormatError) as fault:
        read_items(lines, name="items.jsonl")
    (problem,) = fault.value.problems
    assert (problem.pointer, problem.detail) == ("items.jsonl:2:a", expected)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x1f\x8bnot gzip", "gzip"),
        (gzip.compress(MIRT, mtime=0)[:-9], "gzip"),
        (b"\xff\xfeX\x00", "UTF-8"),
        (b'X,a1,d,g,u\n"q,1,0,0,1\n', "CSV"),
    ],
)
def test_bytes_that_are_no_table_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_parameters(content)


@pytest.mark.parametrize(
    ("k", "header"), [(None, b"item,a,intercept,c,d\n"), ([0.2, 0.1], b"item,a,intercept,c,d,k\n")]
)
def test_items_without_difficulty_take_intercepts(k: list[float] | None, header: bytes) -> None:
    bank = ItemBank.from_intercepts(
        a=[0.0, 1.2], intercept=[1.0, -0.3], c=[0.0, 0.1], k=k, item_ids=["flat", "other"]
    )
    written = write_difficulties(bank)
    again = read_parameters(written)
    assert written.startswith(header)
    assert (again.model, again.item_ids) == (bank.model, bank.item_ids)
    for name, values in bank.columns.items():
        assert again.columns[name].tolist() == values.tolist()


SCORED = b"item,a,b,c,d,k\nq1,1.5,0.25,0,1,0.08\nq2,1,-1,0.1,0.9,0.2\n"


def test_a_column_k_makes_a_continuous_bank_that_reads_back() -> None:
    bank = read_parameters(SCORED)
    assert bank.model.name == "continuous"
    assert bank.k.tolist() == [0.08, 0.2]
    again = read_parameters(write_difficulties(bank))
    assert write_difficulties(again) == write_difficulties(bank)
    assert again.k.tolist() == bank.k.tolist()
    assert read_parameters(b"item,a,b,k\nq,1,0,0.1\n").d.tolist() == [1.0]
    as_parquet = read_parameters(write_bank(bank, BankFormat.PARQUET))
    assert (as_parquet.model, as_parquet.k.tolist()) == (bank.model, bank.k.tolist())


def test_mixed_models_or_no_dispersion_are_refused_with_their_place() -> None:
    with pytest.raises(FileFormatError, match=r"bank.csv:3:k: item 'b': expected a number, got ''"):
        read_parameters(b"item,a,b,c,d,k\na,1,0,0,1,0.1\nb,1,0,0,1,\n", name="bank.csv")
    with pytest.raises(ItemBankError, match=r"bank.csv:2:k: item 'a': expected k > 0, got -0.1"):
        read_parameters(b"item,a,b,c,d,k\na,1,0,0,1,-0.1\n", name="bank.csv")


def test_formats_of_other_programs_hold_no_continuous_scores() -> None:
    bank = read_parameters(SCORED)
    with pytest.raises(ItemBankError, match="item,a,b,c,d,k"):
        write_mirt(bank)
    with pytest.raises(ItemBankError, match="csv or parquet"):
        write_py_irt_parameters(bank, bank.b)


# Several abilities


N_ITEMS = 12
KEYS = tuple(f"q{j}" for j in range(N_ITEMS))


def bank(*, nested: bool) -> ItemBank:
    rng = np.random.default_rng(3)
    loadings = rng.normal(size=(N_ITEMS, 2))
    loadings[4] = 0.0
    a = rng.lognormal(0.0, 0.3, N_ITEMS)
    items = Loadings(a, rng.normal(size=N_ITEMS), loadings, nested)
    d = items.n_abilities
    root = rng.normal(size=(d, d))
    population = Population(rng.normal(size=d), root @ root.T + 0.2 * np.eye(d))
    return ItemBank.from_abilities(MultidimensionalModel(items, population), KEYS)


def abilities(found: ItemBank) -> MultidimensionalModel:
    assert found.abilities is not None
    return found.abilities


def drawn(found: ItemBank, z: FloatArray) -> FloatArray:
    """Return probabilities of examinees z standard deviations from the mean."""
    population = abilities(found).population
    theta = population.mean + z @ np.linalg.cholesky(population.covariance).T
    return abilities(found).items.expected_score(theta)


@pytest.mark.parametrize("nested", [True, False])
@pytest.mark.parametrize("file_format", [BankFormat.CSV, BankFormat.PARQUET])
def test_our_own_files_keep_every_ability(file_format: BankFormat, nested: bool) -> None:
    known = bank(nested=nested)
    found = read_parameters(write_bank(known, file_format))
    z = np.random.default_rng(1).normal(size=(50, abilities(known).items.n_abilities))
    np.testing.assert_allclose(drawn(found, z), drawn(known, z), rtol=1e-9)
    assert abilities(found).items.names == abilities(known).items.names
    assert found.item_ids == KEYS
    again = write_bank(found, file_format)
    assert read_parameters(again).intercept.tolist() == found.intercept.tolist()


def test_a_file_of_mirt_numbers_the_slopes() -> None:
    known = bank(nested=True)
    content = write_bank(known, BankFormat.MIRT)
    assert content.startswith(b"X,a1,a2,a3,d,g,u\n")
    found = read_parameters(content)
    z = np.random.default_rng(1).normal(size=(50, 3))
    np.testing.assert_allclose(drawn(found, z), drawn(known, z), rtol=1e-9)
    assert not abilities(found).items.nested


def test_several_slopes_have_the_meaning_of_mirt() -> None:
    """mirt: P = g + (u - g) / (1 + exp(-(a1 z1 + a2 z2 + d)))."""
    found = read_parameters(b'"","a1","a2","d","g","u"\n"1",1.5,-0.5,0.25,0,1\n"2",0,2,-1,0,1\n')
    z = np.array([0.3, -1.2])
    expected = 1 / (1 + np.exp(-np.array([1.5 * 0.3 + 0.5 * 1.2 + 0.25, -2 * 1.2 - 1])))
    np.testing.assert_allclose(abilities(found).items.expected_score(z), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("content", "fault", "words"),
    [
        (b"X,a1,a2,d,g,u\nq1,1,1,0,0.2,1\n", ItemBankError, "no asymptotes beside several"),
        (b"X,a1,a2,d,g,u\nq1,1,1,0,0,0.9\n", ItemBankError, "the first is 'q1'"),
        (b"X,a1,a2,d,g,u\nq1,1,x,0,0,1\n", FileFormatError, "expected a number, got 'x'"),
        (b"item,general,dimension_1\nq1,1,1\n", FileFormatError, "intercept,general,dimension_1"),
        (b"item,intercept,dimension_1,colour\nq1,1,1,2\n", FileFormatError, "colour"),
    ],
)
def test_files_that_mean_something_else_are_refused(
    content: bytes, fault: type[Exception], words: str
) -> None:
    with pytest.raises(fault, match=words):
        read_parameters(content)


def test_an_item_may_load_only_on_its_dimension() -> None:
    found = read_parameters(b"item,intercept,general,dimension_1\nq1,0.5,0,2\nq2,0,1,0\n")
    np.testing.assert_allclose(abilities(found).items.slopes, [[0, 2], [1, 0]], atol=1e-8)


def line(**fields: object) -> bytes:
    return json.dumps({"prompt": "?", "target": "x", **fields}).encode() + b"\n"


def test_items_may_have_slopes_beside_them() -> None:
    slopes = {"general": 1.5, "dimension_1": -0.5}
    content = line(id="q1", intercept=0.25, a=1.5, b=-0.25 / 1.5, slopes=slopes)
    content += line(id="q2", intercept=0.0, slopes={"general": 1.0, "dimension_1": 0.0})
    found = parameters_of(BankImport(items=read_items(content)))
    assert found is not None
    np.testing.assert_allclose(abilities(found).items.slopes, [[1.5, -0.5], [1.0, 0.0]])
    assert abilities(found).items.names == ("general", "dimension_1")
    mixed = BankImport(items=read_items(content + line(id="q3", a=1.0, b=0.0)))
    with pytest.raises(InvalidInputError, match="got none of item 'q3'"):
        parameters_of(mixed)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"slopes": {"general": 1.0, "dimension_1": 1.0}}, "an intercept beside slopes"),
        ({"slopes": {"dimension_2": 1.0}, "intercept": 0.0}, "numbers by ability"),
        ({"slopes": {"general": 1.0, "dimension_1": "x"}, "intercept": 0.0}, "numbers by ability"),
        ({"slopes": [1.0, 2.0], "intercept": 0.0}, "numbers by ability"),
        ({"slopes": {"dimension_1": 1.0}, "intercept": 0.0, "c": 0.2}, "c = 0, d = 1"),
    ],
)
def test_invalid_slopes_are_refused(fields: dict[str, object], words: str) -> None:
    with pytest.raises(FileFormatError, match=words):
        read_items(line(id="q1", **fields))
