"""`sextant response-sets`, called as from a shell on an own database."""

import json
from functools import partial
from pathlib import Path

import pytest

from tests.cli import shell

pytestmark = pytest.mark.usefixtures("own_database")
done, refused = partial(shell.done, "response-sets"), partial(shell.refused, "response-sets")


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    file = tmp_path / "scores.csv"
    file.write_text("model,q1,q2\nm1,1,0\nm2,,1\nm3,,\n", encoding="utf-8")
    return file


def test_answers_are_imported_listed_and_shown(scores: Path) -> None:
    tried = done("import", "arc", "--from", scores, "--dry-run")
    assert "nothing was stored" in tried.stderr
    assert "rsp_" not in tried.stdout  # no set has that id
    assert "arc" not in done("list").stdout

    result = done("import", "arc", "--from", scores)
    assert "3 answers read, 3 accepted (3 scored); 2 new examinees, 2 new items" in result.stdout
    assert "1 examinees without a score: m3" in result.stdout
    again = done("import", "arc", "--from", scores)
    assert "3 skipped (duplicate):" in again.stdout
    assert done("list").stdout.splitlines()[1].split()[:4] == ["arc", "2", "2", "3"]
    shown = done("show", "arc").stdout
    assert "answers     3 scored" in shown
    assert "3 of 3 from " in shown
    assert "0 of 3 from " in shown


def test_all_settings_of_an_import_reach_it(tmp_path: Path) -> None:
    file = tmp_path / "grades.csv"
    file.write_text("model,q1,q2\nm1,10,0\nm2,4,7\n", encoding="utf-8")
    settings = ("--format", "table", "--score-range", "0", "10", "--no-answer", "refused")
    told = done("import", "grades", file, *settings, "--unparsed", "missing").stdout
    assert "4 answers read, 4 accepted (4 scored)" in told
    assert "m1,1,0\nm2,0.4,0.7\n" in done("export", "grades").stdout
    assert "unparsed    missing" in done("show", "grades").stdout
    unknown = refused("import", "grades", file, "--format", "xls")
    assert "Invalid value for '--format'" in unknown


