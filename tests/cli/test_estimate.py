import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli.shell import done, refused, told

BANK = "X,a1,d,g,u\nX1,1,0,0,1\nX2,2,-1,0.2,1\nX3,-1,0,0,1\nX4,1,1,0,1\n"
RESPONSES = "model,X1,X2,X3,X9\nalpha,1,0,,1\nbeta,0,1,1,\ngamma,,,,1\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bank.csv").write_text(BANK)
    (tmp_path / "responses.csv").write_text(RESPONSES)
    monkeypatch.chdir(tmp_path)
    return tmp_path


ESTIMATE = ("estimate", "--bank", "bank.csv", "--responses", "responses.csv")


run, result_of = partial(done, *ESTIMATE), partial(told, *ESTIMATE)

pytestmark = pytest.mark.usefixtures("folder")


def test_json_goes_to_stdout_or_a_file_and_the_table_elsewhere(folder: Path) -> None:
    piped, filed = run("--json", "-"), run("--json", "out.json")
    assert "alpha" in piped.stderr
    assert json.loads((folder / "out.json").read_text()) == json.loads(piped.stdout)
    assert "alpha" in filed.stdout


def test_items_that_the_bank_lacks_are_counted_and_quarantined_ones_used() -> None:
    document, said = result_of(), run().stderr
    assert document["responses"]["items_not_in_bank"] == ["X9"]
    assert document["responses"]["n_scores_skipped"] == 2
    assert "X9" in said
    assert document["bank"] == {"n_items": 4, "n_quarantined": 1, "scale": "logit"}
    assert document["examinees"][1]["n_items"] == 3
    assert "sextant lint" in said


def test_ids_changed_by_r_are_matched_and_reported(folder: Path) -> None:
    (folder / "responses.csv").write_text("model,1,2\nalpha,1,0\n")
    assert result_of()["responses"]["renamed"] == {"1": "X1", "2": "X2"}
    assert "'1' to 'X1'" in run().stderr


def test_the_settings_are_those_asked_for() -> None:
    document = result_of(
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
    by_rule, by_model = (
        result_of("--prediction", name)["examinees"][2]["accuracy"]["value"]
        for name in ("p-irt-c", "p-irt")
    )
    assert by_rule < by_model  # the slope of X3, which gamma did not answer, is negative


def test_a_missing_mle_is_reported_and_an_infinite_error_is_null() -> None:
    row = result_of("--estimator", "mle")["examinees"][2]
    assert (row["method"], row["at_bound"]) == ("map", True)
    assert "no finite estimate" in run("--estimator", "mle").stderr
    row = result_of("--se", "information")["examinees"][2]
    assert (row["se"], row["lo"], row["hi"]) == (None, None, None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "33"], "--nodes and --range"),
        (["--range", "-4", "4"], "--nodes and --range"),
        (["--rule", "rectangle"], "fixed grid"),
        (["--nodes", "3", "--range", "-4", "4"], "at least 17 nodes"),
        (["--prior-sd", "1e308"], "at most 1e+06"),
        (["--estimator", "magic"], "magic"),
    ],
)
def test_invalid_settings_are_refused(arguments: list[str], words: str) -> None:
    assert words in refused(*ESTIMATE, *arguments)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("bank.csv", "X,a1,d,g,u\nX1,1,nan,0,1\n", "bank.csv:2:d"),
        ("responses.csv", "model,X1\nalpha,yes\n", "responses.csv:2:X1"),
        ("responses.csv", "model,Z1\nalpha,1\n", "no item in common"),
    ],
)
def test_bad_files_are_refused_with_the_place(
    folder: Path, name: str, content: str, words: str
) -> None:
    (folder / name).write_text(content)
    assert words in refused(*ESTIMATE, "--json", "out.json")
    assert not (folder / "out.json").exists()
