"""`sextant response-sets` as the shell calls it, on a database of its own."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.shell import sextant

Run = Callable[..., Result]


@pytest.fixture
def run(own_database: None) -> Run:
    return partial(sextant, "response-sets")


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    file = tmp_path / "scores.csv"
    file.write_text("model,q1,q2\nm1,1,0\nm2,,1\nm3,,\n", encoding="utf-8")
    return file


def test_answers_are_imported_listed_and_shown(run: Run, scores: Path) -> None:
    dry = run("import", "arc", "--from", scores, "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "nothing was written" in dry.stderr
    assert "arc" not in run("list").stdout

    result = run("import", "arc", "--from", scores)
    assert result.exit_code == 0, result.output
    assert "3 answers read, 3 accepted (3 scored); 2 new examinees, 2 new items" in result.stdout
    assert "1 examinees without a score: m3" in result.stdout
    again = run("import", "arc", "--from", scores)
    assert "3 skipped (duplicate):" in again.stdout
    assert run("list").stdout.splitlines()[1].split()[:4] == ["arc", "2", "2", "3"]
    shown = run("show", "arc").stdout
    assert "answers     3 scored" in shown
    assert "3 of 3 from " in shown
    assert "0 of 3 from " in shown


def test_a_folder_is_searched_for_files_of_answers(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "some-model"
    folder.mkdir(parents=True)
    row = {"doc_id": 0, "doc": {"q": 1}, "resps": [["x"]], "filter": "none", "metrics": ["acc"]}
    (folder / "samples_arc_2026-11-20T10-00-00.jsonl").write_text(json.dumps(row | {"acc": 1.0}))
    (folder / "notes.txt").write_text("nothing here")
    result = run("import", "arc", "--from", tmp_path / "logs")
    assert result.exit_code == 0, result.output
    assert "lm-eval, 1 read" in result.stdout
    assert "1 files hold no answers and were passed over" in result.stdout


def test_answers_in_place_of_failures_are_told_without_negative_counts(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    file = folder / "samples_arc_2026-11-20T10-00-00.jsonl"
    row = {"filter": "none", "metrics": ["acc"], "doc": {}}

    def imported(text: str, score: float) -> str:
        rows = [{**row, "doc_id": n, "doc_hash": str(n), "resps": [[text]]} for n in range(5)]
        file.write_text("\n".join(json.dumps(one | {"acc": score}) for one in rows))
        result = run("import", "arc", "--from", folder)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert "5 accepted (5 error)" in imported("", 0.0)
    assert "5 accepted (5 scored, in place of 5 error)" in imported("x", 1.0)
    shown = run("show", "arc").stdout
    assert "answers     5 scored" in shown
    assert "unparsed    wrong" in shown


def test_the_files_that_a_shell_expands_are_all_taken(run: Run, scores: Path) -> None:
    second = scores.with_name("more.csv")
    second.write_text("model,q1\nm9,1\n", encoding="utf-8")
    result = run("import", "arc", "--from", scores, second)
    assert "3 new examinees" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("import", "arc"), "--from"),
        (("import", "arc", "--from", "nowhere"), "no such file"),
        (("import", "a/b", "--from", "FILE"), "without / :"),
        (("import", "arc", "--from", "FILE", "--format", "lmeval"), "Did you mean 'lm-eval'"),
        (("import", "arc", "--from", "FILE", "--format", "inspect"), "expected {"),
        (("show", "arc"), "There is no response set 'arc'"),
    ],
)
def test_what_cannot_be_done_is_one_clear_message(
    run: Run, scores: Path, words: tuple[str, ...], message: str
) -> None:
    result = run(*(scores if word == "FILE" else word for word in words))
    assert result.exit_code == 2
    assert message in result.stderr
    assert isinstance(result.exception, SystemExit)


def test_a_set_is_exported_in_every_format_and_comes_back_the_same(
    run: Run, tmp_path: Path
) -> None:
    source = tmp_path / "long.csv"
    source.write_text(
        'examinee,item,trial,score\n"a,b","two\nlines",1,1\n'
        '"a,b",\'=q,1,0\n"a,b",\'=q,2,1\nm2,\'=q,1,1\n'
    )
    assert run("import", "one", "--from", source).exit_code == 0
    long = tmp_path / "again.csv"
    assert run("export", "one", "--format", "long", "--out", long).exit_code == 0
    assert long.read_text() == source.read_text()

    whole = tmp_path / "whole.csv"
    whole.write_text("examinee,q1,q2\nm1,1,0\nm2,,1\nm3,0,0.1\n")
    assert run("import", "whole", "--from", whole).exit_code == 0
    for file_format in ("csv", "parquet", "long"):
        target = tmp_path / f"out-{file_format}"
        result = run("export", "whole", "--format", file_format, "--out", target)
        assert result.exit_code == 0, result.output
        assert run("import", f"w-{file_format}", "--from", target).exit_code == 0
        assert run("export", f"w-{file_format}").stdout == whole.read_text()
    refused = run("export", "whole", "--format", "py-irt", "--out", tmp_path / "p.jsonl")
    assert refused.exit_code == 2
    assert "'m3' has 0.1 on 'q2'. Export csv or parquet" in refused.stderr
    assert not (tmp_path / "p.jsonl").exists()


def test_sessions_are_collected_into_a_set_that_is_made(run: Run, tmp_path: Path) -> None:
    parameters = tmp_path / "bank.csv"
    parameters.write_text("item,a,b\nq1,1,0\n", encoding="utf-8")
    made = sextant("banks", "import", "sums", "--parameters", parameters)
    assert made.exit_code == 0, made.output

    result = run("collect", "live", "--bank", "sums", "--since", "2026-01-01")
    missing = run("collect", "other", "--bank", "nothing")

    assert result.exit_code == 0, result.output
    assert "0 sessions taken over" in result.stdout
    assert "live: 0 examinees, 0 items" in result.stdout
    assert missing.exit_code == 2
    assert "nothing" in missing.stderr
    assert "other" not in run("list").stdout
