from pathlib import Path

import pytest

from tests.cli.shell import done, refused, told


def bank(tmp_path: Path, content: str) -> tuple[str, str, Path]:
    path = tmp_path / "bank.csv"
    path.write_text(content)
    return "lint", "--bank", path


def test_findings_are_listed_with_item_and_value(tmp_path: Path) -> None:
    words = bank(tmp_path, "item,a,b,c\nq1,-1,0,0\nq2,1,0,0.7\nq3,1,0,0\n")
    document = told(*words)
    assert document["n_items"] == 3
    assert document["counts"] == {"negative_slope": 1, "high_guessing": 1}
    assert document["quarantined"] == ["q1"]
    assert [(f["item_id"], f["code"], f["value"]) for f in document["findings"]] == [
        ("q1", "negative_slope", -1.0),
        ("q2", "high_guessing", 0.7),
    ]
    assert "3 items, 2 findings, 1 items kept out" in done(*words).stdout


def test_a_clean_bank_has_no_findings_and_one_that_cannot_be_read_is_an_error(
    tmp_path: Path,
) -> None:
    assert "1 items, 0 findings" in done(*bank(tmp_path, "item,a,b\nq1,1,0\n")).stdout
    assert "bank.csv:2:b" in refused(*bank(tmp_path, "item,a,b\nq1,1,\n"))


@pytest.mark.parametrize(
    ("benchmark", "counts"),
    [("arc", {"negative_slope": 189, "high_guessing": 200}), ("gsm8k", {"negative_slope": 8})],
)
def test_the_published_banks_have_the_known_faults(
    shared_data: Path, benchmark: str, counts: dict[str, int]
) -> None:
    found = told("lint", "--bank", shared_data / "atlas" / benchmark / "bank.csv")["counts"]
    assert {code: found[code] for code in counts} == counts
