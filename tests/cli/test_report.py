"""`sextant report`, called as from a shell."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.shell import done, refused, write_scores

pytestmark = pytest.mark.usefixtures("own_database")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    theta = rng.normal(size=(300, 1))
    b = np.linspace(-1.5, 1.5, 12)
    right = rng.random((300, 12)) < 1 / (1 + np.exp(-1.2 * (theta - b)))
    return write_scores(tmp_path / "answers.csv", right)


def test_a_calibrated_file_becomes_a_page(answers: Path, tmp_path: Path) -> None:
    bank, figures = tmp_path / "arc.csv", tmp_path / "arc.json"
    done("calibrate", "--responses", answers, "--out", bank, "--json", figures)
    page, numbers = tmp_path / "report.html", tmp_path / "report.json"
    result = done(
        "report", "--bank", bank, "--calibration", figures, "--out", page, "--json", numbers
    )
    assert "Wrote " in result.stdout
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert "<h1>arc</h1>" in text
    assert "calibrated by the answers of 300 models" in text
    other = tmp_path / "other.csv"
    lines = bank.read_text().splitlines()
    items = (line.partition(",")[0] for line in lines[1:])
    other.write_text("\n".join(["item,a,b,c,d", *(f"{item},1,0,0,1" for item in items)]))
    wrong = refused("report", "--bank", other, "--calibration", figures, "--out", page)
    assert "The calibration is of another bank: item" in wrong
    document = json.loads(numbers.read_text())
    assert document["calibration"]["fit"]["verdict"] in ("good", "acceptable", "marginal", "poor")
    assert document["identity"]["n_active"] == 12
    assert len(document["calibration"]["worst_items"]) == 12


def test_a_bank_alone_and_a_stored_version_have_pages_too(tmp_path: Path) -> None:
    plain = tmp_path / "plain.csv"
    plain.write_text("item,a,b,c,d\nq1,1,0,0,1\nq2,-1,0,0,1\n")
    alone = done("report", "--bank", plain, "--title", "A <title>", "--out", "-")
    assert "<h1>A &lt;title&gt;</h1>" in alone.stdout
    assert "better models get it wrong more often" in alone.stdout.lower()
    done("banks", "import", "sums", "--parameters", plain)
    for reference in ("sums", "sums/1"):
        stored = done("report", "--version", reference, "--out", "-")
        assert "<h1>sums, version 1</h1>" in stored.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "Name a bank file with --bank"),
        (("--version", "none"), "There is no bank 'none'"),
        (("--version", "none", "--bank", "BANK"), "leave --bank"),
        (("--bank", "BANK", "--calibration", "BANK"), "expected what `sextant calibrate --json`"),
        (("--bank", "BANK", "--calibration", "{}"), "log_likelihood: Field required"),
        (("--bank", "none.csv"), "none.csv"),
    ],
)
def test_an_impossible_request_gives_one_clear_message(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    bank, empty = tmp_path / "bank.csv", tmp_path / "empty.json"
    bank.write_text("item,a,b\nq1,1,0\n")
    empty.write_text("{}")
    files = {"BANK": bank, "{}": empty}
    assert message in refused("report", *(files.get(word, word) for word in words))
