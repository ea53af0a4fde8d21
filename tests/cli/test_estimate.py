import json
import math
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from app.cli.lab import estimate

BANK = "X,a1,d,g,u\nX1,1,0,0,1\nX2,2,-1,0.2,1\nX3,-1,0,0,1\nX4,1,1,0,1\n"
RESPONSES = "model,X1,X2,X3,X9\nalpha,1,0,,1\nbeta,0,1,1,\ngamma,,,,1\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bank.csv").write_text(BANK)
    (tmp_path / "responses.csv").write_text(RESPONSES)
    return tmp_path


def run(folder: Path, *arguments: str) -> Result:
    cli = typer.Typer()
    cli.command()(estimate.command)
    files = ["--bank", str(folder / "bank.csv"), "--responses", str(folder / "responses.csv")]
    return CliRunner().invoke(cli, [*files, *arguments], env={"COLUMNS": "200"})


def result_of(folder: Path, *arguments: str) -> dict[str, Any]:
    result = run(folder, *arguments, "--json", "-")
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_examinee_gets_theta_error_and_predicted_score(folder: Path) -> None:
    document = result_of(folder)
    assert [row["examinee"] for row in document["examinees"]] == ["alpha", "beta", "gamma"]
    for row in document["examinees"]:
        assert row["lo"] < row["theta"] < row["hi"]
        assert row["se"] > 0
        assert set(row["accuracy"]) == {"value", "lo", "hi"}
        assert row["accuracy"]["lo"] <= row["accuracy"]["value"] <= row["accuracy"]["hi"]
    assert [row["n_items"] for row in document["examinees"]] == [2, 3, 0]


def test_json_goes_to_stdout_or_a_file_and_the_table_elsewhere(folder: Path) -> None:
    piped = run(folder, "--json", "-")
    assert "alpha" in piped.stderr
    filed = run(folder, "--json", str(folder / "out.json"))
    assert json.loads((folder / "out.json").read_text()) == json.loads(piped.stdout)
    assert "alpha" in filed.stdout


def test_items_that_the_bank_lacks_are_counted_and_quarantined_ones_used(folder: Path) -> None:
    document, told = result_of(folder), run(folder).stderr
    assert document["responses"]["items_not_in_bank"] == ["X9"]
    assert document["responses"]["n_scores_skipped"] == 2
    assert "X9" in told
    assert document["bank"] == {"n_items": 4, "n_quarantined": 1, "scale": "logit"}
    assert document["examinees"][1]["n_items"] == 3
    assert "sextant lint" in told


def test_ids_that_went_through_r_are_matched_and_told(folder: Path) -> None:
    (folder / "responses.csv").write_text("model,1,2\nalpha,1,0\n")
    document = result_of(folder)
    assert document["responses"]["renamed"] == {"1": "X1", "2": "X2"}
    assert "'1' to 'X1'" in run(folder).stderr


def test_the_settings_are_those_asked_for(folder: Path) -> None:
    document = result_of(
        folder,
        *("--estimator", "map", "--se", "posterior", "--nodes", "41", "--range", "-5", "5"),
        *("--rule", "rectangle", "--prior-sd", "2", "--prior-mean", "0.5"),
    )
    assert document["estimator"] == {
        "method": "map",
        "se": "posterior",
        "prior_mean": 0.5,
        "prior_sd": 2.0,
        "grid": {"n_nodes": 41, "lo": -5.0, "hi": 5.0, "rule": "rectangle"},
    }
    assert document["examinees"][0] != result_of(folder)["examinees"][0]


def test_an_mle_that_does_not_exist_is_told(folder: Path) -> None:
    rows = result_of(folder, "--estimator", "mle")["examinees"]
    assert (rows[2]["method"], rows[2]["at_bound"]) == ("map", True)
    assert "no finite estimate" in run(folder, "--estimator", "mle").stderr


def test_an_infinite_error_is_null(folder: Path) -> None:
    row = result_of(folder, "--se", "information")["examinees"][2]
    assert (row["se"], row["lo"], row["hi"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "33"], "--nodes and --range"),
        (["--range", "-4", "4"], "--nodes and --range"),
        (["--rule", "rectangle"], "fixed grid"),
        (["--nodes", "1", "--range", "-4", "4"], "got 1"),
        (["--nodes", "9", "--range", "4", "-4"], "lo < hi"),
        (["--nodes", "3", "--range", "-4", "4"], "at least 17 nodes"),
        (["--prior-sd", "1e308"], "at most 1e+06"),
        (["--prior-sd", "0"], "above 0"),
        (["--estimator", "magic"], "magic"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    folder: Path, arguments: list[str], words: str
) -> None:
    result = run(folder, *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bank.csv", "X,a1,d,g,u\nX1,1,nan,0,1\n", "bank.csv:2:d"),
        ("bank.csv", "X,a1,d,g,u\n", "at least one item"),
        ("bank.csv", "item,difficulty\nX1,1\n", "found 'item,difficulty'"),
        ("responses.csv", "model,X1\nalpha,yes\n", "responses.csv:2:X1"),
        ("responses.csv", "model,Z1\nalpha,1\n", "no item in common"),
    ],
)
def test_bad_files_are_refused_with_the_place(
    folder: Path, name: str, content: str, words: str
) -> None:
    (folder / name).write_text(content)
    result = run(folder, "--json", str(folder / "out.json"))
    assert result.exit_code == 2
    assert words in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.output
    assert not (folder / "out.json").exists()


def test_a_json_file_that_cannot_be_written_is_said_in_one_line(folder: Path) -> None:
    result = run(folder, "--json", str(folder / "missing" / "out.json"))
    assert result.exit_code == 2
    assert "cannot be written: No such file or directory" in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_the_published_prediction_takes_a_negative_slope_as_its_lower_asymptote(
    folder: Path,
) -> None:
    by_model, published = (
        result_of(folder, "--prediction", name)["examinees"][2]["accuracy"]["value"]
        for name in ("p-irt", "p-irt-c")
    )
    # gamma answered nothing: theta is 0, where X1 and X3 are at 1/2, and X3's c is 0.
    curve = [0.5, 0.2 + 0.8 / (1 + math.e), 0.0, 1 / (1 + math.exp(-1))]
    assert published == pytest.approx(sum(curve) / 4)
    assert by_model > published
