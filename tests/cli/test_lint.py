import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from app.cli.lab import lint


def run(tmp_path: Path, content: str, *arguments: str) -> Result:
    (tmp_path / "bank.csv").write_text(content)
    cli = typer.Typer()
    cli.command()(lint.command)
    return CliRunner().invoke(
        cli, ["--bank", str(tmp_path / "bank.csv"), *arguments], env={"COLUMNS": "200"}
    )


def test_findings_are_listed_with_item_and_value(tmp_path: Path) -> None:
    result = run(tmp_path, "item,a,b,c\nq1,-1,0,0\nq2,1,0,0.7\nq3,1,0,0\n", "--json", "-")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["n_items"] == 3
    assert document["counts"] == {"negative_slope": 1, "high_guessing": 1}
    assert document["quarantined"] == ["q1"]
    assert [(f["item_id"], f["code"], f["value"]) for f in document["findings"]] == [
        ("q1", "negative_slope", -1.0),
        ("q2", "high_guessing", 0.7),
    ]
    assert "3 items, 2 findings, 1 items kept out" in result.stderr


def test_a_clean_bank_has_no_findings(tmp_path: Path) -> None:
    result = run(tmp_path, "item,a,b\nq1,1,0\n")
    assert result.exit_code == 0
    assert "1 items, 0 findings" in result.stdout


def test_a_bank_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    result = run(tmp_path, "item,a,b\nq1,1,\n")
    assert result.exit_code == 2
    assert "bank.csv:2:b" in result.stderr


@pytest.mark.parametrize(
    ("benchmark", "counts"),
    [("arc", {"negative_slope": 189, "high_guessing": 200}), ("gsm8k", {"negative_slope": 8})],
)
def test_the_published_banks_have_the_known_faults(
    shared_data: Path, tmp_path: Path, benchmark: str, counts: dict[str, int]
) -> None:
    content = (shared_data / "atlas" / benchmark / "bank.csv").read_text()
    found = json.loads(run(tmp_path, content, "--json", "-").stdout)["counts"]
    assert {code: found[code] for code in counts} == counts
