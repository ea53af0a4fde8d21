"""Banks of several abilities, written to files and read back with the same curves."""

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from app.engine.bank import FloatArray, ItemBank
from app.engine.models.multidimensional import Loadings, MultidimensionalModel, Population
from app.errors import FileFormatError, InvalidInputError, ItemBankError
from app.exchange.bank_files import BankFormat, write_bank
from app.exchange.items import read_items
from app.exchange.parameters import read_parameters
from app.services.banks.imports import BankImport, parameters_of

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
        (b"X,a1,a3,d,g,u\nq1,1,1,0,0,1\n", FileFormatError, "without a gap"),
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


def test_the_scale_of_a_file_is_kept() -> None:
    read: Callable[..., ItemBank] = read_parameters
    content = write_bank(replace(bank(nested=True), scale="old"), BankFormat.CSV)
    assert read(content, scale="mine").scale == "mine"