def test_a_folder_is_searched_for_files_of_answers(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "some-model"
    folder.mkdir(parents=True)
    row = {"doc_id": 0, "doc": {"q": 1}, "resps": [["x"]], "filter": "none", "metrics": ["acc"]}
    (folder / "samples_arc_2026-11-20T10-00-00.jsonl").write_text(json.dumps(row | {"acc": 1.0}))
    (folder / "notes.txt").write_text("nothing here")
    (folder / "samples_boolq_2026-11-20T10-00-00.jsonl").touch()
    result = done("import", "arc", "--from", tmp_path / "logs")
    assert "lm-eval, 1 read" in result.stdout
    assert "2 files hold no answers and were passed over" in result.stdout
    assert "1 skipped (empty_file):" in result.stdout
    assert "some-model/samples_boolq" in result.stdout
    told = refused("import", "arc", "--from", tmp_path / "logs", "--filter", "nosuch")
    assert "The files: expected the filter 'nosuch', found: 'none'." in told


def test_answers_that_replace_failures_give_no_negative_counts(tmp_path: Path) -> None:
    folder = tmp_path / "some-model"
    folder.mkdir()
    file = folder / "samples_arc_2026-11-20T10-00-00.jsonl"
    row = {"filter": "none", "metrics": ["acc"], "doc": {}}

    def imported(text: str, score: float) -> str:
        rows = [{**row, "doc_id": n, "doc_hash": str(n), "resps": [[text]]} for n in range(5)]
        file.write_text("\n".join(json.dumps(one | {"acc": score}) for one in rows))
        result = done("import", "arc", "--from", folder)
        return result.stdout

    assert "5 accepted (5 error)" in imported("", 0.0)
    assert "5 accepted (5 scored, in place of 5 error)" in imported("x", 1.0)
    shown = done("show", "arc").stdout
    assert "answers     5 scored" in shown
    assert "unparsed    wrong" in shown


def test_a_damaged_file_is_no_success_for_a_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "samples_sums_2026-11-20T10-00-00.jsonl"
    row = {"doc": {}, "resps": [["4"]], "filter": "none", "metrics": ["acc"], "acc": 1.0}
    lines = [
        json.dumps(
            {"doc_id": n, "doc_hash": str(n), "target": "4", "arguments": [["2+2=", {}]], **row}
        )
        for n in range(3)
    ]
    file.write_text("\n".join(lines)[:-20])
    commands = (
        *[("response-sets", "import", "sums", file, *dry) for dry in (("--dry-run",), ())],
        ("banks", "from-results", "bank", file, "--no-publish", "--default-scorer", "exact"),
    )
    for words in commands:
        result = shell.sextant(*words)
        assert result.exit_code == 1, result.output
        told = " ".join(result.stderr.split())
        assert "Error: 1 row cannot be read, as where a file is cut off" in told
    assert "answers     2 scored" in done("show", "sums").stdout
    file.write_text("\n".join(lines))
    assert "1 accepted" in done("import", "sums", file).stdout


def test_all_files_of_a_shell_pattern_are_imported(scores: Path) -> None:
    second = scores.with_name("more.csv")
    second.write_text("model,q1\nm9,1\n", encoding="utf-8")
    result = done("import", "arc", "--from", scores, second)
    assert "3 new examinees" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("import", "arc"), "at least one file or folder"),
        (("import", "arc", "--from", "nowhere"), "cannot be read: No such file or directory"),
        (("import", "a/b", "--from", "FILE"), "without / :"),
        (("import", "arc", "--from", "FILE", "--format", "lmeval"), "Did you mean 'lm-eval'"),
        (("import", "arc", "--from", "FILE", "--format", "inspect"), "expected {"),
        (("import", "arc", "--from", "FILE", "--examinee", ""), "--examinee: expected at least 1"),
        (("show", "arc"), "There is no response set 'arc'"),
    ],
)
def test_an_impossible_request_gives_one_clear_message(
    scores: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in refused(*(scores if word == "FILE" else word for word in words))


def test_a_set_is_exported_in_every_format_and_comes_back_the_same(tmp_path: Path) -> None:
    source = tmp_path / "long.csv"
    source.write_text(
        'examinee,item,trial,score\n"a,b","two\nlines",1,1\n'
        '"a,b",\'=q,1,0\n"a,b",\'=q,2,1\nm2,\'=q,1,1\n'
    )
    done("import", "one", "--from", source)
    long = tmp_path / "again.csv"
    done("export", "one", "--format", "long", "--out", long)
    assert long.read_text() == source.read_text()

    whole = tmp_path / "whole.csv"
    whole.write_text("examinee,q1,q2\nm1,1,0\nm2,,1\nm3,0,0.1\n")
    done("import", "whole", "--from", whole)
    for file_format in ("csv", "parquet", "long"):
        target = tmp_path / f"out-{file_format}"
        done("export", "whole", "--format", file_format, "--out", target)
        done("import", f"w-{file_format}", "--from", target)
        assert done("export", f"w-{file_format}").stdout == whole.read_text()
    told = refused("export", "whole", "--format", "py-irt", "--out", tmp_path / "p.jsonl")
    assert "'m3' has 0.1 on 'q2'. Export csv or parquet" in told
    assert not (tmp_path / "p.jsonl").exists()


def test_sessions_are_collected_into_a_new_set(tmp_path: Path) -> None:
    parameters = tmp_path / "bank.csv"
    parameters.write_text("item,a,b\nq1,1,0\n", encoding="utf-8")
    shell.done("banks", "import", "sums", "--parameters", parameters)
    result = done("collect", "live", "--bank", "sums", "--since", "2026-01-01")
    assert "0 sessions taken over" in result.stdout
    assert "live: 0 examinees, 0 items" in result.stdout
    assert "nothing" in refused("collect", "other", "--bank", "nothing")
    assert "other" not in done("list").stdout
